"""Recording hosts and a network of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network


@implementer(IDatagramNode)
class Recorder:
    """A node that records its inputs and emits scripted outputs.

    :ivar story: ``("batch", now, datagrams)`` and ``("tick", now)``, as they happened.
    :ivar wanted: what the next drains return; nothing once there is no more.
    :ivar interval: after each tick, the next is wanted so much later; ``None`` for no more.
    """

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.story: list[tuple[Any, ...]] = []
        self.rows: list[tuple[float, bytes, Address, bool]] = []
        self.deadline: float | None = None
        self.interval: float | None = None
        self.wanted: deque[Outputs] = deque()
        self.drains = 0
        self.on_batch: Callable[[Batch, float], object] = lambda batch, now: None
        self.on_tick: Callable[[float], object] = lambda now: None

    def receive_batch(self, batch: Batch, now: float) -> None:
        self.story.append(("batch", now, [bytes(datagram) for datagram, _, _ in batch]))
        self.rows += [(now, bytes(datagram), peer, truncated) for datagram, peer, truncated in batch]
        self.on_batch(batch, now)

    def tick(self, now: float) -> None:
        self.story.append(("tick", now))
        if self.deadline is None or now >= self.deadline:
            self.deadline = None if self.interval is None else now + self.interval
        self.on_tick(now)

    def next_deadline(self) -> float | None:
        return self.deadline

    def drain(self) -> Outputs:
        self.drains += 1
        return self.wanted.popleft() if self.wanted else Outputs(None, [], [])

    @property
    def ticks(self) -> list[float]:
        return [entry[1] for entry in self.story if entry[0] == "tick"]

    @property
    def datagrams(self) -> list[bytes]:
        return [datagram for _, datagram, _, _ in self.rows]


class World:
    """A network of recording nodes, starting at time 0, with an exact latency of 0.25 s.

    :ivar lives: the nodes of each host, one for each start.
    """

    def __init__(self, seed: int = 1, link: Link | None = None, **options: Any) -> None:
        self.network = Network(seed, Link(delay=0.25) if link is None else link, **{"start": 0.0} | options)
        self.lives: dict[str, list[Recorder]] = {}

    def add(self, *names: str, prepare: Callable[[Recorder], object] = lambda node: None) -> list[Host]:
        """Add hosts and start them; ``prepare`` is called with each new node."""
        return list(self._add(names, prepare))

    def _add(self, names: tuple[str, ...], prepare: Callable[[Recorder], object]) -> Iterator[Host]:
        for name in names:
            lives = self.lives.setdefault(name, [])

            def start(boot: Boot, lives: list[Recorder] = lives) -> Recorder:
                lives.append(Recorder(boot))
                prepare(lives[-1])
                return lives[-1]

            number = len(self.network.hosts) + 1
            host = self.network.add(name, (f"10.0.0.{number}", number), start)
            host.start()
            yield host

    def __getitem__(self, name: str) -> Recorder:
        """Return the current or last node of a host."""
        return self.lives[name][-1]

    def address(self, name: str) -> Address:
        return self.network.host(name).address

    def send(self, source: str, to: str, *datagrams: bytes) -> None:
        self.network.send(self.network.host(source), Send(datagrams, (self.address(to),)))

    def got(self, name: str) -> list[bytes]:
        """Return every datagram that arrived at a host, at any of its nodes."""
        return [datagram for node in self.lives[name] for datagram in node.datagrams]

    def dropped(self) -> dict[str, int]:
        """Return the numbers of dropped datagrams by reason."""
        counts = self.network.counters
        return {key.removeprefix("dropped: "): counts[key] for key in counts if key.startswith("dropped: ")}


class MakeWorld(Protocol):
    def __call__(self, seed: int = 1, link: Link | None = None, **options: Any) -> World: ...
