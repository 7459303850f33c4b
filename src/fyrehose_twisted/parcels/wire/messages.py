"""What nodes say to one another: the document's parcels, and next to them those of our own.

A :class:`Parcel` is one of the document's (document 004, "Protocol format"). Every other class here is a parcel of our
own, which is sent only to peers that announced that they know them; see :class:`Extension`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from hashlib import sha256
from typing import NamedTuple

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    RequestVote,
    RequestVoteReply,
)
from fyrehose_twisted.effects import Address

MAX_HEAD = 255
"""Bytes of a parcel before its application data: what its length fits one byte."""
MAX_DATA = 65_535
"""Bytes of application data in one parcel."""
MAX_NAME = 64
"""Bytes of a node's name and of a cluster's, in UTF-8."""
MAX_PUBLISHER = 160
"""Bytes of a publisher's name, in UTF-8."""
MAX_EVENT = 49_152
"""Bytes of one event, so that it and what goes with it fit one parcel."""
MAX_SEQUENCE = 2**63 - 1
"""The highest number that an event can have."""
HEARTBEAT_INTERVAL = 1.0
"""Seconds between signs of life (document 004, "Work phase")."""
NEIGHBOUR_TIMEOUT = 5.0
"""Seconds of silence after which a node is removed (document 004, "Work phase")."""


class Mode(Enum):
    """What a node is at. The values are the reference's names, the order that of its numbers, which begin with 0."""

    WRK = "Wrk"
    DSC = "Dsc"
    ERR = "Err"
    PANIC = "Panic"
    SHUTDOWN = "Shutdown"
    SEQ_RECOVERY = "SeqRecovery"


class ParcelType(Enum):
    """Types of the document's parcels, in the order of the reference's numbers, which begin with 0."""

    DSC_REQ = "DscReq"
    DSC_RES = "DscRes"
    SEQ_REQ = "SeqReq"
    SEQ_RES = "SeqRes"
    PROTO_ERROR = "ProtoError"


def node_id(name: str) -> int:
    """Return the id of a node by its name: the first two bytes of its SHA-256, big endian. Names may share one."""
    return int.from_bytes(sha256(name.encode()).digest()[:2], "big")


class Extension(NamedTuple):
    """What a node of ours adds to its information: that it speaks our own parcels too."""

    version: int
    incarnation: int
    cluster: int
    """CRC-32 of the cluster's name, so that strangers are told apart before they are listed."""


class NodeInfo(NamedTuple):
    """A node's information (document 004, "DscReq")."""

    id: int
    mode: Mode
    name: str
    host: Address
    """IPv4 in dotted form or IPv6 as text, and the port where it listens."""
    ours: Extension | None = None


class Parcel(NamedTuple):
    """A parcel of the document. What does not fit together decodes too, as it does for the reference: a type of
    ``DscReq`` with an empty body, for one."""

    is_response: bool
    type: ParcelType
    id: int
    """Id of the sender."""
    body: NodeInfo | tuple[NodeInfo, ...] | int | None = None
    """The sender's information (DscReq), neighbours (DscRes, those in the application data included), a sequence number
    (SeqRes), or nothing."""
    data: bytes = b""
    """Application data, but for a DscRes, whose neighbours are all in :attr:`body`. A ProtoError of ours says here what
    is wrong, in UTF-8."""

    @property
    def identity(self) -> NodeInfo | None:
        """The sender's information, if that is the body."""
        return self.body if isinstance(self.body, NodeInfo) else None

    @property
    def neighbours(self) -> tuple[NodeInfo, ...] | None:
        """Neighbours, if they are the body."""
        return self.body if isinstance(self.body, tuple) and not isinstance(self.body, NodeInfo) else None


# Of our own: links


class Hello(NamedTuple):
    """The first parcel of our own on a connection, from the one who dialled. It is answered with a :class:`Welcome` or
    a :class:`Refused`."""

    cluster: str
    name: str
    """Empty for one who only publishes."""
    incarnation: int
    founding: int
    """Which cluster of that name: drawn at random when it was founded, or formed anew; 0 for who is in none yet."""
    nonce: bytes
    """16 bytes that are new with each connection."""


class Welcome(NamedTuple):
    """Answers a :class:`Hello`."""

    name: str
    incarnation: int
    founding: int
    nonce: bytes
    proof: bytes
    """Keyed digest of both nonces, 32 bytes; empty where the cluster has no secret."""


class Proof(NamedTuple):
    """Answers a :class:`Welcome`: the dialler knows the secret too. Sent where there is none as well, empty."""

    proof: bytes


class RefusalReason(IntEnum):
    """Why a node will not do what it was asked."""

    WRONG_CLUSTER = 1
    WRONG_SECRET = 2
    NAME_TAKEN = 3
    ID_TAKEN = 4
    OTHER_FOUNDING = 5
    TOO_MANY = 6
    NO_QUORUM = 7
    OVERSIZE = 8
    FORGOTTEN = 9
    """The publisher's earlier events are no longer remembered, so none can be told from a repeat."""
    OUT_OF_ORDER = 10
    SHUTTING_DOWN = 11
    NOT_HELD = 12
    OTHER_BODY = 13
    """The publisher's first event was another one: an idempotency key that was used before."""


class Refused(NamedTuple):
    """Answers whatever will not be done."""

    why: RefusalReason
    text: str
    """For people, at most 200 characters."""


class Heartbeat(NamedTuple):
    """Says each second that its sender lives (document 004, "Work phase")."""

    mode: Mode
    term: int
    sequence: int


# Of our own: one order


class PublisherRun(NamedTuple):
    """Events that one publisher published one after the other."""

    publisher: str
    epoch: int
    """Grows when a publisher begins to count anew; then what it published before and is not in the order never will
    be."""
    first: int
    """What its publisher numbered the first of them, from 1 on; the others follow."""
    events: Sequence[bytes]


# Of our own: events


class Publish(NamedTuple):
    """Wants events ordered. Who only publishes is told with :class:`PublishAck` what became of them; a member learns it
    from the order itself."""

    run: PublisherRun


class PublishAck(NamedTuple):
    """Answers a :class:`Publish`, once its events are in the order, or some of them."""

    publisher: str
    epoch: int
    first: int
    """The publisher's number of the first event that this tells of."""
    sequences: tuple[tuple[int, int], ...]
    """Numbers given, in order: the first, and how many there are one after the other."""


class PublishNack(NamedTuple):
    """Answers a :class:`Publish`: from this event on, none was taken."""

    publisher: str
    epoch: int
    first: int
    why: RefusalReason
    text: str


class FetchEvents(NamedTuple):
    """Asks for events by their numbers in the order."""

    first: int
    last: int


class Event(NamedTuple):
    """One event of the order."""

    sequence: int
    """Its number, from 1 on."""
    publisher: str
    epoch: int
    number: int
    """What its publisher numbered it."""
    data: bytes


class FetchEventsReply(NamedTuple):
    """Answers a :class:`FetchEvents`: as many events as fit, beginning with the lowest of those asked for that is
    held."""

    first: int
    """Number of the first of them; where there is none, the lowest that is held at all."""
    events: Sequence[tuple[str, int, int, bytes]]
    """Publisher, epoch, the publisher's number, and the event."""


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
)
