"""Route of stream connections between a host and an address."""

from __future__ import annotations

from hashlib import blake2b
from math import log
from random import Random
from typing import Protocol, cast

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network_core import NetworkCore


class SplitMix64:
    """Random number generator seeded with ``seed``.

    A run may have millions of these, and :class:`random.Random` takes 2.5 kB. This generator supports what
    :meth:`~fyrehose_twisted.sim.link.Link.latency` needs, and little else.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: str) -> None:
        self._state = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest(), "big")

    def random(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        # SplitMix64, by Steele, Lea and Flood.
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return ((state ^ (state >> 31)) >> 11) * 2.0**-53

    def randrange(self, start: int, stop: int) -> int:
        """Return an integer from ``start`` (inclusive) to ``stop`` (exclusive)."""
        return start + int(self.random() * (stop - start))

    def expovariate(self, lambd: float) -> float:
        """Return a number from an exponential distribution with the mean ``1 / lambd``."""
        return -log(1.0 - self.random()) / lambd


class RouteStreams(Protocol):
    """Interface of the stream connections to routes."""

    @property
    def network(self) -> NetworkCore:
        """Network of the connections."""

    def route_rng(self, source: Host, to: Address) -> SplitMix64:
        """Return the random number generator of the direction from ``source`` to ``to``."""


class StreamRoute:
    """Current effect of the network on packets from ``source`` to ``to``.

    Each route draws its own random numbers, independent of all others.
    """

    __slots__ = (
        "_forward_link",
        "_is_delay_only",
        "_return_link",
        "_rng",
        "_streams",
        "_version",
        "network",
        "source",
        "to",
    )

    def __init__(self, streams: RouteStreams, source: Host, to: Address) -> None:
        self.network = streams.network
        self._streams = streams
        self.source = source
        self.to = to
        self._rng: SplitMix64 | None = None
        self._refresh_links()

    def _refresh_links(self) -> None:
        network = self.network
        self._version = network.link_version
        self._forward_link: Link = network.link_between(self.source, self.to)
        answering = network.hosts.get(self.to)
        self._return_link: Link = (
            self._forward_link if answering is None else network.link_between(answering, self.source.address)
        )
        there = self._forward_link
        # Whether the route only delays packets.
        self._is_delay_only = there.up and not (
            there.loss or there.corruption or there.jitter or there.tail or there.reordering or there.bandwidth
        )

    @property
    def link(self) -> Link:
        """Current properties of the link."""
        if self._version != self.network.link_version:
            self._refresh_links()
        return self._forward_link

    @property
    def ack_delay(self) -> float:
        """Delay of an acknowledgement in seconds. Its variation is omitted where it has no effect."""
        return self._return_link.delay

    def is_acknowledged(self) -> bool:
        """Return whether acknowledgements arrive. Single losses are ignored: the next acknowledgement covers them."""
        if self._version != self.network.link_version:
            self._refresh_links()
        return self._return_link.up and self._return_link.loss < 1.0

    def is_lost(self) -> bool:
        """Draw whether a packet sent now is lost. A corrupted packet fails its checksum and counts as lost."""
        link = self.link
        if not link.up or self._is_delay_only:
            return not link.up
        passes = (1.0 - link.loss) * (1.0 - link.corruption)
        return passes < 1.0 and self.rng.random() >= passes

    def latency(self) -> float:
        """Draw the latency of a packet sent now, without the time due to bandwidth."""
        link = self.link
        if not (link.jitter or link.tail or link.reordering):
            return link.delay
        return link.latency(cast(Random, self.rng))

    @property
    def rng(self) -> SplitMix64:
        """Random number generator of this route."""
        if self._rng is None:
            self._rng = self._streams.route_rng(self.source, self.to)
        return self._rng
