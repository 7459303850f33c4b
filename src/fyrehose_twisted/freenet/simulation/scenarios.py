"""Scenarios of the simulator for freenet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar

from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.simulation.ascending_routing import AscendingRouting
from fyrehose_twisted.freenet.simulation.hint_flooder import HintFlooder
from fyrehose_twisted.freenet.simulation.invariants import (
    DeliveredOnce,
    EventualDelivery,
    MemoryBounded,
    NoAcknowledgedLoss,
    NoCycle,
    OneNumberPerPacket,
    RestartAnnouncedOnce,
    RestartRateBounded,
    SearchesTerminate,
    SingleTree,
    SubscriberRequired,
    find_disagreement,
)
from fyrehose_twisted.freenet.simulation.participants import Participants
from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.interfaces import IRoutingPolicy
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultKinds

PORT = 6_180


class TreeScenario(Scenario):
    """Base class of the scenarios: nodes on a ring with chords, and applications that subscribe and publish.

    :cvar sizes: possible numbers of nodes.
    :cvar keys: number of streams.
    :cvar subscribe_probability: probability that an application subscribes to a stream.
    :cvar publish_interval: mean seconds between two packets of a stream.
    :cvar encoding_probability: probability that messages are encoded and decoded in transit.
    :cvar search_limit: seconds for which a stream may be without a root, through unanswered attempts and their delays.
    :cvar policy_choices: possible values of each policy setting.
    :cvar routing: routing policy of all nodes; ``None`` for that of document 003.
    :cvar node_factory: returns a node.
    """

    duration: ClassVar[float] = 300.0
    settle_timeout: ClassVar[float] = 1_500.0
    sizes: ClassVar[tuple[int, ...]] = (4, 6, 9, 14, 20)
    keys: ClassVar[int] = 2
    subscribe_probability: ClassVar[float] = 0.5
    publish_interval: ClassVar[float] = 2.0
    encoding_probability: ClassVar[float] = 0.1
    policy_choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        "coalesce": ("queue", "queue", "queue", "reject", "parallel"),
        "on_parent_lost": ("graft", "graft", "teardown"),
        "confirm_root": (False, False, False, True),
    }
    search_limit: ClassVar[float] = 300.0
    routing: ClassVar[IRoutingPolicy | None] = None
    node_factory: ClassVar[Callable[..., FreenetNode]] = FreenetNode

    def make_network(self, split_seed: int) -> Network:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return Network(self.seed, Link(delay=0.002, jitter=0.01), split_seed=split_seed)

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        rng = self.rng
        self.participants = Participants(self.network, rng, type(self).node_factory)
        self.network.add_observer(self.participants)
        size = rng.choice(self.sizes)
        self.streams = [rng.randbytes(20) for _ in range(self.keys)]
        policy = Policy(**{name: rng.choice(choices) for name, choices in self.policy_choices.items()})
        self.addresses = [(f"10.0.0.{number}", PORT) for number in range(1, size + 1)]
        locations = sorted(rng.random() for _ in range(size))
        edges = draw_links(rng, size)
        for number, address in enumerate(self.addresses):
            targets = tuple(self.addresses[target] for source, target in edges if source == number)
            config = NodeConfig(number + 1, 0, locations[number], policy, targets, routing=self.routing)
            wanted_keys = [key for key in self.streams if rng.random() < self.subscribe_probability]
            host = self.participants.add(f"node-{number + 1}", address, config, wanted_keys)
            host.start_delay = rng.uniform(0.0, 5.0)
        if rng.random() < self.encoding_probability:
            self.network.streams.codec = FreenetCodec()
        self.eventual_delivery = EventualDelivery(self.participants, self.streams)
        for invariant in (
            NoCycle(self.participants, self.streams),
            SearchesTerminate(self.participants, self.streams, self.search_limit),
            self.delivered_once(),
            OneNumberPerPacket(self.participants, self.streams),
            MemoryBounded(self.participants, self.streams),
            RestartAnnouncedOnce(self.participants, self.streams),
            SingleTree(self.participants, self.streams),
            self.eventual_delivery,
        ):
            self.add_invariant(invariant)
        self.arrange()
        for key in self.streams:
            self.repeat(self.publish_interval, partial(self._publish, key))

    def delivered_once(self) -> DeliveredOnce:
        """Return the invariant :class:`DeliveredOnce`."""
        return DeliveredOnce(self.participants, self.streams)

    def fault_hosts(self) -> list[Host]:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_hosts`."""
        return self.participants.hosts

    def arrange(self) -> None:
        """Add the parts of a scenario; does nothing by default."""

    def subscribers(self, key: bytes) -> list[Host]:
        """Return the running hosts whose applications subscribe to a stream."""
        return [
            host for host in self.participants.hosts if host.running and key in self.participants.wanted_keys[host.name]
        ]

    def _publish(self, key: bytes) -> None:
        hosts = self.subscribers(key)
        if hosts:
            host = self.rng.choice(hosts)
            for _ in range(self.rng.choice((1, 1, 1, 5))):
                self.operate(host, "publish", lambda node, now: self.participants.publish(node, now, host, key))

    def toggle_subscription(self) -> None:
        """Let a random application subscribe to a stream, or unsubscribe."""
        host, key = self.rng.choice(self.participants.hosts), self.rng.choice(self.streams)
        self.operate(host, "change mind", lambda node, now: self.participants.toggle_subscription(node, now, host, key))

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        if any(not host.running for host in self.participants.hosts if host.up):
            return False
        if any(find_disagreement(self.participants, key) is not None for key in self.streams):
            return False
        if not self.eventual_delivery.last_packets:
            self._publish_last()
            return False
        missing = self.eventual_delivery.missing()
        if missing and self.network.elapsed > self._last_published_at + 90.0:
            self._publish_last()
        return not missing

    def _publish_last(self) -> None:
        """Publish a packet that all subscribers must receive."""
        self._last_published_at = self.network.elapsed
        for key in self.streams:
            hosts = self.subscribers(key)
            if hosts:
                self.operate(hosts[0], "publish", partial(self._publish_last_on, hosts[0], key))

    def _publish_last_on(self, host: Host, key: bytes, node: FreenetNode, now: float) -> None:
        self.participants.publish(node, now, host, key, needs_subscriber=False)
        self.eventual_delivery.last_packets[key] = next(reversed(self.participants.published))

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        counts = Counter(
            {
                "packets published": self.participants.confirmed,
                "packets delivered": self.participants.delivered,
                "packets missed": self.participants.missed,
                "not published": self.participants.failed,
                "without subscribers": self.participants.without_subscribers,
            }
        )
        for host in self.participants.hosts:
            if host.up and host.node is not None:
                for name in (
                    "requests",
                    "parents_lost",
                    "volunteered",
                    "cycles",
                    "held",
                    "rooted",
                    "reboots",
                    "overloads",
                ):
                    counts[name.replace("_", " ")] += host.node.counters[name]
        return counts


