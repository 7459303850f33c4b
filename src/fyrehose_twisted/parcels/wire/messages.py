"""Messages between nodes: the parcels of document 004 and the extension parcels of this implementation.

A :class:`Parcel` is one of document 004 ("Protocol format"). All other messages are extension parcels, which are sent
only to peers that announce support with an :class:`Extension`. Those of consensus come from
:mod:`~fyrehose_twisted.consensus.messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from hashlib import sha256
from typing import NamedTuple

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.effects import Address

MAX_HEAD = 255
"""Maximum size of a head in bytes, because its length is one byte."""
MAX_DATA = 65_535
"""Maximum size of the application data in bytes."""
MAX_NAME = 64
"""Maximum size of the name of a node or cluster, in bytes of UTF-8."""
MAX_PUBLISHER = 160
"""Maximum size of a publisher's name, in bytes of UTF-8."""
MAX_EVENT = 49_152
"""Maximum size of an event in bytes, so that it fits into one parcel with its metadata."""
MAX_SEQUENCE = 2**63 - 1
"""Highest sequence number."""
HEARTBEAT_INTERVAL = 1.0
"""Seconds between heartbeats (document 004, "Work phase")."""
MAX_STATE_BYTES = 64 * 2**20
"""Maximum size of an application's state in bytes."""
CONDITIONS_VERSION = 2
"""Lowest :attr:`Extension.version` of nodes that know :attr:`PublisherRun.expect`, runs without events, and
:class:`FetchState`, and can transfer their leadership."""
NEIGHBOUR_TIMEOUT = 5.0
"""Seconds of silence after which a node is removed (document 004, "Work phase")."""


class Mode(Enum):
    """Mode of a node. Values are the names of the reference implementation, in the order of its numbers from 0."""

    WRK = "Wrk"
    DSC = "Dsc"
    ERR = "Err"
    PANIC = "Panic"
    SHUTDOWN = "Shutdown"
    SEQ_RECOVERY = "SeqRecovery"


class ParcelType(Enum):
    """Types of document 004, in the order of the numbers of the reference implementation from 0."""

    DSC_REQ = "DscReq"
    DSC_RES = "DscRes"
    SEQ_REQ = "SeqReq"
    SEQ_RES = "SeqRes"
    PROTO_ERROR = "ProtoError"


def node_id(name: str) -> int:
    """Return the id of a node: the first two bytes of the SHA-256 of its name, big endian. Ids may collide."""
    return int.from_bytes(sha256(name.encode()).digest()[:2], "big")


class Extension(NamedTuple):
    """Extension of a node's information, which announces support for extension parcels."""

    version: int
    incarnation: int
    cluster: int
    """CRC-32 of the cluster's name, with which nodes of other clusters are refused early."""


class NodeInfo(NamedTuple):
    """A node's information (document 004, "DscReq")."""

    id: int
    mode: Mode
    name: str
    host: Address
    """IP address as text, and the listening port."""
    ours: Extension | None = None


class Parcel(NamedTuple):
    """A parcel of document 004.

    As in the reference implementation, mismatched types and bodies decode, such as ``DscReq`` with an empty body.
    """

    is_response: bool
    type: ParcelType
    id: int
    """Id of the sender."""
    body: NodeInfo | tuple[NodeInfo, ...] | int | None = None
    """Information of the sender (DscReq), neighbours (DscRes, including those in the application data), a sequence
    number (SeqRes), or nothing."""
    data: bytes = b""
    """Application data; empty for a DscRes, whose neighbours are all in :attr:`body`. A ProtoError of this
    implementation has an error message here, in UTF-8."""

    @property
    def identity(self) -> NodeInfo | None:
        """Information of the sender, if the body contains it."""
        return self.body if isinstance(self.body, NodeInfo) else None

    @property
    def neighbours(self) -> tuple[NodeInfo, ...] | None:
        """Neighbours, if the body contains them."""
        return self.body if isinstance(self.body, tuple) and not isinstance(self.body, NodeInfo) else None


# Extension parcels: connections


class Hello(NamedTuple):
    """First extension parcel on a connection, from the dialler. The reply is :class:`Welcome` or :class:`Refused`."""

    cluster: str
    name: str
    """Empty for a client that only publishes."""
    incarnation: int
    cluster_id: int
    """Cluster id, drawn at random when the cluster is bootstrapped; 0 for a node in no cluster."""
    nonce: bytes
    """16 random bytes, new for each connection."""


class Welcome(NamedTuple):
    """Reply to :class:`Hello`."""

    name: str
    incarnation: int
    cluster_id: int
    nonce: bytes
    proof: bytes
    """Keyed digest over Hello and Welcome, 32 bytes; empty if the cluster has no secret."""


