"""A datagram network in memory that loses, repeats and delays, and the hosts on it that run real nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import IDatagramNode
from fyrehose_twisted.net.batch import Batch
from fyrehose_twisted.sim.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Link:
    """What happens to a datagram on its way. Probabilities from 0 to 1, times in seconds.

    :ivar delay: the shortest way takes this long.
    :ivar jitter: up to this much is added at random, so that datagrams overtake one another.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0


class Host:
    """One node on the network.

    :ivar node: the node; replace it to restart the host.
    :ivar up: whether it receives and sends; a host that is down loses what arrives.
    :ivar persisted: everything that the node wanted durable, last one last.
    :ivar events: everything that the node told its application.
    """

    def __init__(self, network: Network, address: Address, node: IDatagramNode) -> None:
        self.network = network
        self.address = address
        self.node = node
        self.up = True
        self.persisted: list[Any] = []
        self.events: list[Any] = []
        self.on_event: Callable[[Any], None] = self.events.append
        self._tick_at: float | None = None

    def flush(self) -> None:
        """Do what the node wants, and come back when it wants to be called."""
        while True:
            persist, effects, events = self.node.drain()
            if persist is not None:
                self.persisted.append(persist)
            for effect in effects:
                self.network.send(self.address, effect)
            for event in events:
                self.on_event(event)
            if not events:
                break
        deadline = self.node.next_deadline()
        if deadline is not None and (self._tick_at is None or deadline < self._tick_at):
            self._tick_at = max(deadline, self.network.scheduler.now)
            due = self._tick_at
            self.network.scheduler.call_at(due, lambda: self._tick(due))

    def receive(self, arrivals: list[tuple[bytes, Address]]) -> None:
        """Datagrams arrived together."""
        if self.up:
            self.node.receive_batch(Batch.pack(arrivals), self.network.scheduler.now)
            self.flush()

    def _tick(self, due: float) -> None:
        if due != self._tick_at:
            return
        self._tick_at = None
        if self.up:
            self.node.tick(self.network.scheduler.now)
            self.flush()


class Network:
    """Hosts, and the links between them.

    :param seed: everything random is drawn from it.
    :param start: virtual time at the start, UTC seconds since 1970.
    :ivar link: the link between hosts that have none of their own in :attr:`links`.
    :ivar links: links by ``(from, to)``.
    :ivar counts: datagrams ``sent``, ``lost``, ``duplicated``, ``delivered`` and ``unreachable``.
    """

    def __init__(self, seed: int, link: Link | None = None, *, start: float = 1_000_000.0) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler(start)
        self.link = Link() if link is None else link
        self.links: dict[tuple[Address, Address], Link] = {}
        self.hosts: dict[Address, Host] = {}
        self.counts: Counter[str] = Counter()
        self._arriving: dict[tuple[float, Address], list[tuple[bytes, Address]]] = {}

    @property
    def now(self) -> float:
        """Virtual time, UTC seconds since 1970."""
        return self.scheduler.now

    def add(self, address: Address, node: IDatagramNode) -> Host:
        """Put a node on the network and start it."""
        host = self.hosts[address] = Host(self, address, node)
        host.flush()
        return host

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now + seconds)

    def send(self, source: Address, effect: Send) -> None:
        """Send copies of the datagrams of ``effect`` on their way."""
        for peer in effect.peers:
            link = self.links.get((source, peer), self.link)
            for datagram in effect.datagrams:
                self.counts["sent"] += 1
                if self.rng.random() < link.loss:
                    self.counts["lost"] += 1
                    continue
                copies = 1
                if self.rng.random() < link.duplication:
                    self.counts["duplicated"] += 1
                    copies = 2
                for _ in range(copies):
                    delay = link.delay + link.jitter * self.rng.random()
                    self._arrive(self.now + delay, peer, bytes(datagram), source)

    def _arrive(self, when: float, peer: Address, datagram: bytes, source: Address) -> None:
        # What arrives at one moment at one host is one batch, as it is when a socket is read.
        key = (when, peer)
        arriving = self._arriving.get(key)
        if arriving is None:
            self._arriving[key] = [(datagram, source)]
            self.scheduler.call_at(when, lambda: self._deliver(key))
        else:
            arriving.append((datagram, source))

    def _deliver(self, key: tuple[float, Address]) -> None:
        arrivals = self._arriving.pop(key)
        host = self.hosts.get(key[1])
        if host is None or not host.up:
            self.counts["unreachable"] += len(arrivals)
            return
        self.counts["delivered"] += len(arrivals)
        host.receive(arrivals)
