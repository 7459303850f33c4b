"""Simulator scenarios for parcels."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count
from random import Random
from typing import Any, ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.config import JOIN_EVENTS, NodeConfig
from fyrehose_twisted.parcels.simulation.invariants import (
    AcknowledgedDurability,
    ClusterRecovers,
    ConditionsHold,
    MemoryBounded,
    OneLeaderPerTerm,
    PublisherOrder,
    ReadsUpToDate,
    StatesAgree,
    TotalOrder,
    UniqueEventIds,
    ValidNeighbourNames,
)
from fyrehose_twisted.parcels.simulation.participants import NodeDisk, Participants
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, MAX_NAME, Mode, node_id
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.faults.faults import CrashFault, Fault
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultKinds, FaultSchedule

PORT = 7_878
NAMES = ("Ivan", "Boris", "Vera", "Olga", "Petr")


class ClusterScenario(Scenario):
    """Base: nodes that form a cluster, with a publishing application on each.

    :cvar sizes: possible numbers of nodes.
    :cvar journal_probability: probability that the nodes have journals.
    :cvar encoding_probability: probability that parcels are encoded to bytes in transit.
    :cvar publish_interval: mean interval between publications on a node, in seconds.
    :cvar secret: secret of the cluster.
    :cvar max_neighbours: maximum number of neighbours of a node.
    :cvar max_event: maximum size of an event in bytes.
    :cvar join_events: events before the present that a new node fetches.
    :cvar holds_state: whether the nodes hold the state of an application.
    """

    duration: ClassVar[float] = 120.0
    settle_timeout: ClassVar[float] = 90.0
    sizes: ClassVar[tuple[int, ...]] = (3,)
    journal_probability: ClassVar[float] = 0.3
    encoding_probability: ClassVar[float] = 0.2
    publish_interval: ClassVar[float] = 0.4
    secret: ClassVar[bytes | None] = None
    max_neighbours: ClassVar[int] = 64
    max_event: ClassVar[int] = MAX_EVENT
    join_events: ClassVar[int] = JOIN_EVENTS
    holds_state: ClassVar[bool] = False

    def make_network(self, split_seed: int) -> Network:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return Network(self.seed, Link(delay=0.0005, jitter=0.001), split_seed=split_seed)

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        rng = self.rng
        self.participants = Participants(self.network, rng)
        names = NAMES[: rng.choice(self.sizes)]
        addresses = [(f"10.0.0.{number}", PORT) for number in range(1, len(names) + 1)]
        journal = rng.random() < self.journal_probability
        for name, address in zip(names, addresses, strict=True):
            self.add_node(name, address, [one for one in addresses if one != address], journal=journal)
        if rng.random() < self.encoding_probability:
            self.network.streams.codec = ParcelCodec()
        order = TotalOrder(self.participants)
        self.order = order
        self.acknowledged = AcknowledgedDurability(self.participants, order)
        self.network.add_observer(self.participants)
        for invariant in (
            order,
            UniqueEventIds(self.participants),
            PublisherOrder(self.participants, order),
            self.acknowledged,
            OneLeaderPerTerm(self.participants),
            MemoryBounded(self.participants),
            ValidNeighbourNames(self.participants),
            ClusterRecovers(self.participants),
        ):
            self.add_invariant(invariant)
        self.arrange()
        for host in self.participants.hosts:
            self.repeat(self.publish_interval, partial(self._publish, host))

    def add_node(self, name: str, address: Address, neighbours: list[Address], *, journal: bool) -> None:
        """Add a node; the first bootstraps the cluster."""
        first = not self.participants.hosts
        config = NodeConfig(
            name,
            "sim",
            address,
            tuple(neighbours),
            bootstrap=first,
            secret=self.secret,
            max_event=self.max_event,
            window_bytes=self.window(),
            join_events=self.join_events,
            max_neighbours=self.max_neighbours,
        )
        host = self.participants.add(name, address, NodeDisk(config, journal=journal, state=self.holds_state))
        host.start_delay = 0.0 if first else self.rng.uniform(0.0, 5.0)

    def window(self) -> int:
        """Return the window size of the nodes in bytes."""
        return self.rng.choice((200_000, 64 * 2**20))

    def fault_hosts(self) -> list[Host]:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_hosts`."""
        return self.participants.hosts

    def arrange(self) -> None:
        """Add further participants and events of the scenario."""

    def _publish(self, host: Any) -> None:
        if self.rng.random() < 0.2:
            self.operate(host, "publish keyed", self.participants.publish_keyed)
        else:
            many = self.rng.choice((1, 1, 1, 2, 5, 40))
            self.operate(host, f"publish {many}", lambda node, now: self.participants.publish(node, now, many))

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        members = self.participants.members()
        return all(host.node.mode is Mode.WRK for host in members) and len({h.node.sequence for h in members}) == 1

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        hosts = [host for host in self.participants.hosts if host.up]
        counts = Counter(
            {
                "events": len(self.order.order),
                "acknowledged": self.participants.confirmed,
                "not taken": self.participants.failed,
                "lost clusters": int(self.participants.quorum_lost()),
                "terms": max((host.node.term for host in hosts), default=0),
                "skipped": sum(host.node.counters.skipped for host in hosts),
                "fetched": sum(host.node.counters.fetched for host in hosts),
                "states taken": sum(host.node.counters.states_taken for host in hosts),
            }
        )
        return counts

    def digest(self) -> str:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return ""