def draw_links(rng: Random, size: int) -> list[tuple[int, int]]:
    """Return random links (caller, target): a ring of first and second neighbours, and a few chords."""
    links = {(node, (node + step) % size) for node in range(size) for step in (1, 2) if size > 2 * step or step == 1}
    for _ in range(rng.randrange(0, size)):
        source, target = rng.sample(range(size), 2)
        if (target, source) not in links:
            links.add((source, target))
    return sorted(links)


class Calm(TreeScenario):
    """Trees grow and packets are published without any faults."""

    name = "freenet.calm"
    duration = 60.0
    sizes = (1, 2, 3, 5, 9, 20)

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        self.add_invariant(NoAcknowledgedLoss(self.participants, self.streams))
        self.add_invariant(SubscriberRequired(self.participants, self.streams))


class Crowd(TreeScenario):
    """All applications subscribe at the same time, and unsubscribe and subscribe again soon after."""

    name = "freenet.mass-subscribe"
    aliases = ("freenet.crowd",)
    sizes = (6, 12, 20)
    keys = 3
    subscribe_probability = 0.9
    duration = 90.0

    def build(self) -> None:
        """See :class:`TreeScenario`."""
        super().build()
        for host in self.participants.hosts:
            host.start_delay = self.rng.choice((0.0, 0.0, 0.0, 0.01, 0.1))

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        self.repeat(3.0, self.toggle_subscription)


class Storm(TreeScenario):
    """All kinds of faults: crashes, partitions, pauses, resets, lossy and slow links."""

    name = "freenet.storm"
    duration = 600.0
    fault_counts = (10, 80)

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        self.repeat(30.0, self.toggle_subscription)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        modes = CrashMode.KILLED, CrashMode.POWER
        return [
            (4.0, fault_generators.crashes(names, kinds=modes, max_duration=30.0, after_persist=0.2)),
            (2.0, fault_generators.pauses(names, max_duration=60.0)),
            (3.0, fault_generators.cuts(names, max_duration=90.0)),
            (1.0, fault_generators.bad_links(names)),
            (3.0, fault_generators.resets(names)),
            (1.0, fault_generators.half_opens(names)),
            (0.5, fault_generators.refusals(names)),
            (0.5, fault_generators.slow_readers(names)),
        ]


