"""Packet classes of both fyrehose dialects (documents 000 and 001)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from fyrehose_twisted.effects import Address

MAX_SEQUENCE = 2**48 - 1
"""Highest number that SEQUENCE can hold. A backbone stops there instead of wrapping around."""

MAX_DATA = 65_526
"""Maximum size of DATA in bytes according to the documents."""

MAX_DELIVERABLE = 65_498
"""Maximum size in bytes of DATA that a DELIVER can carry over IPv4: 65,507 less the header of 9."""

ANY_ADDRESS: Address = ("0.0.0.0", 0)
"""ADDR and PORT that stand for the source of the packet."""


TOKEN_SIZE = 16
"""Size of a TOKEN in bytes."""

MAX_HOLDINGS = 16
"""Maximum number of journals in one STATUS."""

MAX_MEMBERS = 7
"""Maximum number of backbones in one LEADER."""


class PacketType(IntEnum):
    """First byte of a packet. In the documents each type is a single bit; the remaining bit is :data:`CONFIRM`.

    The types of two bits are extensions of this library. Only clients with one of its FLAGS receive them.
    """

    DELIVER = 0x01
    PUSH = 0x02
    REQUEST = 0x04
    FORWARD = 0x08
    KEEPALIVE = 0x10
    KEEPALIVE_ACK = 0x20
    EXTENSION = 0x40
    """Extension of this library, sent only to peers that set a flag of this library."""
    FETCHED = 0x41
    """DELIVER of another client, which the backbone passes on."""
    REQUEST6 = 0x44
    """REQUEST whose ADDR is an IPv6 address."""
    FORWARD6 = 0x48
    """FORWARD whose ADDR is an IPv6 address."""
    KEEPALIVE6 = 0x50
    """KEEPALIVE of version 2 whose ADDR is an IPv6 address."""


MAC_SIZE = 16
"""Size of a MAC in bytes. Of 8 bytes, a sender of 10 million forgeries a second would hit one in 60,000 years for a
single message, but one of a thousand receivers in 60 years; with 16 bytes, no rate matters."""

WITH_MAC = 0x80
"""Extension: bit in the type byte of a DELIVER, FETCHED or KEEPALIVE-ACK with a MAC, and of a FORWARD that asks for
DELIVERs with MACs. Only clients with the flag :attr:`Flags.MAC` receive them, and those that repair such clients send
them."""


CONFIRM = 0x80
"""Bit in the type byte of a PUSH that requests the DELIVER at the sender's own address (001, rule 5)."""


PUSH_HOPS = int.from_bytes(b"RELAY\0")
"""Extension: what a relay writes into the unused bytes of a PUSH of version 2, plus the number of relays so far. What
clients leave there is arbitrary, and thus not taken for it."""


AGAIN = 0x40
"""Extension: bit in the type byte of a retransmitted PUSH. A backbone that has numbered the message recently assigns no
second number and sends the DELIVER again."""


class Flags(IntFlag):
    """FLAGS of a KEEPALIVE: two of document 000, and those of this library, which other implementations ignore."""

    NONE = 0
    NOSUBSCRIBE = 0x1
    NOJOURNAL = 0x2
    DURABLE = 0x4
    """The client stores the stream in a durable journal and reports its progress with HOLDS."""
    EXTENSIONS = 0x8
    """The client understands STATUS, ASKED and LEADER."""
    WATCHES = 0x10
    """The client requests a STATUS whenever a journal has synced more of the stream."""
    IPV4 = 0x20
    """The client can send to IPv4 addresses, and understands FORWARD6 and FETCHED."""
    IPV6 = 0x40
    """The client can send to IPv6 addresses, and understands FORWARD6 and FETCHED."""
    RELAY = 0x80
    """The client is a relay, which is told by DEPTH how far the sender is from the backbone."""
    MULTICAST = 0x100
    """The client can listen to a multicast group, and is told by GROUP of the one that the backbone sends to."""
    HEARS = 0x200
    """The client hears that group, so it needs no DELIVERs of its own."""
    MAC = 0x400
    """The client has the shared secret, and wants a MAC in each DELIVER."""


class Dialect(IntEnum):
    """Document that a packet follows."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class Deliver:
    """Numbered message, sent by the backbone, or by a client as a repair."""

    sequence: int
    data: bytes
    fetched: bool = False
    """Extension: a repair of another client, which the backbone passes on."""
    mac: bytes = b""
    """Extension: MAC of 16 bytes; ``b""`` for a packet without."""


@dataclass(frozen=True, slots=True)
class Push:
    """Message to be published."""

    data: bytes
    dialect: Dialect = Dialect.V2
    confirm: bool = False
    again: bool = False
    """Extension: this is a retransmission."""
    hops: int = 0
    """Extension: number of relays that have passed it on, at most 255."""


@dataclass(frozen=True, slots=True)
class Request:
    """Repair request of the client at ``address`` for ``first`` to ``last``, both inclusive."""

    address: Address
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Forward:
    """REQUEST that the backbone forwards to a client, which answers directly to ``address``."""

    address: Address
    first: int
    last: int
    mac: bool = False
    """Extension: answer with MACs."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Keepalive of a client that receives at ``address``. Version 1 has neither flags nor a token (``b""``)."""

    address: Address = ANY_ADDRESS
    flags: int = Flags.NONE
    token: bytes = bytes(16)
    dialect: Dialect = Dialect.V2


