"""Scenarios of the simulator for hydra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.hydra.config import LinkTarget, NodeConfig, Quorum, Timers
from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.simulation.invariants import (
    AtMostOnceSend,
    InductionsTerminate,
    IntroducedToAll,
    LineAgreement,
    LinksIdentified,
    MemoryBounded,
    MonotonicTerms,
    NetworkConverges,
    NoRebroadcastStorm,
    QuorumRequiredToDrop,
    RecoversAfterPartition,
    ReunitesAfterPartition,
    SilentServerDetected,
    SingleLeaderPerTerm,
    SingleLease,
    SingleVotePerTerm,
    find_disagreement,
)
from fyrehose_twisted.hydra.simulation.multi_transport import IRC_PORT, PORT, UDP_PORT
from fyrehose_twisted.hydra.simulation.participants import Participants, StateDisk
from fyrehose_twisted.hydra.simulation.state_agreement import StateAgreement
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.faults.faults import CrashFault, Fault, PartitionFault
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultKinds, FaultSchedule

MAX_CLOCK_DRIFT = 0.3
"""Largest clock drift."""


class NetworkScenario(Scenario):
    """Base class: nodes that form a network, users who talk on IRC, and applications that submit lines.

    :cvar sizes: possible numbers of nodes.
    :cvar scale: timescale of the nodes.
    :cvar state_file_probability: probability that the nodes keep state files.
    :cvar guardian_probability: probability that they have guardians.
    :cvar drift: constant clock drift, at most.
    :cvar multi_transport: whether links use all transports.
    :cvar encoded_probability: probability that messages travel as encoded lines.
    :cvar quick_probability: probability that a node takes quick leases when it leads; nodes of one network may differ.
    """

    duration: ClassVar[float] = 240.0
    settle_timeout: ClassVar[float] = 480.0
    sizes: ClassVar[tuple[int, ...]] = (3, 4, 5, 7, 9)
    scale: ClassVar[float] = 1.0
    state_file_probability: ClassVar[float] = 0.5
    guardian_probability: ClassVar[float] = 0.5
    drift: ClassVar[float] = 0.0
    encoded_probability: ClassVar[float] = 0.2
    quick_probability: ClassVar[float] = 0.0
    make: ClassVar[Callable[..., HydraNode]] = HydraNode
    quorum: ClassVar[Quorum] = Quorum.FIXED
    multi_transport: ClassVar[bool] = False

    def make_network(self, split_seed: int) -> Network:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return Network(self.seed, Link(delay=0.0005, jitter=0.002), split_seed=split_seed)

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        rng = self.rng
        self.participants = Participants(self.network, rng, type(self).make)
        size = rng.choice(self.sizes)
        self.addresses = [(f"10.0.0.{number}", PORT) for number in range(1, size + 1)]
        self.edges = draw_topology(rng, size)
        states, guarded = rng.random() < self.state_file_probability, rng.random() < self.guardian_probability
        for number in range(size):
            self._add_node(number, size, states=states)
        if rng.random() < self.encoded_probability:
            self.network.streams.codec = HydraCodec()
        self.network.add_observer(self.participants)
        self.line_agreement = LineAgreement(self.participants)
        for invariant in (
            SingleLeaderPerTerm(self.participants),
            SingleLease(self.participants),
            SingleVotePerTerm(self.participants),
            MonotonicTerms(self.participants),
            self.line_agreement,
            AtMostOnceSend(self.participants),
            SilentServerDetected(self.participants, self.drift),
            NoRebroadcastStorm(self.participants),
            QuorumRequiredToDrop(self.participants),
            InductionsTerminate(self.participants),
            MemoryBounded(self.participants),
            NetworkConverges(self.participants),
        ):
            self.add_invariant(invariant)
        if not self.multi_transport and self.network.streams.codec is None:
            self.add_invariant(IntroducedToAll(self.participants))
        if not self.multi_transport:
            self.add_invariant(LinksIdentified(self.participants))
        if guarded:
            for number, host in enumerate(self.participants.hosts):
                others = [address for address in self.addresses if address != host.address]
                targets = rng.sample(others, min(3, len(others)))
                guardian = self.participants.add_guardian(host, (f"10.0.1.{number + 1}", PORT), targets, self.scale)
                guardian.start_delay = host.start_delay
        self.arrange()
        self.repeat(1.0, self._talk)
        for host in self.participants.hosts:
            self.repeat(6.0, partial(self._say, host))

    def _add_node(self, number: int, size: int, *, states: bool) -> None:
        rng = self.rng
        targets = self.link_targets(number)
        config = NodeConfig(
            network="sim",
            tag=f"node-{number + 1}",
            network_size=size,
            quorum=self.quorum,
            bootstrap=number == 0,
            targets=tuple(targets),
            timers=Timers(self.scale),
            irc_rate=20.0,
            irc_burst=20,
            # Nothing is drawn otherwise, so recorded seeds of other scenarios stay what they are.
            quick_lease=self.quick_probability > 0.0 and rng.random() < self.quick_probability,
        )
        host = self.participants.add(
            config.tag, self.addresses[number], config, StateDisk(states), multi_transport=self.multi_transport
        )
        host.start_delay = rng.uniform(0.0, 10.0)
        if self.drift:
            rate = round(rng.choice((1 - self.drift, 1 + self.drift, rng.uniform(1 - self.drift, 1 + self.drift))), 6)
            self.network.call_in(0.0, partial(host.set_clock, rate=rate))

    def link_targets(self, number: int) -> list[LinkTarget]:
        """Return the links that a node keeps open."""
        return [LinkTarget(self.addresses[other]) for one, other in self.edges if one == number]

    def fault_hosts(self) -> list[Host]:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_hosts`."""
        return self.participants.hosts

    def arrange(self) -> None:
        """Schedule the events of the scenario."""

    def _talk(self) -> None:
        self.operations += 1
        self.participants.talk()

    def _say(self, host: Host) -> None:
        retry = self.rng.random() < 0.3
        self.operate(host, "say", lambda node, now: self.participants.say(host, node, now, retry=retry))

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        hosts = [host for host in self.participants.hosts if host.up]
        return not hosts or (
            all(host.running and host.node.role is not Role.GONE for host in hosts) and find_disagreement(hosts) is None
        )

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        hosts = [host for host in self.participants.hosts if host.up]
        counts = Counter(
            {
                "lines talked": self.participants.lines_talked,
                "lines heard by a leader": self.participants.lines_heard,
                "lines received": self.line_agreement.received,
                "lines missed": self.line_agreement.missed,
                "lines wanted": len(self.participants.requested_lines),
                "lines said": sum(wish.send_count for wish in self.participants.requested_lines.values()),
                "terms": max((host.node.term for host in hosts), default=0),
            }
        )
        for name in ("elected", "leases_lost", "leases_slowed", "disagreements", "inducted"):
            counts[name.replace("_", " ")] = sum(host.node.counters[name] for host in hosts)
        return counts