class NodeChurn(TreeScenario):
    """Nodes crash in quick succession, several at once, and return while others are still searching for parents."""

    name = "freenet.churn"
    aliases: ClassVar[tuple[str, ...]] = ("freenet.deaths",)
    sizes = (6, 9, 14, 20)
    duration = 240.0
    subscribe_probability = 0.7
    fault_counts = (40, 160)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (3.0, fault_generators.crashes(names, kinds=(CrashMode.KILLED,), max_duration=3.0)),
            (1.0, fault_generators.crashes(names, kinds=(CrashMode.KILLED,), max_duration=40.0)),
            (2.0, fault_generators.resets(names)),
        ]


class RoutingPolicies(NodeChurn):
    """Nodes try their neighbours in the order of a routing policy, not the nearest to the key first, and crash."""

    name = "freenet.routing-policy"
    aliases: ClassVar[tuple[str, ...]] = ()
    routing = AscendingRouting()


class Partitions(TreeScenario):
    """The network and its trees are partitioned and merge again."""

    name = "freenet.partitions"
    aliases = ("freenet.islands",)
    duration = 400.0
    fault_counts = (2, 8)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [(1.0, fault_generators.cuts(names, max_duration=200.0))]


class LocationSwaps(TreeScenario):
    """Nodes keep swapping locations, and occasionally one dies."""

    name = "freenet.location-swaps"
    aliases = ("freenet.swaps",)
    fault_counts = (0, 15)

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        self.repeat(5.0, self._swap)

    def _swap(self) -> None:
        first, second = self.rng.sample(self.participants.hosts, 2)
        if first.running and second.running:
            self.participants.swap(first, second)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (1.0, fault_generators.crashes(names, kinds=(CrashMode.KILLED,), max_duration=10.0)),
            (1.0, fault_generators.resets(names)),
        ]


class Adversaries(TreeScenario):
    """Adversaries forge roots, restarts and packets, flood, replay, lie about their location and withhold answers."""

    name = "freenet.adversaries"
    aliases = ("freenet.strangers",)
    sizes = (4, 6, 9, 14)
    encoding_probability = 0.3
    search_limit = 700.0
    fault_counts = (0, 8)

    def delivered_once(self) -> DeliveredOnce:
        """See :class:`TreeScenario`."""
        return DeliveredOnce(self.participants, self.streams, allow_forged=True)

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        for number in range(self.rng.choice((1, 1, 2))):
            victims = self.rng.sample(self.addresses, self.rng.randrange(1, min(4, len(self.addresses)) + 1))
            host = self.participants.add_adversary(
                f"stranger-{number + 1}", (f"10.0.9.{number + 1}", PORT), victims, self.streams
            )
            host.start_delay = self.rng.uniform(0.0, 60.0)
            self.network.call_in(self.duration, partial(host.stop, CrashMode.KILLED))

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (1.0, fault_generators.crashes(names, kinds=(CrashMode.KILLED,), max_duration=10.0)),
            (1.0, fault_generators.resets(names)),
        ]


class SilentCallers(TreeScenario):
    """Hosts keep opening connections without completing the handshake."""

    name = "freenet.stalled-handshakes"
    aliases = ("freenet.callers",)
    sizes = (3, 4, 6)
    duration = 60.0

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        for number in range(self.rng.choice((1, 2))):
            victims = self.rng.sample(self.addresses, self.rng.randrange(1, 3))
            host = self.participants.add_silent_caller(f"caller-{number + 1}", (f"10.0.9.{number + 1}", PORT), victims)
            self.network.call_in(self.duration, partial(host.stop, CrashMode.KILLED))


class HintFlood(TreeScenario):
    """A subscriber keeps sending hints to roots that do not exist."""

    name = "freenet.hint-flood"
    aliases = ("freenet.hints",)
    sizes = (4, 6, 9)
    duration = 900.0
    publish_interval = 10.0

    def arrange(self) -> None:
        """See :class:`TreeScenario`."""
        self.add_invariant(RestartRateBounded(self.participants, self.streams))
        victims = self.rng.sample(self.addresses, 2)
        host = self.participants.add_adversary("flooder", ("10.0.9.1", PORT), victims, self.streams, HintFlooder)
        host.start_delay = self.rng.uniform(0.0, 60.0)
        self.network.call_in(self.duration, partial(host.stop, CrashMode.KILLED))


SCENARIOS: tuple[type[Scenario], ...] = (
    Calm,
    Crowd,
    Storm,
    NodeChurn,
    RoutingPolicies,
    Partitions,
    LocationSwaps,
    Adversaries,
    SilentCallers,
    HintFlood,
)
