"""The packets of both fyrehose dialects (documents 000 and 001), one frozen class each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from fyrehose_twisted.effects import Address

MAX_SEQUENCE = 2**48 - 1
"""The highest number that SEQUENCE can hold; a backbone stops there instead of wrapping."""

MAX_DATA = 65_526
"""DATA as the documents allow it, in bytes."""

MAX_DELIVERABLE = 65_498
"""DATA as IPv4 UDP can carry it in a DELIVER, in bytes: 65,507 less the header of 9."""

ANY_ADDRESS: Address = ("0.0.0.0", 0)
"""In ADDR and PORT: wherever this packet came from."""


class PacketType(IntEnum):
    """The first byte of a packet. Every value is a single bit; :data:`CONFIRM` is the one left over."""

    DELIVER = 0x01
    PUSH = 0x02
    REQUEST = 0x04
    FORWARD = 0x08
    KEEPALIVE = 0x10
    KEEPALIVE_ACK = 0x20


CONFIRM = 0x80
"""Set in the type byte of a PUSH whose sender wants the DELIVER back at its own address (001, rule 5)."""


class Flags(IntFlag):
    """FLAGS of a KEEPALIVE (000)."""

    NONE = 0
    NOSUBSCRIBE = 0x1
    NOJOURNAL = 0x2


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


Packet = Deliver | Push | Request | Forward | Keepalive | KeepaliveAck
