"""The way from a host to an address and back, as stream connections see it."""

from __future__ import annotations

from hashlib import blake2b
from math import log
from random import Random
from typing import Protocol, cast

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network_core import NetworkCore


class Dice:
    """Random numbers from ``seed``.

    There may be millions of these, and :class:`random.Random` takes 2.5 kB. This one can do what
    :meth:`~fyrehose_twisted.sim.link.Link.latency` asks for, and little else.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: str) -> None:
        self._state = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest(), "big")

    def random(self) -> float:
        """Return a number from 0 to 1, which is never 1."""
        # SplitMix64, by Steele, Lea and Flood.
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return ((state ^ (state >> 31)) >> 11) * 2.0**-53

    def randrange(self, start: int, stop: int) -> int:
        """Return a whole number from ``start`` up to, but not including, ``stop``."""
        return start + int(self.random() * (stop - start))

    def expovariate(self, lambd: float) -> float:
        """Return a number from an exponential distribution with the mean ``1 / lambd``."""
        return -log(1.0 - self.random()) / lambd


class RouteStreams(Protocol):
    """The stream connections whose messages travel on routes."""

    @property
    def network(self) -> NetworkCore:
        """The network that they are on."""

    def dice(self, source: Host, to: Address) -> Dice:
        """Return random numbers for what travels from ``source`` to ``to`` alone."""


class Route:
    """Tells what the network does to what travels from ``source`` to ``to`` now.

    What is drawn for one route does not depend on what is drawn elsewhere.
    """

    __slots__ = ("_back", "_calm", "_dice", "_streams", "_there", "_version", "network", "source", "to")

    def __init__(self, streams: RouteStreams, source: Host, to: Address) -> None:
        self.network = streams.network
        self._streams = streams
        self.source = source
        self.to = to
        self._dice: Dice | None = None
        self._look()

    def _look(self) -> None:
        network = self.network
        self._version = network.version
        self._there: Link = network.link_between(self.source, self.to)
        answering = network.hosts.get(self.to)
        self._back: Link = self._there if answering is None else network.link_between(answering, self.source.address)
        there = self._there
        # Whether all that happens on the way is that time passes.
        self._calm = there.up and not (
            there.loss or there.corruption or there.jitter or there.tail or there.reordering or there.bandwidth
        )

    @property
    def link(self) -> Link:
        """What the way there is like."""
        if self._version != self.network.version:
            self._look()
        return self._there

    @property
    def answer_delay(self) -> float:
        """Seconds that an answer takes. That they vary is left out where it makes no difference."""
        return self._back.delay

    def is_answered(self) -> bool:
        """Say whether answers come back. That one is lost now and then is left out: the next one makes up for it."""
        if self._version != self.network.version:
            self._look()
        return self._back.up and self._back.loss < 1.0

    def is_lost(self) -> bool:
        """Draw whether what sets out now is lost; what is garbled fails a checksum, which is the same."""
        link = self.link
        if not link.up or self._calm:
            return not link.up
        passes = (1.0 - link.loss) * (1.0 - link.corruption)
        return passes < 1.0 and self.dice.random() >= passes

    def latency(self) -> float:
        """Draw how long what sets out now takes, bandwidth aside."""
        link = self.link
        if not (link.jitter or link.tail or link.reordering):
            return link.delay
        return link.latency(cast(Random, self.dice))

    @property
    def dice(self) -> Dice:
        """Random numbers for this route alone."""
        if self._dice is None:
            self._dice = self._streams.dice(self.source, self.to)
        return self._dice
