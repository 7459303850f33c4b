"""What travels on a stream connection, and how large it may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from fyrehose_twisted.sim.observer import Packet
from fyrehose_twisted.sim.tcp.route import Dice

NOTHING: Any = object()
"""Stands where a packet made no message, or a message came of no packet of its own."""

CUT_TO_TRAVEL = 0.25
"""Probability with which what travels in one piece is cut short."""

CUT_TO_READ = 0.5
"""Probability with which what has arrived is cut once more where it is read."""

SINGLE_BYTES = 0.05
"""Probability with which the first of the bytes that were read are handed over one by one."""

SINGLE_BYTES_AT_MOST = 64


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How stream connections behave. Sizes are in bytes, times in seconds.

    :ivar window: what may be on its way or unread in one direction; the rest waits at the sender.
    :ivar high: when more than this waits, the sender's node is told ``blocked``.
    :ivar low: when less than this waits, it is told ``unblocked``.
    :ivar object_size: what a message counts for where messages travel as objects.
    :ivar segment: the longest that travels in one piece where they travel as bytes.
    :ivar timeout: how long a sender goes without an answer before it gives a connection up.
    :ivar dial_timeout: how long it waits for one to open.
    :raises ValueError: if something is out of range.
    """

    window: int = 65_536
    high: int = 65_536
    low: int = 16_384
    object_size: int = 256
    segment: int = 1_460
    timeout: float = 60.0
    dial_timeout: float = 5.0

    def __post_init__(self) -> None:
        for name in ("window", "object_size", "segment"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)!r}; give 1 byte or more")
        for name in ("timeout", "dial_timeout"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name}={getattr(self, name)!r}; give more than 0 seconds")
        if not self.high >= 0:
            raise ValueError(f"high={self.high!r}; give 0 bytes or more")
        if not 1 <= self.low <= self.high + 1:
            # Otherwise a sender would never be unblocked, or be blocked and unblocked by one and the same size.
            raise ValueError(f"low={self.low!r}; give at least 1 byte, and at most {self.high + 1}, one more than high")


class Mark(Enum):
    """What travels in line with the messages and is none."""

    HELLO = "hello"
    """The dialler's last word in the handshake."""
    BYE = "bye"
    """The sender hung up."""


class Segment:
    """What travels in one piece.

    :ivar data: bytes; the packet of a message that travels as an object; or a mark.
    :ivar ends: packets whose last byte is in ``data``.
    :ivar due: when it arrives; ``None`` while it is lost.
    """

    __slots__ = ("data", "due", "ends", "size")

    def __init__(self, data: bytes | Packet | Mark, size: int, ends: tuple[Packet, ...] = ()) -> None:
        self.data = data
        self.size = size
        self.ends = ends
        self.due: float | None = None

    @property
    def packets(self) -> tuple[Packet, ...]:
        """What is lost with it."""
        return (self.data,) if isinstance(self.data, Packet) else self.ends


def cut_to_travel(packets: Sequence[Packet], longest: int, dice: Dice) -> list[Segment]:
    """Return the bytes of ``packets``, cut without regard to where one ends."""
    data = b"".join([packet.data for packet in packets])
    segments: list[Segment] = []
    start = first = position = 0
    while start < len(data) or not segments:
        size = min(longest, len(data) - start)
        if size > 1 and dice.random() < CUT_TO_TRAVEL:
            size = dice.randrange(1, size)
        start += size
        last = first
        while last < len(packets) and position + len(packets[last].data) <= start:
            position += len(packets[last].data)
            last += 1
        segments.append(Segment(data[start - size : start], size, tuple(packets[first:last])))
        first = last
    return segments


def cut_to_read(data: bytes, rng: Random) -> Iterator[bytes]:
    """Yield ``data`` in the pieces in which a socket may give it."""
    start = 0
    while len(data) - start > 1:
        chance = rng.random()
        if chance < SINGLE_BYTES:
            for _ in range(min(SINGLE_BYTES_AT_MOST, len(data) - start)):
                yield data[start : start + 1]
                start += 1
            continue
        if chance >= CUT_TO_READ:
            break
        size = rng.randrange(1, len(data) - start)
        yield data[start : start + size]
        start += size
    if start < len(data):
        yield data[start:]
