"""Custom protocol in the simulator: hosts that gossip until all of them know every rumour.

    fyrehose simulate examples.gossip:Rumours --seeds 20

With EACH_ONCE set to True, the same command shows which rumour was lost, on which host, and the seed to reproduce it.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.invariants import Invariant
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

EACH_ONCE = False
"""Send each rumour to each host only once: cheaper, but wrong if datagrams are lost."""


@implementer(IDatagramNode)
class Gossip:
    """Node that sends its rumours to a random host once a second."""

    def __init__(self, others: Iterable[Address], rng: Random, now: float) -> None:
        self.rumours: set[bytes] = set()
        self._others = list(others)
        self._sent: set[tuple[Address, bytes]] = set()
        self._rng = rng
        self._next_at = now + 1.0
        self._effects: list[Send] = []

    def hear(self, rumour: bytes) -> None:
        """Add a rumour of the application."""
        self.rumours.add(rumour)

    def receive_batch(self, batch: Batch, now: float) -> None:
        """Add rumours from other hosts."""
        self.rumours.update(bytes(datagram) for datagram, _, _ in batch)

    def tick(self, now: float) -> None:
        """Send rumours if they are due."""
        if now < self._next_at:
            return
        self._next_at = now + 1.0
        other = self._rng.choice(self._others)
        rumours = [rumour for rumour in sorted(self.rumours) if (other, rumour) not in self._sent]
        if EACH_ONCE:
            self._sent.update((other, rumour) for rumour in rumours)
        if rumours:
            self._effects.append(Send(rumours, (other,)))

    def next_deadline(self) -> float:
        """Return the time of the next tick."""
        return self._next_at

    def drain(self) -> Outputs:
        """Return the pending effects."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])


class EverybodyKnows(Invariant):
    """At the end every host knows every rumour."""

    name = "everybody knows"

    def check(self) -> None:
        """Compare the rumours of all hosts."""
        hosts = list(self.network.hosts.values())
        known = set[bytes]().union(*(host.node.rumours for host in hosts))
        for host in hosts:
            for rumour in sorted(known - host.node.rumours):
                self.violated(f"{rumour.decode()} is not known here", host)


class Rumours(Scenario):
    """Hosts that gossip over links that fail and lose datagrams."""

    name = "examples.gossip:Rumours"
    duration = 60.0

    def build(self) -> None:
        """Add six hosts, and forty rumours that start at random hosts."""
        addresses = [(f"10.0.0.{number}", 1) for number in range(1, 7)]
        for number, address in enumerate(addresses, 1):
            others = [other for other in addresses if other != address]
            rng = Random(self.rng.getrandbits(64))
            self.network.add(
                f"host-{number}", address, lambda boot, others=others, rng=rng: Gossip(others, rng, boot.now)
            )
        for number in range(40):
            self.network.call_in(self.rng.uniform(1, self.duration), lambda number=number: self.spread(number))
        self.add_invariant(EverybodyKnows(self.network))

    def spread(self, number: int) -> None:
        """Start a rumour at a random host."""
        host = self.rng.choice(list(self.network.hosts.values()))
        rumour = b"rumour %d" % number
        self.operate(host, f"hear {rumour.decode()}", lambda node, now: node.hear(rumour))

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """Draw twenty faults."""
        names = [host.name for host in self.network.hosts.values()]
        kinds = [
            (1.0, fault_generators.cuts(names)),
            (2.0, fault_generators.bad_links(names)),
            (1.0, fault_generators.pauses(names)),
        ]
        return FaultSchedule.draw(rng, 20, until=self.duration, kinds=kinds)

    def finish(self) -> None:
        """Run long enough for all rumours to spread."""
        self.network.run(60.0)

    def describe(self, thing: Any) -> str:
        """Return a rumour as text for traces."""
        return thing.decode() if isinstance(thing, bytes) else str(thing)