def draw_topology(rng: Random, size: int) -> list[tuple[int, int]]:
    """Draw a topology of dialled links: full mesh, ring, star, line, or tree with a few extra links."""
    every = [(one, other) for one in range(size) for other in range(one)]
    kind = rng.choice(("all", "all", "both", "ring", "star", "line", "tree"))
    if kind == "all":
        edges = every
    elif kind == "both":
        edges = every + [(other, one) for one, other in every]
    elif kind == "ring":
        edges = [(one, (one + 1) % size) for one in range(size)]
    elif kind == "star":
        edges = [(one, 0) for one in range(1, size)]
    elif kind == "line":
        edges = [(one, one - 1) for one in range(1, size)]
    else:
        edges = [(one, rng.randrange(one)) for one in range(1, size)]
        edges += [edge for edge in every if edge not in edges and rng.random() < 0.3]
    return [edge if rng.random() < 0.5 else edge[::-1] for edge in edges] if kind != "both" else edges


class Calm(NetworkScenario):
    """A network of one to nine nodes without faults."""

    name = "hydra.calm"
    sizes = (1, 2, 3, 5, 9)
    duration = 90.0


class Storm(NetworkScenario):
    """All faults: partitions, one-way links, pauses, restarts, clock errors and crashes of the IRC server."""

    name = "hydra.storm"
    duration = 600.0
    fault_counts = (10, 60)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        modes = CrashMode.KILLED, CrashMode.POWER
        return [
            (2.0, fault_generators.crashes(names, kinds=modes, max_duration=20.0, after_persist=0.2)),
            (2.0, fault_generators.pauses(names, max_duration=25.0)),
            (4.0, fault_generators.cuts(names, max_duration=60.0)),
            (1.0, fault_generators.bad_links(names)),
            (1.0, fault_generators.resets(names)),
            (1.0, fault_generators.half_opens(names)),
            (0.5, fault_generators.refusals(names)),
            (0.5, fault_generators.slow_readers(names)),
            (1.0, fault_generators.clock_faults(names, max_offset=0.0, max_drift=MAX_CLOCK_DRIFT)),
        ]

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        for _ in range(self.rng.randrange(0, 4)):
            lasts = self.rng.choice((0.01, 3.0, 20.0))
            self.network.call_in(self.rng.uniform(30.0, self.duration), partial(self.participants.break_server, lasts))
        for _ in range(self.rng.randrange(0, 4)):
            host = self.rng.choice(self.participants.hosts)
            lasts = self.rng.uniform(0.5, 20.0)
            self.network.call_in(self.rng.uniform(30.0, self.duration), partial(self.participants.leave, host, lasts))


