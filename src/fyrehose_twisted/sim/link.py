"""Properties of simulated links: loss, delay, corruption, MTU, bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from random import Random

from fyrehose_twisted.errors import ConfigurationError

MAX_REORDER_DELAY = 0.05
"""Maximum seconds by which reordering delays a datagram."""

MAX_CORRUPTED_BYTES = 4

MAX_DATAGRAM_SIZE = 65_507
"""Maximum payload of a UDP datagram over IPv4, in bytes."""

PROBABILITIES = ("loss", "duplication", "reordering", "corruption", "truncation")
TIMES = ("delay", "jitter", "tail")


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link between two hosts. Probabilities go from 0 to 1, times are in seconds, sizes in bytes.

    :ivar up: whether the link passes packets at all.
    :ivar loss: loss probability per datagram or fragment; streams retransmit.
    :ivar duplication: probability that a datagram arrives twice.
    :ivar reordering: probability that a datagram is delayed by up to :data:`MAX_REORDER_DELAY`.
    :ivar delay: minimum latency.
    :ivar jitter: maximum of a uniformly distributed extra delay, which reorders datagrams.
    :ivar tail: mean of an exponentially distributed extra delay.
    :ivar corruption: probability that bytes of a datagram change.
    :ivar truncation: probability that a datagram arrives truncated and reported as such, as with a small receive
        buffer.
    :ivar checksum: whether corrupted datagrams are dropped, as by the UDP checksum; otherwise they are delivered.
    :ivar mtu: longer datagrams are fragmented, and the loss of one fragment loses the datagram; ``None`` for no limit.
    :ivar fragments: whether fragments pass; if not, datagrams longer than ``mtu`` are dropped.
    :ivar bandwidth: bytes per second; ``None`` for no limit.
    :ivar queue: bytes that may wait for bandwidth; datagrams beyond it are dropped.
    :raises ConfigurationError: if a value is out of range.
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
            raise ConfigurationError(f"mtu={self.mtu!r}; give 1 byte or more, or None")
        if self.bandwidth is not None and not 0.0 < self.bandwidth < inf:
            raise ConfigurationError(f"bandwidth={self.bandwidth!r}; give more than 0 bytes a second, or None")
        if self.queue < 0:
            raise ConfigurationError(f"queue={self.queue!r}; give 0 bytes or more")

    @property
    def is_random(self) -> bool:
        """Whether the link has any random behaviour."""
        chances = self.loss, self.duplication, self.reordering, self.jitter, self.tail, self.corruption, self.truncation
        return self.up and any(chances)

    def draw_loss(self, size: int, rng: Random) -> str | None:
        """Draw the loss of a datagram of ``size`` bytes; return the reason, or ``None`` if it passes."""
        if not self.up:
            return "cut"
        passes = 1.0 - self.loss
        if self.mtu is not None and size > self.mtu:
            if not self.fragments:
                return "mtu"
            passes **= ceil(size / self.mtu)
        return "loss" if passes < 1.0 and rng.random() >= passes else None

    def latency(self, rng: Random) -> float:
        """Draw the latency of a datagram, without the time due to bandwidth."""
        latency = self.delay
        if self.jitter:
            latency += self.jitter * rng.random()
        if self.tail:
            latency += rng.expovariate(1.0 / self.tail)
        if self.reordering and rng.random() < self.reordering:
            latency += MAX_REORDER_DELAY * rng.random()
        return latency


def corrupt(datagram: bytes, rng: Random) -> bytes:
    """Return ``datagram`` with some bytes changed, and sometimes truncated or extended.

    The result always differs from ``datagram``.
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