@dataclass(frozen=True, slots=True)
class KeepaliveAck:
    """Answer of the backbone with the token of the KEEPALIVE; ``b""`` in version 1.

    Extension: to a client that wants MACs, it names the id of the stream, of 16 bytes, and has a MAC over the token
    under the key of that stream.
    """

    token: bytes
    stream_id: bytes = b""
    mac: bytes = b""


class Holding(NamedTuple):
    """Range of numbers that one durable journal has synced without a gap."""

    since: int
    """First number of the range: the journal has lost no message after it."""
    durable: int
    """Last number that survives a power failure; ``since - 1`` for an empty range."""

    def keeps(self, sequence: int) -> bool:
        """Return whether ``sequence`` is certainly durable."""
        return self.since <= sequence <= self.durable


def ranges_kept_by(required: int, holdings: Sequence[Holding]) -> list[tuple[int, int]]:
    """Return the ranges that at least ``required`` of the ``holdings`` keep, in order.

    Holdings of one journal do not overlap, so they count as the journals do. An empty one keeps nothing.
    """
    edges = []
    for since, durable in holdings:
        if since <= durable:
            edges += [(since, 1), (durable + 1, -1)]
    ranges, kept, first = [], 0, 0
    for at, change in sorted(edges):
        if kept < required <= kept + change:
            first = at
        elif kept + change < required <= kept:
            ranges.append((first, at - 1))
        kept += change
    return ranges


@dataclass(frozen=True, slots=True)
class Holds:
    """Extension: progress report of a durable journal.

    :ivar token: token of its latest KEEPALIVE.
    :ivar oldest: first number in the journal.
    :ivar reached: number up to which it has all messages numbered since it joined, durable or not; 0 if unknown.
    """

    token: bytes
    oldest: int
    holding: Holding
    reached: int = 0

    def covers(self, sequence: int) -> bool:
        """Return whether this journal has synced ``sequence``, unless the number is lost before ``holding.since``."""
        return self.oldest <= sequence <= self.holding.durable


@dataclass(frozen=True, slots=True)
class Status:
    """Extension: report of the backbone on its stream.

    :ivar token: token of the client's latest KEEPALIVE.
    :ivar oldest: oldest number that a durable journal holds; 0 if there is none.
    :ivar last: last assigned number; 0 if none was assigned since the backbone started.
    :ivar holdings: progress of at most :data:`MAX_HOLDINGS` durable journals.
    """

    token: bytes
    oldest: int
    last: int
    holdings: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """Extension: progress of the backbone in forwarding a REQUEST.

    :ivar token: token of the client's latest KEEPALIVE.
    :ivar left: number of clients that may hold ``first`` to ``last`` and were not asked yet.
    """

    token: bytes
    first: int
    last: int
    left: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Extension: report of a member of a group of backbones on the member that leads the stream.

    :ivar token: token of the client's latest KEEPALIVE to the sender.
    :ivar term: latest term that the sender knows of.
    :ivar leader: address at which the leader of the term serves clients; :data:`ANY_ADDRESS` if none is known.
    :ivar asks_head: the sender leads and waits for a HEAD of the client before it assigns the first number of the term.
    :ivar members: addresses of the members that serve clients, at most :data:`MAX_MEMBERS`.
    """

    token: bytes
    term: int
    leader: Address = ANY_ADDRESS
    asks_head: bool = False
    members: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """Extension: answer of a client to a LEADER that asks for it.

    :ivar token: token of the client's latest KEEPALIVE to the leader.
    :ivar term: term of the LEADER.
    :ivar highest: highest number that the client holds; 0 if it holds none.
    """

    token: bytes
    term: int
    highest: int


@dataclass(frozen=True, slots=True)
class Depth:
    """Extension: distance of a relay from the backbone, for the relays that it serves.

    :ivar token: token of the receiver's latest KEEPALIVE.
    :ivar depth: number of relays from the backbone to the sender, including the sender: 1 to 255.
    """

    token: bytes
    depth: int


@dataclass(frozen=True, slots=True)
class Group:
    """Extension: multicast group to which the backbone sends DELIVERs.

    :ivar token: token of the receiver's latest KEEPALIVE.
    :ivar address: address and port of the group.
    """

    token: bytes
    address: Address


@dataclass(frozen=True, slots=True)
class Beacon:
    """Extension: sign of life that the backbone sends to its multicast group.

    :ivar listeners: number of clients that have told that they hear the group.
    """

    listeners: int


Extension = Holds | Status | Asked | Leader | Head | Depth | Group | Beacon
Packet = Deliver | Push | Request | Forward | Keepalive | KeepaliveAck | Extension
