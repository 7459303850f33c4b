"""Network in memory that records every input of its nodes, and a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from twisted.internet.task import Clock

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.driver import NodeDriver
from fyrehose_twisted.effects import Address, Close, Dial, Peer, Send, Write

HOP = 1e-4
"""Seconds that everything spends on the network."""
STEP = 1e-3
"""Longest time in seconds by which a timer is late."""
SETUP = -1
"""Message to which the inputs belong before the first."""


class Timeline(Clock):
    """Clock of nodes under test."""

    def move(self, to: float) -> None:
        """Set the clock and call what has become due. A sum of steps would be inexact."""
        self.rightNow = max(self.rightNow, to)
        self.advance(0)


class Input(NamedTuple):
    """Call of one method of a host."""

    at: float
    message: int
    method: str
    arguments: tuple[Any, ...]


class Host:
    """A node with its driver.

    :param send: takes the output for the network; replays pass a function that does nothing.
    :ivar inputs: recorded inputs.
    :ivar events: number of messages, events or acknowledgements that reached the application.
    """

    def __init__(self, node: Any, clock: Timeline, send: Callable[..., None]) -> None:
        self.node = node
        self.clock = clock
        self.send = send
        self.inputs: list[Input] = []
        self.events = 0
        self.driver = NodeDriver(
            node, clock, perform=self.perform, on_event=self.on_event, persist=self.persist, on_effects_done=self.wrote
        )
        self.driver.flush()

    def prepare(self, method: str, arguments: tuple[Any, ...]) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return the call for an input, with the work done that a socket does."""
        return getattr(self, method), arguments

    def record(self, message: int, method: str, *arguments: Any) -> None:
        """Record an input and apply it."""
        self.inputs.append(Input(self.clock.seconds(), message, method, arguments))
        call, prepared = self.prepare(method, arguments)
        call(*prepared)

    def perform(self, effect: Any) -> None:
        """Carry out an effect."""
        raise NotImplementedError

    def on_event(self, event: Any) -> None:
        """Count what reaches the application, and read it as an application would."""

    def persist(self, mark: Any) -> None:
        """Accept state of the node. State files are not part of this measurement."""

    def wrote(self) -> None:
        """Handle the end of the effects of one turn."""


class DatagramHost(Host):
    """A fyrehose node."""

    def prepare(self, method: str, arguments: tuple[Any, ...]) -> tuple[Callable[..., None], tuple[Any, ...]]:
        if method == "datagram":
            return self.batch, (Batch.pack([arguments]),)
        return super().prepare(method, arguments)

    def batch(self, batch: Batch) -> None:
        """Receive as :class:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol` does."""
        driver = self.driver
        driver.node.receive_batch(batch, driver.now())  # type: ignore[attr-defined]
        driver.flush()

    def publish(self, data: bytes) -> None:
        """Publish as :class:`~fyrehose_twisted.fyrehose.protocol.publisher.PublisherProtocol` does."""
        self.node.publish_many((data,), self.driver.now(), kept=0)
        self.driver.flush()

    def perform(self, effect: Send) -> None:
        self.send(effect)


class StreamHost(Host):
    """A parcels node, with the codec of its connections."""

    def __init__(self, node: Any, clock: Timeline, send: Callable[..., None], codec: Any) -> None:
        self.codec = codec
        self._decoders: dict[Peer, Any] = {}
        self._unsent: dict[Peer, list[bytes]] = {}
        self._encoded: dict[int, tuple[Any, bytes]] = {}
        super().__init__(node, clock, send)

    def connected(self, peer: Peer) -> None:
        """Handle a new connection."""
        self._decoders[peer] = self.codec.decoder()
        self.node.connected(peer, self.driver.now())
        self.driver.flush()

    def disconnected(self, peer: Peer) -> None:
        """Handle the end of a connection."""
        if self._decoders.pop(peer, None) is not None:
            self.node.disconnected(peer, "closed", self.driver.now())
            self.driver.flush()

    def data(self, data: bytes, peer: Peer) -> None:
        """Receive bytes."""
        decoder = self._decoders.get(peer)
        if decoder is not None:
            now = self.driver.now()
            for message in decoder.feed(data):
                self.node.receive(message, peer, now)
            self.driver.flush()

    def perform(self, effect: Dial | Write | Close) -> None:
        if not isinstance(effect, Write):
            self.send(effect)
            return
        # As fyrehose_twisted.net.write_buffer, which needs connections: one write a turn, each message encoded once.
        waiting = self._unsent.setdefault(effect.peer, [])
        for message in effect.messages:
            known = self._encoded.get(id(message))
            if known is None:
                known = self._encoded[id(message)] = message, self.codec.encode(message)
            waiting.append(known[1])

    def wrote(self) -> None:
        self._encoded.clear()
        for peer in tuple(self._unsent):
            pieces = self._unsent.pop(peer)
            self.send(Write(pieces, peer))


class Network:
    """Hosts that reach one another after :data:`HOP`.

    :ivar message: message to which the present inputs belong.
    """

    def __init__(self, start: float) -> None:
        self.clock = Timeline()
        self.clock.move(start)
        self.message = SETUP
        self.hosts: dict[Address, Host] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._ends: dict[tuple[Host | None, Peer], tuple[Any, Peer]] = {}

    def run(self, seconds: float) -> None:
        """Let time pass, in steps short enough for timers that start timers."""
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            stop = min(self.clock.seconds() + STEP, end)
            while self._due and self._due[0][0] <= stop:
                at, _, arrive = heappop(self._due)
                self.clock.move(at)
                arrive()
            self.clock.move(stop)

    def later(self, arrive: Callable[[], None]) -> None:
        """Call a function when a hop has passed."""
        heappush(self._due, (self.clock.seconds() + HOP, next(self._numbers), arrive))

    def send_datagrams(self, source: Address, effect: Send) -> None:
        """Carry datagrams to hosts."""
        for peer in effect.peers:
            for datagram in map(bytes, effect.iter_datagrams()):
                self.later(partial(self._arrive, peer, datagram, source))

    def _arrive(self, peer: Address, datagram: bytes, source: Address) -> None:
        self.hosts[peer].record(self.message, "datagram", datagram, source)

    def carry_out(self, place: Address, effect: Dial | Write | Close) -> None:
        """Carry out an effect of a node with connections."""
        if isinstance(effect, Dial):
            self.later(lambda: self.connect(place, effect.address))
            return
        other, peer = self._ends.get((self.hosts[place], effect.peer), (None, None))
        if other is None:
            return
        if isinstance(effect, Write):
            data = b"".join(effect.messages)
            self.later(lambda: other.record(self.message, "data", data, peer))
        else:
            self.later(lambda: other.record(self.message, "disconnected", peer))

    def connect(self, source: Address, target: Address) -> None:
        """Connect two hosts."""
        number = next(self._numbers)
        ours, theirs = self.hosts[source], self.hosts[target]
        dialled, accepted = Peer(target, number, True), Peer((source[0], number), number, False)
        self._ends[ours, dialled], self._ends[theirs, accepted] = (theirs, accepted), (ours, dialled)
        ours.record(self.message, "connected", dialled)
        theirs.record(self.message, "connected", accepted)

    def accept(self, client: Any, target: Address) -> Peer:
        """Connect a client that is not a node; return the node's end. ``client`` has a method ``record``."""
        number = next(self._numbers)
        accepted = Peer(("10.0.0.99", number), number, False)
        self._ends[self.hosts[target], accepted] = (client, accepted)
        self.hosts[target].record(self.message, "connected", accepted)
        return accepted
