"""Segments of stream connections and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.tcp.route import SplitMix64

NO_VALUE: Any = object()
"""Placeholder for a packet without a message, or a message without its own packet."""

SHORT_SEGMENT_PROBABILITY = 0.25
"""Probability of a short segment."""

SPLIT_READ_PROBABILITY = 0.5
"""Probability of an additional boundary within received data when it is read."""

SINGLE_BYTE_READS_PROBABILITY = 0.05
"""Probability that the first bytes of a read are delivered one by one."""

MAX_SINGLE_BYTE_READS = 64


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits and timeouts of stream connections. Sizes are in bytes, times in seconds.

    :ivar window: maximum bytes in flight or unread in one direction; further bytes are queued at the sender.
    :ivar high: queued bytes above which the sender's node receives ``blocked``.
    :ivar low: queued bytes below which it receives ``unblocked``.
    :ivar object_size: size attributed to a message that travels as an object.
    :ivar segment: maximum size of a segment of bytes.
    :ivar timeout: time without an acknowledgement after which the sender ends the connection.
    :ivar dial_timeout: maximum time of a dial.
    :raises ValueError: if a value is out of range.
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
            # Otherwise a sender would never be unblocked, or be blocked and unblocked at the same size.
            raise ValueError(f"low={self.low!r}; give at least 1 byte, and at most {self.high + 1}, one more than high")


class ControlSegment(Enum):
    """Control segments in the message stream."""

    HELLO = "hello"
    """Final segment of the handshake, sent by the dialler."""
    BYE = "bye"
    """Close by the sender."""


class TcpSegment:
    """Segment of a stream.

    :ivar data: bytes, the packet of a message object, or a control segment.
    :ivar completed_packets: packets whose last byte is in ``data``.
    :ivar due: arrival time; ``None`` while it is lost.
    """

    __slots__ = ("completed_packets", "data", "due", "size")

    def __init__(
        self, data: bytes | SimPacket | ControlSegment, size: int, completed_packets: tuple[SimPacket, ...] = ()
    ) -> None:
        self.data = data
        self.size = size
        self.completed_packets = completed_packets
        self.due: float | None = None

    @property
    def packets(self) -> tuple[SimPacket, ...]:
        """Packets that are lost with the segment."""
        return (self.data,) if isinstance(self.data, SimPacket) else self.completed_packets


def split_into_segments(packets: Sequence[SimPacket], max_size: int, rng: SplitMix64) -> list[TcpSegment]:
    """Return the bytes of ``packets`` as segments, whose boundaries are independent of packet boundaries."""
    data = b"".join([packet.data for packet in packets])
    segments: list[TcpSegment] = []
    start = first = position = 0
    while start < len(data) or not segments:
        size = min(max_size, len(data) - start)
        if size > 1 and rng.random() < SHORT_SEGMENT_PROBABILITY:
            size = rng.randrange(1, size)
        start += size
        last = first
        while last < len(packets) and position + len(packets[last].data) <= start:
            position += len(packets[last].data)
            last += 1
        segments.append(TcpSegment(data[start - size : start], size, tuple(packets[first:last])))
        first = last
    return segments


def split_for_reading(data: bytes, rng: Random) -> Iterator[bytes]:
    """Yield ``data`` in pieces as read from a socket."""
    start = 0
    while len(data) - start > 1:
        chance = rng.random()
        if chance < SINGLE_BYTE_READS_PROBABILITY:
            for _ in range(min(MAX_SINGLE_BYTE_READS, len(data) - start)):
                yield data[start : start + 1]
                start += 1
            continue
        if chance >= SPLIT_READ_PROBABILITY:
            break
        size = rng.randrange(1, len(data) - start)
        yield data[start : start + size]
        start += size
    if start < len(data):
        yield data[start:]
