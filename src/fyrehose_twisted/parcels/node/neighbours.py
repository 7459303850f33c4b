"""Table of known nodes (document 004, "Discovery phase"), dial targets and inbound peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.parcels.node.table_shares import TableEntry, TableQuota
from fyrehose_twisted.parcels.wire.messages import NEIGHBOUR_TIMEOUT, Hello, Mode, NodeInfo, RefusalReason, node_id

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


class InboundPeer:
    """A peer that dialled this node.

    :ivar info: its node information, if it sent a DscReq.
    :ivar member: its member id; ``None`` for a client that only publishes.
    :ivar expected_proof: proof that it has to send; ``None`` before its Hello.
    :ivar authenticated: whether it sent that proof.
    """

    __slots__ = ("authenticated", "cluster_id", "expected_proof", "heard_at", "info", "member", "peer")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.heard_at = now
        self.info: NodeInfo | None = None
        self.member: MemberId | None = None
        self.expected_proof: bytes | None = None
        self.authenticated = False
        self.cluster_id = 0


@dataclass(slots=True)
class Neighbour:
    """A known node."""

    info: NodeInfo
    heard_at: float
    mode: Mode
    suspected: bool = False
    sequence: int = -1
    """Sequence number of its last delivered event, as reported; -1 before the first report."""
    trusted: bool = False
    """Whether it proved the secret, or the operator configured its address."""

    @property
    def member(self) -> MemberId | None:
        """Its member id; ``None`` for a node that supports only document 004."""
        return None if self.info.ours is None else MemberId(self.info.name, self.info.ours.incarnation)

    def is_alive(self, now: float) -> bool:
        """Return whether it was heard recently and is not suspected."""
        return not self.suspected and now - self.heard_at <= NEIGHBOUR_TIMEOUT


class Neighbours:
    """Table of known nodes, by name.

    :param me: information of this node.
    :param limit: maximum number of entries.
    :param secret: whether the cluster has a secret.
    """

    def __init__(self, me: NodeInfo, limit: int, *, secret: bool = False) -> None:
        self.me = me
        self._secret = secret
        self._quota = TableQuota(limit, secret=secret)
        self._known: dict[str, Neighbour] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self._known.values())

    def get(self, name: str) -> Neighbour | None:
        """Return the node of that name, if known."""
        return self._known.get(name)

    def node_infos(self) -> tuple[NodeInfo, ...]:
        """Return the information of all nodes, sorted by name."""
        return tuple(one.info._replace(mode=one.mode) for _, one in sorted(self._known.items()))

    def conflict(self, info: NodeInfo, now: float) -> tuple[RefusalReason, str] | None:
        """Return why a node cannot be added, if its name or id (16 bits of the name's hash, document 004) is taken."""
        me, ours = self.me, info.ours
        # The reference implementation also accepts ids that do not match the name. Those are not compared.
        by_id = info.id == node_id(info.name)
        # With a secret, a node of this implementation will prove it, and then replaces one that cannot.
        proves = ours is not None and self._secret
        rivals = [one.info for one in self._known.values() if one.is_alive(now) and (one.trusted or not proves)]
        for other in (me, *rivals):
            if other.name != info.name:
                if by_id and other.id == info.id:
                    text = f"{info.name!r} and {other.name!r}, which is already known, have the same id, {info.id}"
                    return RefusalReason.ID_TAKEN, f"{text}: give one another name"
                continue
            if ours is not None and ours == other.ours:
                continue
            # The same address: the node has restarted.
            if other is not me and other.host == info.host and ours is not None:
                continue
            if other is not me and other.ours is None and ours is None:
                continue  # As the reference implementation does, let the new one replace the old one.
            where = format_address(other.host)
            return (
                RefusalReason.NAME_TAKEN,
                f"{info.name!r} is already running at {where}; give one another name",
            )
        return None

    def find_displaced(self, info: NodeInfo) -> Neighbour | None:
        """Return the unauthenticated neighbour that has the same id as the authenticated ``info``, if any."""
        names = info.name, self.me.name
        strangers = (one for one in self._known.values() if not one.trusted and one.info.name not in names)
        return next((one for one in strangers if one.info.id == info.id), None)

    def add(self, info: NodeInfo, now: float, *, trusted: bool = False) -> Neighbour | None:
        """Add or update a node; return ``None`` if the quota is exhausted.

        :param trusted: whether it proved the secret, or the operator configured its address.
        """
        known = self._known.get(info.name)
        if known is None:
            taken = [TableEntry(one.info.host[0], one.trusted) for one in self._known.values()]
            if not self._quota.has_room(taken, TableEntry(info.host[0], trusted)):
                return None
            known = self._known[info.name] = Neighbour(info, now, info.mode)
        else:
            if known.info.ours != info.ours:
                known.sequence = -1
            known.info, known.heard_at, known.mode = info, now, info.mode
            known.suspected = False
        known.trusted = known.trusted or trusted
        return known

    def remove(self, name: str) -> Neighbour | None:
        """Remove and return a node, if known."""
        return self._known.pop(name, None)

    def timed_out(self, now: float) -> list[Neighbour]:
        """Return the nodes that are not alive any more."""
        return [one for one in self._known.values() if not one.is_alive(now)]

    def seconds_silent(self, name: str, now: float) -> float:
        """Return the seconds since a node was heard; infinity if it is not known."""
        known = self._known.get(name)
        return inf if known is None else now - known.heard_at


def format_address(address: Address) -> str:
    """Return ``HOST:PORT``, with brackets around IPv6 addresses."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
