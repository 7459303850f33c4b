"""A datagram network in memory that loses, repeats and delays, and the hosts on it that run real nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import ceil
from random import Random
from typing import Any, NamedTuple

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import IDatagramNode
from fyrehose_twisted.net.batch import Batch
from fyrehose_twisted.sim.scheduler import Scheduler

IDLE_TICKS = 100
"""Ticks at one moment after which a node that still wants another at once is in an endless loop."""


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


class Arriving(NamedTuple):
    """A datagram on its way; they sort by when each really arrives."""

    when: float
    order: int
    datagram: bytes
    source: Address


class Host:
    """One node on the network.

    :ivar node: the node; :meth:`restart` replaces it.
    :ivar up: whether it receives, sends and keeps time; a host that is down loses what arrives.
    :ivar persisted: everything that the node wanted durable, last one last; a restart does not lose it.
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
        self._ticks_now = 0

    def stop(self) -> None:
        """Stop at once, as a crash does: nothing is sent or received until :meth:`restart`."""
        self.up = False
        self._tick_at = None

    def restart(self, node: IDatagramNode | None = None) -> None:
        """Start again, with ``node`` or, as after a long pause, with the one it had."""
        if node is not None:
            self.node = node
        self.up = True
        self._tick_at = None
        self.flush()

    def flush(self) -> None:
        """Do what the node wants, and come back when it wants to be called."""
        if not self.up:
            return
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
            self._tick_at = max(deadline, self.network.now)
            due = self._tick_at
            self.network.scheduler.call_at(due, lambda: self._tick(due))

    def receive(self, arrivals: list[tuple[bytes, Address]]) -> None:
        """Datagrams arrived together."""
        if self.up:
            self._ticks_now = 0
            self.node.receive_batch(Batch.pack(arrivals), self.network.now)
            self.flush()

    def _tick(self, due: float) -> None:
        if due != self._tick_at or not self.up:
            return
        self._tick_at = None
        now = self.network.now
        self.node.tick(now)
        deadline = self.node.next_deadline()
        self._ticks_now = self._ticks_now + 1 if deadline is not None and deadline <= now else 0
        if self._ticks_now > IDLE_TICKS:
            raise RuntimeError(f"{self.node!r} at {self.address} ticks at {now} without end; it wants {deadline}")
        self.flush()


class Network:
    """Hosts, and the links between them.

    :param seed: everything random is drawn from it.
    :param start: virtual time at the start, UTC seconds since 1970.
    :param moment: seconds; what arrives at one host in one such span is handed over together at its end, as it is when
        a busy socket is read. 0: only what arrives at exactly the same time.
    :param split: probability with which what arrives together is cut into two batches between any two datagrams.
    :ivar link: the link between hosts that have none of their own in :attr:`links`.
    :ivar links: links by ``(from, to)``.
    :ivar counts: datagrams ``sent``, ``lost``, ``duplicated``, ``delivered`` and ``unreachable``, and ``batches``.
    :ivar on_send: is told of everything that any host sends, before anything happens to it.
    """

    def __init__(
        self,
        seed: int,
        link: Link | None = None,
        *,
        start: float = 1_000_000.0,
        moment: float = 0.0,
        split: float = 0.0,
    ) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler(start)
        self.link = Link() if link is None else link
        self.links: dict[tuple[Address, Address], Link] = {}
        self.hosts: dict[Address, Host] = {}
        self.counts: Counter[str] = Counter()
        self.on_send: Callable[[Address, Send], None] = lambda source, effect: None
        self._moment = moment
        self._split = split
        self._order = count()
        self._arriving: dict[tuple[float, Address], list[Arriving]] = {}

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
        self.on_send(source, effect)
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
        read_at = ceil(when / self._moment) * self._moment if self._moment else when
        key = (max(read_at, when), peer)
        arriving = self._arriving.get(key)
        if arriving is None:
            arriving = self._arriving[key] = []
            self.scheduler.call_at(key[0], lambda: self._deliver(key))
        arriving.append(Arriving(when, next(self._order), datagram, source))

    def _deliver(self, key: tuple[float, Address]) -> None:
        arriving = sorted(self._arriving.pop(key))
        host = self.hosts.get(key[1])
        if host is None or not host.up:
            self.counts["unreachable"] += len(arriving)
            return
        self.counts["delivered"] += len(arriving)
        batch: list[tuple[bytes, Address]] = []
        for _, _, datagram, source in arriving:
            if batch and self._split and self.rng.random() < self._split:
                self._hand(host, batch)
                batch = []
            batch.append((datagram, source))
        self._hand(host, batch)

    def _hand(self, host: Host, batch: list[tuple[bytes, Address]]) -> None:
        self.counts["batches"] += 1
        host.receive(batch)