class Drift(Storm):
    """All faults of the storm, with a clock drift of up to 30 % on every host."""

    name = "hydra.clock-drift"
    aliases = ("hydra.drift",)
    duration = 400.0
    drift = MAX_CLOCK_DRIFT


class RepeatedPartitions(NetworkScenario):
    """Repeated partitions that outlast leases."""

    name = "hydra.long-partitions"
    aliases = ("hydra.islands",)
    sizes = (3, 5, 7)
    drift = MAX_CLOCK_DRIFT
    fault_counts = (4, 16)

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        if self.quorum is Quorum.FIXED:
            # Leave time for the first network to form.
            self.add_invariant(
                RecoversAfterPartition(self.participants, lambda: max(self.faults.ends_at, 40.0), self.drift)
            )

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (4.0, fault_generators.cuts(names, max_duration=50.0)),
            (1.0, fault_generators.pauses(names, max_duration=30.0)),
        ]


class Partitions(NetworkScenario):
    """One partition of one node, of all nodes, or in one direction, from a second to longer than any timeout."""

    name = "hydra.partitions"
    sizes = (3, 5)
    duration = 240.0

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        self.add_invariant(ReunitesAfterPartition(self.participants, lambda: self.faults.ends_at))

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.participants.hosts]
        at, lasts = round(rng.uniform(60.0, 70.0), 2), round(rng.uniform(1.0, 150.0), 2)
        kind = rng.choice(("lone", "all", "one way"))
        if kind == "all":
            sides = [(one, tuple(names[:number])) for number, one in enumerate(names) if number]
        else:
            lone = rng.choice(names)
            sides = [(lone, tuple(name for name in names if name != lone))]
        return FaultSchedule([PartitionFault(at, lasts, (one,), others, kind != "one way") for one, others in sides])


class LeaderChurn(NetworkScenario):
    """Repeated failures of the leader: kill, pause, leave, or loss of IRC."""

    name = "hydra.leader-failures"
    aliases = ("hydra.succession",)
    sizes = (3, 4, 5)
    duration = 400.0

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        at = 40.0
        while at < self.duration:
            self.network.call_in(at, self._inject_failure)
            at += self.rng.uniform(5.0, 60.0)

    def _inject_failure(self) -> None:
        leaders = [host for host in self.participants.hosts if host.running and host.node.role is Role.LEADER]
        if not leaders:
            return
        host = leaders[0]
        kind = self.rng.randrange(5)
        lasts = self.rng.uniform(0.2, 30.0)
        if kind == 0:
            host.stop(CrashMode.KILLED)
            self.network.call_in(lasts, host.start)
        elif kind == 1:
            host.stop(CrashMode.POWER)
            self.network.call_in(lasts, host.start)
        elif kind == 2 and host.pause():
            self.network.call_in(lasts, host.resume)
        elif kind == 3:
            self.participants.break_server(self.rng.choice((0.01, lasts)))
        else:
            self.participants.leave(host, lasts)


class Deaf(NetworkScenario):
    """Repeated partitions between a node and the IRC server, for moments or minutes."""

    name = "hydra.irc-partitions"
    aliases = ("hydra.deaf",)
    sizes = (1, 3, 5)
    duration = 400.0

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        at = 40.0
        while at < self.duration:
            self.network.call_in(at, self._inject_failure)
            at += self.rng.uniform(1.0, 40.0)

    def _inject_failure(self) -> None:
        leaders = [host for host in self.participants.hosts if host.up and host.node.role is Role.LEADER]
        host = self.rng.choice(leaders or self.participants.hosts)
        self.participants.cut_off_irc(
            host, self.rng.choice((0.02, 0.2, self.rng.uniform(0.0, 8.0), self.rng.uniform(0.0, 90.0)))
        )


