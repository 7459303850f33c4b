"""The packets of both fyrehose dialects (documents 000 and 001), one frozen class each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

from fyrehose_twisted.effects import Address

MAX_SEQUENCE = 2**48 - 1
"""The highest number that SEQUENCE can hold; a backbone stops there instead of wrapping."""

MAX_DATA = 65_526
"""DATA as the documents allow it, in bytes."""

MAX_DELIVERABLE = 65_498
"""DATA as IPv4 UDP can carry it in a DELIVER, in bytes: 65,507 less the header of 9."""

ANY_ADDRESS: Address = ("0.0.0.0", 0)
"""In ADDR and PORT: wherever this packet came from."""


TOKEN_SIZE = 16
"""Bytes of a TOKEN."""

MAX_HOLDINGS = 16
"""Journals that one STATUS describes at most."""


class PacketType(IntEnum):
    """The first byte of a packet. Every value is a single bit; :data:`CONFIRM` is the one that is no type."""

    DELIVER = 0x01
    PUSH = 0x02
    REQUEST = 0x04
    FORWARD = 0x08
    KEEPALIVE = 0x10
    KEEPALIVE_ACK = 0x20
    EXTENSION = 0x40
    """Of this library, and sent to none but those that set a flag of this library: HOLDS, STATUS and ASKED."""


CONFIRM = 0x80
"""Set in the type byte of a PUSH whose sender wants the DELIVER back at its own address (001, rule 5)."""


AGAIN = 0x40
"""Extension: set in the type byte of a PUSH that was sent before. A backbone that has numbered the message lately gives
no second number, and sends the DELIVER again."""


class Flags(IntFlag):
    """FLAGS of a KEEPALIVE: two of document 000, and this library's own, which other implementations ignore."""

    NONE = 0
    NOSUBSCRIBE = 0x1
    NOJOURNAL = 0x2
    DURABLE = 0x4
    """The client keeps the stream in a durable journal, and says with HOLDS what it has."""
    EXTENSIONS = 0x8
    """The client understands STATUS and ASKED."""
    WATCHES = 0x10
    """The client wants a STATUS whenever a journal has made more of the stream durable."""


class Dialect(IntEnum):
    """Which document a packet follows."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class Deliver:
    """A numbered message: from the backbone when published, from another client when repaired."""

    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Push:
    """A message to be published."""

    data: bytes
    dialect: Dialect = Dialect.V2
    confirm: bool = False
    again: bool = False
    """Extension: it was sent before."""


@dataclass(frozen=True, slots=True)
class Request:
    """A client at ``address`` misses ``first`` to ``last``, both inclusive."""

    address: Address
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Forward:
    """The backbone passes a REQUEST on: answer to ``address`` directly."""

    address: Address
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Keepalive:
    """A client is alive and listens at ``address``. Version 1 has neither flags nor a token (``b""``)."""

    address: Address = ANY_ADDRESS
    flags: int = Flags.NONE
    token: bytes = bytes(16)
    dialect: Dialect = Dialect.V2


@dataclass(frozen=True, slots=True)
class KeepaliveAck:
    """The backbone's answer, with the token of the KEEPALIVE; ``b""`` in version 1."""

    token: bytes


class Holding(NamedTuple):
    """What one durable journal has."""

    since: int
    """From here on it lost nothing."""
    durable: int
    """Up to here all of it would survive a power failure; ``since - 1`` for nothing."""

    def keeps(self, sequence: int) -> bool:
        """Say whether ``sequence`` is durable for certain."""
        return self.since <= sequence <= self.durable


@dataclass(frozen=True, slots=True)
class Holds:
    """Extension: a journal tells its backbone what it has.

    :ivar token: that of its latest KEEPALIVE.
    :ivar oldest: the first number that it keeps.
    :ivar reached: it has all that was numbered since it joined up to here, durable or not; 0 before it knows.
    """

    token: bytes
    oldest: int
    holding: Holding
    reached: int = 0

    def covers(self, sequence: int) -> bool:
        """Say whether this journal has made ``sequence`` durable, unless it lost it before ``holding.since``."""
        return self.oldest <= sequence <= self.holding.durable


@dataclass(frozen=True, slots=True)
class Status:
    """Extension: the backbone tells a client where its stream is.

    :ivar token: that of the client's latest KEEPALIVE.
    :ivar oldest: the oldest number that a durable journal has; 0 if there is none.
    :ivar last: the last number given; 0 if none has been since the backbone started.
    :ivar holdings: of the durable journals, :data:`MAX_HOLDINGS` at most.
    """

    token: bytes
    oldest: int
    last: int
    holdings: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """Extension: the backbone tells a client how far it has got with its REQUEST.

    :ivar token: that of the client's latest KEEPALIVE.
    :ivar left: clients that may hold ``first`` to ``last`` and have not been asked yet.
    """

    token: bytes
    first: int
    last: int
    left: int


Extension = Holds | Status | Asked
Packet = Deliver | Push | Request | Forward | Keepalive | KeepaliveAck | Extension
