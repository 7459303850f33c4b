"""What a network does to what travels on it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from random import Random

from fyrehose_twisted.errors import ConfigurationError

MAX_REORDER_DELAY = 0.05
"""Seconds by which, at most, a datagram is held back to be overtaken."""

MAX_CORRUPTED_BYTES = 4

MAX_DATAGRAM_SIZE = 65_507
"""Bytes of the longest datagram: what IPv4 and UDP leave of 65,535."""

PROBABILITIES = ("loss", "duplication", "reordering", "corruption", "truncation")
TIMES = ("delay", "jitter", "tail")


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two hosts. Probabilities go from 0 to 1, times are in seconds, sizes in bytes.

    :ivar up: whether anything passes at all.
    :ivar loss: probability for a datagram, or each of its fragments, to be lost; a stream sends it again.
    :ivar duplication: probability that a datagram arrives twice.
    :ivar reordering: probability that a datagram is held back for up to :data:`MAX_REORDER_DELAY`.
    :ivar delay: the shortest way takes this long.
    :ivar jitter: up to this much is added, evenly spread, so that datagrams overtake one another.
    :ivar tail: mean of an exponentially distributed time that is added too.
    :ivar corruption: probability that a datagram arrives with other bytes than it left with.
    :ivar truncation: probability that a datagram arrives cut, and reported as cut, as by a small receive buffer.
    :ivar checksum: whether a corrupted datagram is dropped, as a UDP checksum has it; off, it is delivered.
    :ivar mtu: longer datagrams travel in fragments, and one that is lost loses them all; ``None`` for no limit.
    :ivar fragments: whether fragments pass; if not, datagrams longer than ``mtu`` are dropped.
    :ivar bandwidth: bytes a second; ``None`` for no limit.
    :ivar queue: bytes that may wait for the bandwidth; a datagram that would make it more is dropped.
    :raises ConfigurationError: if something is none of this.
    """

    up: bool = True
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0
    tail: float = 0.0
    corruption: float = 0.0
    truncation: float = 0.0
    checksum: bool = True
    mtu: int | None = None
    fragments: bool = True
    bandwidth: float | None = None
    queue: int = 65_536

    def __post_init__(self) -> None:
        for name in PROBABILITIES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}; a probability goes from 0 to 1")
        for name in TIMES:
            if not 0.0 <= getattr(self, name) < inf:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}; a time is 0 or more seconds")
        if self.mtu is not None and self.mtu < 1:
            raise ConfigurationError(f"mtu={self.mtu!r}; nothing fits into that: give 1 byte or more, or None")
        if self.bandwidth is not None and not 0.0 < self.bandwidth < inf:
            raise ConfigurationError(f"bandwidth={self.bandwidth!r}; give more than 0 bytes a second, or None")
        if self.queue < 0:
            raise ConfigurationError(f"queue={self.queue!r}; give 0 bytes or more")

    @property
    def is_random(self) -> bool:
        """Whether random numbers decide what happens to a datagram."""
        chances = self.loss, self.duplication, self.reordering, self.jitter, self.tail, self.corruption, self.truncation
        return self.up and any(chances)

    def draw_loss(self, size: int, rng: Random) -> str | None:
        """Draw whether a datagram of ``size`` bytes is lost, and return why."""
        if not self.up:
            return "cut"
        passes = 1.0 - self.loss
        if self.mtu is not None and size > self.mtu:
            if not self.fragments:
                return "mtu"
            passes **= ceil(size / self.mtu)
        return "loss" if passes < 1.0 and rng.random() >= passes else None

    def latency(self, rng: Random) -> float:
        """Draw how long a datagram takes, bandwidth aside."""
        latency = self.delay
        if self.jitter:
            latency += self.jitter * rng.random()
        if self.tail:
            latency += rng.expovariate(1.0 / self.tail)
        if self.reordering and rng.random() < self.reordering:
            latency += MAX_REORDER_DELAY * rng.random()
        return latency


def corrupt(datagram: bytes, rng: Random) -> bytes:
    """Return ``datagram`` with some bytes changed, and at times with its end cut off or something after it.

    What is returned is never equal to ``datagram``.
    """
    garbled = bytearray(datagram)
    changes = min(rng.randrange(1, MAX_CORRUPTED_BYTES + 1), len(garbled))
    for position in rng.sample(range(len(garbled)), changes):
        garbled[position] ^= rng.randrange(1, 256)
    kind = rng.random()
    if kind < 0.2 and garbled:
        del garbled[rng.randrange(len(garbled)) :]
    elif kind < 0.4 or not garbled:
        garbled += rng.randbytes(rng.randrange(1, 64))
    return bytes(garbled)