class Blackout(NetworkScenario):
    """Simultaneous crash of all nodes."""

    name = "hydra.blackout"
    sizes = (3, 5)
    duration = 300.0

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.participants.hosts]
        faults: list[Fault] = []
        at = rng.uniform(40.0, 60.0)
        while at < self.duration:
            crash = rng.choice((CrashMode.KILLED, CrashMode.POWER))
            many = rng.choice((len(names), len(names), len(names) // 2 + 1))
            faults += [
                CrashFault(round(at + rng.uniform(0.0, 0.01), 4), round(rng.uniform(0.2, 5.0), 3), name, crash, False)
                for name in rng.sample(names, many)
            ]
            at += rng.uniform(40.0, 120.0)
        return FaultSchedule(sorted(faults, key=lambda fault: fault.at))


class Carriers(NetworkScenario):
    """TCP, UDP, IRC and FIFO links in one network, with lost and reordered datagrams and slow IRC."""

    name = "hydra.transports"
    aliases = ("hydra.carriers",)
    sizes = (3, 4, 5)
    multi_transport = True
    fault_counts = (0, 8)

    def link_targets(self, number: int) -> list[LinkTarget]:
        """See :class:`NetworkScenario`."""
        if number == 0:
            self.transports = [self.rng.choice(("tcp", "udp", "udp", "irc", "fifo")) for _ in self.edges]
        ports = {"udp": UDP_PORT, "irc": IRC_PORT}
        targets = []
        for (one, other), kind in zip(self.edges, self.transports, strict=True):
            # Both ends dial over IRC.
            for end, far in ((one, other), (other, one)) if kind == "irc" else ((one, other),):
                if end == number:
                    lines = 1.0 if kind == "irc" else None
                    targets.append(LinkTarget((self.addresses[far][0], ports.get(kind, PORT)), line_rate=lines))
        return targets

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        for (one, other), kind in zip(self.edges, self.transports, strict=True):
            ends = [self.addresses[one]], [self.addresses[other]]
            for sources, to in (ends, ends[::-1]):
                if kind == "udp":
                    self.network.override_links(sources, to, loss=0.05, duplication=0.02, jitter=0.03)
                elif kind == "irc":
                    self.network.override_links(sources, to, delay=0.2, jitter=0.0)
                elif kind == "fifo":
                    self.network.override_links(sources, to, delay=0.00005, jitter=0.0)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (1.0, fault_generators.crashes(names, max_duration=20.0)),
            (1.0, fault_generators.pauses(names, max_duration=20.0)),
            (1.0, fault_generators.cuts(names, max_duration=30.0)),
            (1.0, fault_generators.resets(names)),
        ]


class LegacyNodes(NetworkScenario):
    """A peer that behaves like the reference implementation joins."""

    name = "hydra.legacy-peers"
    aliases = ("hydra.guests",)
    sizes = (3, 5)
    fault_counts = (0, 6)

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        for number in range(self.rng.randrange(1, 4)):
            address: Address = (f"10.0.2.{number + 1}", PORT)
            targets = self.rng.sample(self.addresses, self.rng.randrange(1, len(self.addresses)))
            self.participants.add_legacy_node(
                f"reference-{number + 1}", address, targets
            ).start_delay = self.rng.uniform(0.0, 60.0)

    def fault_kinds(self, names: list[str]) -> FaultKinds:
        """See :meth:`~fyrehose_twisted.sim.scenario.Scenario.fault_kinds`."""
        return [
            (1.0, fault_generators.crashes(names, max_duration=20.0)),
            (1.0, fault_generators.cuts(names, max_duration=30.0)),
        ]


class QuickLeases(Drift):
    """The storm and clock drift with quick leases, on some of the nodes or on all."""

    name = "hydra.quick-leases"
    quick_probability = 0.75


class QuickPartitions(RepeatedPartitions):
    """Repeated partitions with quick leases on all nodes."""

    name = "hydra.quick-partitions"
    quick_probability = 1.0


class QuickCarriers(Carriers):
    """Quick leases over TCP, UDP and FIFO links, and IRC links too slow for them."""

    name = "hydra.quick-carriers"
    quick_probability = 1.0


class Handovers(Storm):
    """Applications hand their state over while nodes crash, and are partitioned, paused and restarted."""

    name = "hydra.handovers"
    duration = 300.0

    def arrange(self) -> None:
        """See :class:`NetworkScenario`."""
        super().arrange()
        self.state_agreement = StateAgreement(self.participants)
        self.add_invariant(self.state_agreement)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        counts = super().statistics()
        counts["states restored"] = self.state_agreement.restored
        return counts


class UnsafeQuorum(RepeatedPartitions):
    """Quorum of the document, which is known to elect two leaders; shows that the invariants detect them."""

    name = "hydra.unsafe"
    quorum = Quorum.REGISTRY


SCENARIOS: tuple[type[Scenario], ...] = (
    Calm,
    Storm,
    Drift,
    RepeatedPartitions,
    Partitions,
    LeaderChurn,
    Deaf,
    Blackout,
    Carriers,
    LegacyNodes,
    QuickLeases,
    QuickPartitions,
    QuickCarriers,
    Handovers,
)
"""Scenarios in which all invariants hold; :class:`UnsafeQuorum` is not one of them."""