class Calm(ClusterScenario):
    """A cluster of one to five nodes forms without faults."""

    name = "parcels.calm"
    sizes = (1, 2, 3, 4, 5)
    duration = 30.0


class Storm(ClusterScenario):
    """Three to five nodes publish under all kinds of faults."""

    name = "parcels.storm"
    sizes = (3, 4, 5)
    duration = 600.0
    publish_interval = 1.5
    fault_counts = (30, 120)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        modes = CrashMode.KILLED, CrashMode.POWER
        return [
            (2.0, fault_generators.crashes(names, kinds=modes, max_duration=8.0, after_persist=0.2)),
            (2.0, fault_generators.pauses(names, max_duration=9.0)),
            (3.0, fault_generators.cuts(names, max_duration=12.0)),
            (2.0, fault_generators.bad_links(names)),
            (1.0, fault_generators.resets(names)),
            (1.0, fault_generators.half_opens(names)),
            (0.5, fault_generators.refusals(names)),
            (1.0, fault_generators.slow_readers(names)),
            (0.5, fault_generators.clock_faults(names)),
        ]


class KeyReuse(Storm):
    """Keys are reused for different events at any nodes in a storm. No event gets the number of another."""

    name = "parcels.key-reuse"
    aliases = ("parcels.keys",)
    duration = 100.0
    publish_interval = 0.5

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        for host in self.participants.hosts:
            publish = partial(self.operate, host, "publish clashing", self.participants.publish_conflicting)
            self.repeat(self.publish_interval, publish)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"clashed": self.participants.key_conflicts})


class Conditions(Storm):
    """Events are published behind certain others, at any nodes in a storm. None is behind another one than expected."""

    name = "parcels.conditions"
    duration = 100.0
    publish_interval = 0.5

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        self.add_invariant(ConditionsHold(self.participants, self.order))
        for host in self.participants.hosts:
            publish = partial(self.operate, host, "publish conditional", self.participants.publish_conditional)
            self.repeat(self.publish_interval, publish)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter(
            {"conditional": len(self.participants.conditions), "unexpected": len(self.participants.unexpected)}
        )


class LinearizableReads(Storm):
    """Applications read on all nodes in a storm. What they read contains all that was acknowledged before."""

    name = "parcels.reads"
    duration = 100.0
    publish_interval = 0.5

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        self.reads = ReadsUpToDate(self.participants)
        self.add_invariant(self.reads)
        for host in self.participants.hosts:
            self.repeat(self.publish_interval, partial(self.operate, host, "read", self.participants.read))

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"reads": self.reads.count})


class ReplicatedStates(Storm):
    """Nodes hold the state of an application, and few events, in a storm. States after the same event are equal."""

    name = "parcels.state"
    duration = 100.0
    journal_probability = 0.5
    max_event = 100
    join_events = 0
    holds_state = True

    def window(self) -> int:
        """See :class:`ClusterScenario`."""
        return self.rng.choice((2_000, 20_000))

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        self.states = StatesAgree(self.participants, self.order)
        self.add_invariant(self.states)
        for host in self.participants.hosts:
            save = partial(self.operate, host, "save the state", self.participants.disks[host].save_state)
            self.repeat(10.0, save)

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().settled() and not self.states.incomplete()

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        fetched = sum(host.node.counters.states_fetched for host in self.participants.hosts if host.up)
        return super().statistics() + Counter({"states fetched": fetched})


