"""A simulated tree: a backbone, relays at several levels, and subscribers that must receive every message.

The collector of cyclic garbage is off, because all objects live until the end. Everything runs in one thread.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.relay.relay import Relay
from fyrehose_twisted.interfaces import INode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network

BACKBONE: Address = ("10.0.0.1", 2323)
DELAY, JITTER = 0.005, 0.005
MOMENT = 0.001
INTERVAL = 0.05
"""Virtual seconds between messages."""
LEVEL_DELAY = 0.5
"""Virtual seconds between the starts of two levels. A relay acknowledges its clients once its parent answers."""
CONNECT_TIME = 1.5
"""Virtual seconds from the start of the subscribers, within a second of each other, to the first message."""
STEP = 0.25
"""Virtual seconds between two checks of whether all messages have arrived."""
PATIENCE = 30.0
"""Virtual seconds after the last message within which all must have arrived."""


class Shape(NamedTuple):
    """Size of a tree and of its stream.

    :ivar fan_out: clients of the backbone, of a relay of the first level, and so on; the last ones are subscribers.
    :ivar loss: probability of the loss of a datagram on each link.
    """

    fan_out: tuple[int, ...]
    messages: int
    size: int
    loss: float

    @property
    def levels(self) -> list[int]:
        """Number of relays at each level."""
        counts, count = [], 1
        for each in self.fan_out[:-1]:
            count *= each
            counts.append(count)
        return counts

    @property
    def subscribers(self) -> int:
        """Number of subscribers."""
        return (self.levels or [1])[-1] * self.fan_out[-1]


class Subscriber:
    """What a subscriber has received.

    :ivar next: number of the next message.
    """

    __slots__ = ("_payloads", "next")

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.next = 1
        self._payloads = payloads

    def on_event(self, event: object) -> None:
        """Check that the messages are those that were published, in their order.

        :raises RuntimeError: if they are not, or one was given up.
        """
        if isinstance(event, MessagesLost):
            raise RuntimeError(f"{event} were lost to a subscriber")
        if isinstance(event, MessagesDelivered):
            for message in event.messages:
                if message.sequence != self.next or message.data != self._payloads[self.next - 1]:
                    raise RuntimeError(f"a subscriber received {message} instead of number {self.next}")
                self.next += 1


class Tree:
    """A tree on a simulated network.

    :ivar relays: hosts of the relays, by level.
    :ivar subscribers: what the subscribers have received.
    """

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        self.shape = shape
        self.network = Network(seed, Link(delay=DELAY, jitter=JITTER, loss=shape.loss), moment=MOMENT)
        self.payloads = [b"%0*d" % (shape.size, number) for number in range(shape.messages)]
        self._rng = Random(seed)
        self._limit = max(shape.fan_out) + 1
        self.network.add("backbone", BACKBONE, lambda boot: self._make_backbone()).start()
        self.relays: list[list[Host]] = []
        parents = [BACKBONE]
        for level, count in enumerate(shape.levels, 1):
            hosts = [self._add_relay(level, number, parents[number * len(parents) // count]) for number in range(count)]
            self._start(hosts, LEVEL_DELAY * (level - 1), 0.0)
            self.relays.append(hosts)
            parents = [host.address for host in hosts]
        self.subscribers: list[Subscriber] = []
        self.hosts: list[Host] = []
        place = len(shape.fan_out)
        for number in range(shape.subscribers):
            parent = parents[number * len(parents) // shape.subscribers]
            host = self._add_client(f"subscriber-{number}", address_of(place, number), parent, ClientConfig(start=1))
            subscriber = Subscriber(self.payloads)
            host.on_event = subscriber.on_event
            self.hosts.append(host)
            self.subscribers.append(subscriber)
        begin = LEVEL_DELAY * len(shape.levels)
        self._start(self.hosts, begin, 1.0)
        publisher = self._add_client("publisher", address_of(0, 1), BACKBONE, ClientConfig(subscribe=False))
        self._start([publisher], 0.0, 0.0)
        self.begins = begin + CONNECT_TIME
        for number, data in enumerate(self.payloads):
            self.network.call_in(self.begins + number * INTERVAL, publishing(publisher, data))

    @property
    def complete(self) -> int:
        """Number of subscribers that have received everything."""
        everything = self.shape.messages + 1
        return sum(subscriber.next == everything for subscriber in self.subscribers)

    def run(self) -> None:
        """Run until every subscriber has received every message.

        :raises RuntimeError: if one has not in time.
        """
        self.network.run(self.begins + (self.shape.messages - 1) * INTERVAL)
        ends = self.network.elapsed + PATIENCE
        while self.complete < self.shape.subscribers:
            if self.network.elapsed > ends:
                raise RuntimeError(
                    f"{self.shape.subscribers - self.complete:,} subscribers have not received everything"
                )
            self.network.run(STEP)

    def counted(self) -> dict[str, float]:
        """Return what the nodes have counted."""
        clients = [host.node.counters for host in self.hosts]
        upstream = [host.node.upstream.counters for level in self.relays for host in level]
        downstream = [host.node.downstream for level in self.relays for host in level]
        return {
            "subscribers": self.shape.subscribers,
            "relays": sum(self.shape.levels),
            "deliveries": sum(subscriber.next - 1 for subscriber in self.subscribers),
            "datagrams": self.network.counters["sent"],
            "lost": self.network.counters["dropped: loss"],
            "requests": sum(each.requests for each in clients),
            "repaired": sum(each.repaired for each in clients),
            "repaired, relays": sum(each.repaired for each in upstream),
            "passed": sum(each.relay_counters.requests_passed for each in downstream),
            "awaited": sum(each.relay_counters.requests_awaited for each in downstream),
            "virtual": self.network.elapsed,
            "virtual, last": self.network.elapsed - self.begins - (self.shape.messages - 1) * INTERVAL,
        }

    def _start(self, hosts: Sequence[Host], begin: float, within: float) -> None:
        for number, host in enumerate(hosts):
            self.network.call_in(begin + within * number / len(hosts), host.start)

    def _draw(self) -> Random:
        return Random(self._rng.getrandbits(64))

    def _make_backbone(self) -> INode:
        node: INode = Backbone(
            BackboneConfig(max_clients=self._limit),
            RandomForward(self._draw()),
            BackboneStart(),
            own_address=lambda peer: BACKBONE,
            is_own=lambda address: address == BACKBONE,
            now=self.network.now,
        )
        return node

    def _add_relay(self, level: int, number: int, parent: Address) -> Host:
        address = address_of(level, number)

        def make(boot: Any) -> INode:
            node: INode = Relay(
                parent,
                BackboneConfig(max_clients=self._limit),
                ClientConfig(raw=True),
                RandomForward(self._draw()),
                self._draw(),
                boot.now,
                own_address=lambda peer: address,
                is_own=lambda other: other == address,
            )
            return node

        return self.network.add(f"relay-{level}-{number}", address, make)

    def _add_client(self, name: str, address: Address, parent: Address, config: ClientConfig) -> Host:
        def make(boot: Any) -> INode:
            node: INode = Client(parent, config, self._draw(), boot.now)
            return node

        return self.network.add(name, address, make)


def address_of(level: int, number: int) -> Address:
    """Return the address of a node."""
    return f"10.{16 * level + 1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}", 2323


def publishing(host: Host, data: bytes) -> Callable[[], object]:
    """Return a call that publishes a message."""
    return lambda: host.perform(lambda node, now: node.publish(data, now))


def measure(fan_out: Iterable[int], messages: int, size: int, loss: float) -> dict[str, float]:
    """Run a tree in this process. Return what was counted, the CPU seconds and the peak of the resident memory."""
    gc.disable()
    tree = Tree(Shape(tuple(fan_out), messages, size, loss))
    built = time.process_time()
    tree.run()
    figures = tree.counted()
    figures["CPU, building"] = built
    figures["CPU"] = time.process_time()
    figures["resident"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return figures