class Proof(NamedTuple):
    """Reply to :class:`Welcome`, which proves that the dialler knows the secret. Empty without a secret."""

    proof: bytes


class RefusalReason(IntEnum):
    """Reason why a node refuses a request."""

    WRONG_CLUSTER = 1
    WRONG_SECRET = 2
    NAME_TAKEN = 3
    ID_TAKEN = 4
    OTHER_FOUNDING = 5
    """The cluster id differs. Names of reasons are part of metrics and errors, so this one keeps the old word."""
    TOO_MANY = 6
    NO_QUORUM = 7
    OVERSIZE = 8
    FORGOTTEN = 9
    """The publisher's session was evicted, so duplicates cannot be detected."""
    OUT_OF_ORDER = 10
    SHUTTING_DOWN = 11
    NOT_HELD = 12
    OTHER_BODY = 13
    """The idempotency key was used before with another event."""
    UNEXPECTED = 14
    """The last event is not the one that the publisher expects."""
    NOT_SUPPORTED = 15
    """A member runs a version that does not know what the request asks for."""


class Refused(NamedTuple):
    """Refusal of any request."""

    why: RefusalReason
    text: str
    """Text for people, at most 200 characters."""


class Heartbeat(NamedTuple):
    """Heartbeat, sent each second (document 004, "Work phase")."""

    mode: Mode
    term: int
    sequence: int


# Extension parcels: publishing


class PublisherRun(NamedTuple):
    """Consecutive events of one publisher."""

    publisher: str
    epoch: int
    """Increases when a publisher restarts its numbering. Unordered events of earlier epochs are then never ordered."""
    first: int
    """Publisher's number of the first event. Numbers start at 1 and are consecutive."""
    events: Sequence[bytes]
    """None for a mark in the log: the node that put it there has then applied all that was ordered before."""
    expect: int | None = None
    """Sequence number that the last event before the run must have, or else the run is refused. Only for the first run
    of an epoch, and only if all members announce :data:`CONDITIONS_VERSION`."""


class Publish(NamedTuple):
    """Request to order events. Clients get a :class:`PublishAck`; members learn the result from the log."""

    run: PublisherRun


class PublishAck(NamedTuple):
    """Acknowledgement of ordered events of a :class:`Publish`."""

    publisher: str
    epoch: int
    first: int
    """Publisher's number of the first acknowledged event."""
    sequences: tuple[tuple[int, int], ...]
    """Sequence numbers: first number and count of each contiguous span."""


class PublishNack(NamedTuple):
    """Rejection of a :class:`Publish`, from event ``first`` on."""

    publisher: str
    epoch: int
    first: int
    why: RefusalReason
    text: str


class FetchEvents(NamedTuple):
    """Request for events by sequence number."""

    first: int
    last: int


class Event(NamedTuple):
    """One ordered event."""

    sequence: int
    """Sequence number, from 1 on."""
    publisher: str
    epoch: int
    number: int
    """Publisher's number of the event."""
    data: bytes


class FetchEventsReply(NamedTuple):
    """Reply to :class:`FetchEvents`: as many events as fit, from the lowest requested number that is held."""

    first: int
    """Sequence number of the first event; without events, the lowest that is held."""
    events: Sequence[tuple[str, int, int, bytes]]
    """Publisher, epoch, publisher's number and data of each event."""


class FetchState(NamedTuple):
    """Request for the application's state."""

    sequence: int
    """Sequence number of the state that :attr:`offset` belongs to; 0 for any."""
    offset: int
    """Bytes that the requester has."""


class FetchStateReply(NamedTuple):
    """Reply to :class:`FetchState`: a part of the state, from the beginning if the requested one is gone."""

    sequence: int
    """Number of the last event that the state contains."""
    offset: int
    total: int
    """Size of the state in bytes."""
    held: bool
    """Whether the node has a state that contains all its events. All else is 0 or empty if not."""
    data: bytes


class Dismissal(NamedTuple):
    """Order of the leader to leave the cluster and stop, because the operator removes the receiver."""

    term: int


Message = (
    Parcel
    | Hello
    | Welcome
    | Proof
    | Refused
    | Heartbeat
    | RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendEntriesReply
    | InstallSnapshot
    | InstallSnapshotReply
    | Publish
    | PublishAck
    | PublishNack
    | FetchEvents
    | FetchEventsReply
    | FetchState
    | FetchStateReply
    | StartElection
    | ForcedRequestVote
    | Dismissal
)