class Transfers(Storm):
    """The operator transfers the leadership to one member after another in a storm."""

    name = "parcels.transfers"
    duration = 100.0

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        for host in self.participants.hosts:
            order = partial(self.operate, host, "transfer the leadership", self.participants.transfer_leadership)
            self.repeat(2.0, order)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"transfers": self.participants.transfers})


class Unresponsive(ClusterScenario):
    """Nodes pause beyond timeouts, connections flap, and networks partition."""

    name = "parcels.pauses"
    aliases = ("parcels.silence",)
    sizes = (3, 5)
    fault_counts = (10, 60)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (1.0, fault_generators.pauses(names, max_duration=15.0)),
            (1.0, fault_generators.cuts(names, max_duration=20.0)),
            (4.0, fault_generators.cuts(names, max_duration=1.5)),
            (1.0, fault_generators.half_opens(names)),
            (1.0, fault_generators.slow_readers(names)),
        ]


class MinorityLoss(ClusterScenario):
    """Two of five nodes die for good at any time. The others continue."""

    name = "parcels.minority-loss"
    aliases = ("parcels.two-die",)
    sizes = (5,)
    journal_probability = 0.0
    fault_counts = (0, 8)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (1.0, fault_generators.resets(names)),
            (1.0, fault_generators.bad_links(names)),
            (1.0, fault_generators.slow_readers(names)),
        ]

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        first = self.rng.uniform(20.0, 60.0)
        again = self.rng.choice((0.0, 0.0, 0.05, 1.0, self.rng.uniform(0.0, 30.0)))
        for host, at in zip(self.rng.sample(self.participants.hosts, 2), (first, first + again), strict=True):
            crash = self.rng.choice((CrashMode.KILLED, CrashMode.POWER))
            self.network.call_in(at, partial(host.stop, crash))


class Blackout(ClusterScenario):
    """All nodes crash at once, repeatedly. Their persistent state suffices to continue."""

    name = "parcels.blackout"
    sizes = (1, 2, 3, 5)
    journal_probability = 1.0
    duration = 240.0
    publish_interval = 0.8

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.participants.hosts]
        faults: list[Fault] = []
        at = 15.0
        while at < self.duration:
            crash = rng.choice((CrashMode.KILLED, CrashMode.POWER))
            # Crashes are spread over a moment, so that a node may still persist what a crashed one has sent.
            faults += [
                CrashFault(round(at + rng.uniform(0.0, 0.01), 4), round(rng.uniform(0.2, 3.0), 3), name, crash, False)
                for name in names
            ]
            at += rng.uniform(4.0, 30.0)
        return FaultSchedule(sorted(faults, key=lambda fault: fault.at))


class LaggingNodes(ClusterScenario):
    """Nodes are away until the log is compacted, so that they need a snapshot and backfill."""

    name = "parcels.lagging-nodes"
    aliases = ("parcels.behind",)
    sizes = (3, 5)
    publish_interval = 0.1
    fault_counts = (8, 20)

    def window(self) -> int:
        """See :class:`ClusterScenario`."""
        return 100_000

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (2.0, fault_generators.pauses(names, max_duration=20.0)),
            (2.0, fault_generators.cuts(names, max_duration=20.0)),
            (1.0, fault_generators.crashes(names, max_duration=10.0)),
            (1.0, fault_generators.slow_readers(names)),
        ]


class Amnesia(ClusterScenario):
    """Most nodes crash at once and lose their state. No node continues before the operator intervenes."""

    name = "parcels.amnesia"
    sizes = (3, 4, 5)
    journal_probability = 0.0
    duration = 90.0

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.participants.hosts]
        lost = rng.sample(names, len(names) // 2 + 1)
        at = rng.uniform(25.0, 35.0)
        return FaultSchedule([CrashFault(at, rng.uniform(0.5, 4.0), name, CrashMode.KILLED, False) for name in lost])

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        self.reformed = False
        self.network.call_in(60.0, self._force_new_cluster)

    def _force_new_cluster(self) -> None:
        for host in self.participants.hosts:
            if host.node.mode is Mode.WRK:
                return  # The membership was smaller, and a quorum of it is left.
        survivors = [host for host in self.participants.hosts if host.node.sequence]
        if not survivors:
            return
        best = max(survivors, key=lambda host: host.node.sequence)
        self.reformed = True
        self.participants.forget_membership()
        self.operate(best, "reform", lambda node, now: node.reform(now))
        for host in self.participants.hosts:
            if host is not best and host.node.cluster_id:
                # Nodes with state of the former cluster have to be started without it.
                self.network.call_in(1.0, partial(host.stop, CrashMode.KILLED))
                self.network.call_in(2.0, host.start)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"reformed": int(self.reformed)})


