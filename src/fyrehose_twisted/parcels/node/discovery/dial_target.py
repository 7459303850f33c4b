"""Addresses to dial, and the state of their connections."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.parcels.wire.messages import Hello, NodeInfo

DIAL_BACKOFF = (0.25, 2.0)
"""Initial and maximum delay before a node dials again, in seconds."""
HEARSAY_ATTEMPTS = 5
"""Dial attempts for an address learned from others that never answered."""


class DialState(Enum):
    """Progress of an outbound connection."""

    IDLE = "idle"
    DIALLING = "dialling"
    DISCOVERING = "asked"
    """Waiting for the answer to a DscReq or SeqReq."""
    HELLO_SENT = "greeted"
    """Waiting for the answer to a Hello."""
    READY = "ready"
    """Ready for requests of this implementation."""


class DialResult(Enum):
    """Result of the last attempt to reach an address."""

    UNKNOWN = "nothing"
    CONNECTION_REFUSED = "refused"
    """The address refuses connections."""
    DOCUMENT_ONLY = "document"
    """The peer supports only the parcels of document 004."""
    NO_CLUSTER = "alone"
    """A node of this implementation that is in no cluster yet."""
    IN_CLUSTER = "cluster"
    """A node of this implementation that is in a cluster."""
    SELF = "itself"
    """This node itself."""
    REJECTED = "no"
    """The peer refused this node."""


class DialTarget:
    """An address to dial, and the state of its connection.

    :ivar configured: whether the operator configured it.
    :ivar trusted: whether the node there, or the node that listed it, proved the secret.
    :ivar name: name of the node that answered last.
    """

    __slots__ = (
        "address",
        "attempts",
        "backoff",
        "configured",
        "hello",
        "member",
        "name",
        "next_at",
        "peer",
        "queries_sequence",
        "reported_nodes",
        "result",
        "state",
        "trusted",
    )

    def __init__(self, address: Address, now: float, *, configured: bool, trusted: bool = False) -> None:
        self.address = address
        self.configured = configured
        self.trusted = trusted
        self.state = DialState.IDLE
        self.result = DialResult.UNKNOWN
        self.peer: Peer | None = None
        self.hello: Hello | None = None
        self.member: MemberId | None = None
        self.name = ""
        self.next_at = now
        self.backoff = DIAL_BACKOFF[0]
        self.attempts = 0
        self.queries_sequence = False
        self.reported_nodes: Sequence[NodeInfo] = ()

    def connection_closed(self, now: float, *, immediately: bool) -> None:
        """Record that the connection is closed, and schedule the next attempt, with backoff unless ``immediately``."""
        self.state, self.peer, self.hello, self.member = DialState.IDLE, None, None, None
        self.next_at = now if immediately else now + self.backoff
        if not immediately:
            self.backoff = min(2 * self.backoff, DIAL_BACKOFF[1])