class NewCluster(ClusterScenario):
    """The whole cluster is wiped and bootstrapped again. Its numbering restarts, but no event id recurs."""

    name = "parcels.new-cluster"
    aliases = ("parcels.anew",)
    sizes = (1, 3)
    journal_probability = 0.0
    duration = 60.0

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        at = self.rng.uniform(20.0, 35.0)
        self.network.call_in(at, self._wipe)
        self.network.call_in(at + 1.0, self._restart)

    def _wipe(self) -> None:
        for host in self.participants.hosts:
            host.stop(CrashMode.KILLED)
        self.participants.forget_membership()
        self.order.reset()
        self.acknowledged.reset()

    def _restart(self) -> None:
        for host in self.participants.hosts:
            host.start()


class Strangers(ClusterScenario):
    """Nodes with the name or id of a member, of another cluster, or with an invalid name are refused.

    Peers that support only document 004 become neighbours.
    """

    name = "parcels.adversaries"
    aliases = ("parcels.strangers",)
    sizes = (3, 4)
    journal_probability = 0.0
    fault_counts = (0, 15)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [(2.0, fault_generators.resets(names)), (1.0, fault_generators.cuts(names, max_duration=1.0))]

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        first, second = self.participants.hosts[:2]
        everybody = tuple(host.address for host in self.participants.hosts)
        kinds = [(first.name, "sim"), (namesake(second.name), "sim"), ("Nina", "another")]
        for number, (name, cluster) in enumerate(kinds, 1):
            address = (f"10.0.1.{number}", PORT)
            config = NodeConfig(name, cluster, address, everybody)
            stranger = self.participants.add(
                f"stranger-{number}", address, NodeDisk(config, journal=False), belongs=False
            )
            stranger.start_delay = self.rng.uniform(15.0, 60.0)
        for number in (1, 2):
            address = (f"10.0.2.{number}", PORT)
            self.participants.add_reference_peer(
                f"Document-{number}", address, everybody
            ).start_delay = self.rng.uniform(0.0, 60.0)
        for number, name in enumerate(("", "n" * (MAX_NAME + 1), "Ivan\r"), 1):
            host_name, address = f"unnamed-{number}", (f"10.0.3.{number}", PORT)
            stranger = self.participants.add_reference_peer(name, address, everybody, host_name=host_name)
            stranger.start_delay = 20.0 + number


class Crowd(ClusterScenario):
    """Many peers that support only document 004 connect to a cluster with a secret before its members, from one address
    or from many. They get a share of the neighbour table, and no member is kept out."""

    name = "parcels.legacy-peers"
    aliases = ("parcels.crowd",)
    duration = 60.0
    journal_probability = 0.0
    secret = b"a secret of the simulator"
    max_neighbours = 8

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        everybody = tuple(host.address for host in self.participants.hosts)
        for number in range(24):
            shared = number % 2 == 0
            address = ("10.0.2.1", PORT + number) if shared else (f"10.0.3.{number}", PORT)
            self.participants.add_reference_peer(
                f"Document-{number}", address, everybody
            ).start_delay = self.rng.uniform(1.0, 3.0)
        # This peer takes the name before the member arrives.
        second = self.participants.hosts[1].name
        self.participants.add_reference_peer(
            second, ("10.0.4.1", PORT), everybody, host_name="impostor"
        ).start_delay = 0.5
        for host in self.participants.hosts[1:]:
            host.start_delay = self.rng.uniform(5.0, 20.0)


def namesake(name: str) -> str:
    """Return another name with the same id."""
    wanted = node_id(name)
    return next(other for number in count() if node_id(other := f"Someone-{number}") == wanted)


SCENARIOS: tuple[type[Scenario], ...] = (
    Calm,
    Storm,
    KeyReuse,
    Conditions,
    LinearizableReads,
    ReplicatedStates,
    Transfers,
    Unresponsive,
    MinorityLoss,
    Blackout,
    LaggingNodes,
    Amnesia,
    NewCluster,
    Strangers,
    Crowd,
)
