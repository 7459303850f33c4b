"""Simulated scenarios of groups of backbones that take over from one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, Start
from fyrehose_twisted.fyrehose.events import TakenOver
from fyrehose_twisted.fyrehose.node.backbone.sequencer import MEMBER_RESERVE, SequenceCheckpoint
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.simulation.invariants.access import JournalMatchesDelivery
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    AcknowledgedArePublished,
    ExactlyOnce,
    InOrder,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.journals import (
    DurabilityReportsHold,
    DurableRecordsSurvive,
    StableBelowWatermark,
)
from fyrehose_twisted.fyrehose.simulation.invariants.leadership import LeaderElected
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded
from fyrehose_twisted.fyrehose.simulation.invariants.numbering import (
    BoundsDurableFirst,
    GroupMessages,
    OneMemberNumbers,
)
from fyrehose_twisted.fyrehose.simulation.invariants.repair import LossOnlyAfterRetries
from fyrehose_twisted.fyrehose.simulation.invariants.seams import HeldNumbersKept, KeptMessagesStay
from fyrehose_twisted.fyrehose.simulation.member_hosts import STREAM, Group, MemberHost, addresses_of, hand_over
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile, FyrehoseScenario
from fyrehose_twisted.fyrehose.wire.packets import Dialect
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.faults.faults import CrashFault, Fault, LinkFault, PartitionFault
from fyrehose_twisted.sim.faults.stream_faults import Reset
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.schedule import FaultSchedule

MAX_DRIFT = 0.045
"""Maximum deviation of the clock rate of a member, so that rates differ by less than 10 %."""

PROCESS_STOP_TIME = 2.0
"""Seconds after which a supervisor kills a process that it has asked to stop."""

RESERVES = (4, 40, 1_000, MEMBER_RESERVE)
"""Counts of numbers by which the bound is kept ahead: few, so that a leader often waits for more, or as by default."""

FORMER_CHECKPOINT = SequenceCheckpoint(500, 1_024)
"""State file of a single backbone that served the stream before there was a group."""

CLIENTS = (
    ClientProfile("journal-1", ClientConfig(start=Start.OLDEST), has_journal=True),
    ClientProfile("journal-2", has_journal=True),
    ClientProfile("subscriber", resumes=True),
    ClientProfile("subscriber-raw", ClientConfig(raw=True)),
    ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
    ClientProfile("watcher", ClientConfig(watch=True)),
    ClientProfile("publisher", publishes=True),
    ClientProfile("publisher-kept", publishes=True, kept=1),
    ClientProfile("publisher-only", ClientConfig(subscribe=False), publishes=True),
    ClientProfile("publisher-only-kept", ClientConfig(subscribe=False), publishes=True, kept=2),
    ClientProfile("learner", backbones=1),
    ClientProfile("old", ClientConfig(dialect=Dialect.V1), backbones=1, must_follow=False),
    ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=120.0),
)


def splits(
    members: Sequence[str], clients: Sequence[str], *, max_duration: float = 8.0
) -> fault_generators.FaultGenerator:
    """Return a generator of partitions that leave members with some of the clients on both sides.

    Members and clients in neither side reach both, so that they may help a new leader while the former one still
    serves its clients.
    """

    def make(rng: Random, at: float) -> Fault:
        shuffled = rng.sample(members, len(members))
        left, right = shuffled[:1], shuffled[1 : rng.randint(2, len(members))]
        for client in clients:
            side = rng.choice((left, left, right, right, []))
            side.append(client)
        lasts, both_ways = round(rng.uniform(0.3, max_duration), 3), rng.random() < 0.7
        return PartitionFault(at, lasts, tuple(left), tuple(right), both_ways)

    return make


def isolate(rng: Random, at: float, members: Sequence[str], clients: Sequence[str]) -> list[Fault]:
    """Return faults that cut off one member from the others, one after the other, while some clients stay with it.

    If the member leads, the first one cut off seeks votes of others that have just promised not to give any. In some
    cases these restart, lose their connections, or answer slowly.
    """
    lonely, *others = rng.sample(members, len(members))
    sides: dict[str, list[str]] = {"with": [], "without": [], "both": []}
    for client in clients:
        sides[rng.choice(list(sides))].append(client)
    ends_at = at + 1.8 * len(others) + rng.uniform(0.5, 3.0)
    faults: list[Fault] = []
    if rng.random() < 0.4:
        delay = round(rng.uniform(0.05, 0.45), 3)
        changes = (("delay", delay),)
        faults.append(LinkFault(max(0.0, round(at - 2.0, 3)), 6.0, (lonely,), tuple(others), True, changes))
    for other in others:
        lasts, left, right = round(ends_at - at, 3), (lonely, *sides["with"]), (other, *sides["without"])
        trouble = rng.random()
        if trouble < 0.3:
            faults.append(CrashFault(round(at, 3), round(rng.uniform(0.02, 0.3), 3), other, CrashMode.KILLED, False))
        elif trouble < 0.5:
            faults.append(Reset(round(at, 3), 0.0, lonely, other))
        faults.append(PartitionFault(round(at, 3), lasts, left, right, True))
        at += rng.uniform(0.5, 1.8)
    return faults


def die_unheard(rng: Random, at: float, members: Sequence[str], clients: Sequence[str]) -> list[Fault]:
    """Return faults that kill a member whose last packets reach the clients only after another one has taken over."""
    member, delay = rng.choice(members), round(rng.uniform(0.5, 2.5), 3)
    dies_at = round(at + rng.uniform(0.05, 0.5), 3)
    return [
        LinkFault(round(at, 3), round(dies_at - at + 0.1, 3), (member,), tuple(clients), False, (("delay", delay),)),
        CrashFault(dies_at, round(rng.uniform(1.0, 4.0), 3), member, CrashMode.KILLED, False),
    ]


class Takeovers(FyrehoseScenario):
    """Three members are killed, paused, cut off and restarted under load, and hand over on purpose."""

    name: ClassVar[str] = "fyrehose.takeovers"
    duration: ClassVar[float] = 300.0
    messages: ClassVar[int] = 400
    profiles: ClassVar[Sequence[ClientProfile]] = CLIENTS
    fault_counts: ClassVar[tuple[int, int]] = (20, 40)
    pause_count: ClassVar[int] = 4
    member_names: ClassVar[Sequence[str]] = ("a", "b", "c")
    witnesses: ClassVar[frozenset[str]] = frozenset()
    blackouts: ClassVar[int] = 2
    """Number of times that all members crash at once."""
    isolations: ClassVar[int] = 3
    """Number of times that a member is cut off from the others one by one."""
    unheard_deaths: ClassVar[int] = 3
    """Number of times that a member dies while its last packets are still on their way to the clients."""
    mean_handover_interval: ClassVar[float] = 30.0
    mean_restart_interval: ClassVar[float] = 60.0
    mean_disk_loss_interval: ClassVar[float] = 100.0
    rush: ClassVar[int] = 25
    """Number of messages published around each fault of a member."""

    content: GroupMessages

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        rng = self._make_rng()
        self.taken_over: list[TakenOver] = []
        self.members = self._make_members(rng)
        addresses = addresses_of(self.members)
        self.participants = []
        for number, profile in enumerate(self.profiles, 1):
            known = rng.sample(addresses, profile.backbones or len(addresses))
            self.participants.append(self._make_participant(profile, (f"10.0.1.{number}", 4_000), known))
        self.publishers = [one for one, role in zip(self.participants, self.profiles, strict=True) if role.publishes]
        self.group = Group(self.network, self.members, self.participants)
        self._arrange_workload()
        self.repeat(self.mean_handover_interval, self._hand_over)
        self.repeat(self.mean_restart_interval, self._restart_leader)
        self.repeat(self.mean_disk_loss_interval, self._lose_disk)
        self._add_group_invariants(self.group)

    def _make_members(self, rng: Random) -> list[MemberHost]:
        names = self.member_names
        addresses: dict[str, Address] = {name: (f"10.0.0.{number}", 2_323) for number, name in enumerate(names, 1)}
        may_bootstrap = [name for name in names if name not in self.witnesses]
        bootstraps = may_bootstrap if rng.random() < 0.5 else [rng.choice(may_bootstrap)]
        # In some runs the stream had a single backbone before.
        reserve = rng.choice(RESERVES)
        former = rng.choice(may_bootstrap) if rng.random() < 0.2 else None
        members = []
        for name in names:
            config = MemberConfig(
                name=name,
                stream=STREAM,
                peers=tuple(address for other, address in addresses.items() if other != name),
                client_address=addresses[name],
                peer_address=addresses[name],
                bootstrap=name in bootstraps,
                witness=name in self.witnesses,
                reserve=reserve,
            )
            member = MemberHost(
                self.network,
                self.backbone_config(),
                config,
                self._make_rng(),
                checkpoint=FORMER_CHECKPOINT if name == former else None,
                start_delay=rng.uniform(0.0, 2.0),
            )
            member.host.set_clock(rate=1 + rng.uniform(-MAX_DRIFT, MAX_DRIFT))
            member.host.on_event = self._on_member_event
            members.append(member)
        return members

    def make_network(self, split_seed: int) -> Network:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`. Clients can answer a new leader in time."""
        rng = Random(f"{self.seed}/link")
        moment = rng.choice((0.0005, 0.002, 0.01))
        return Network(self.seed, self.make_link(rng), moment=moment, split=0.3, split_seed=split_seed)

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), max_clients=64)

    def _add_group_invariants(self, group: Group) -> None:
        messages = self.content = GroupMessages(group)
        messages.last_given[0] = FORMER_CHECKPOINT.bound
        self.progress = StreamProgress(group, messages)
        self.seams = HeldNumbersKept(group, messages)
        self.leadership = LeaderElected(group)
        for invariant in (
            self.progress,  # First, because without progress the other invariants fail too.
            messages,
            OneMemberNumbers(group, messages),
            BoundsDurableFirst(group, messages),
            self.seams,
            KeptMessagesStay(group, messages),
            self.leadership,
            InOrder(group, messages),
            ExactlyOnce(group),
            AcknowledgedArePublished(group, messages),
            LossOnlyAfterRetries(group),
            JournalMatchesDelivery(group, messages),
            DurabilityReportsHold(group),
            DurableRecordsSurvive(group, messages),
            StableBelowWatermark(group),
            MemoryBounded(group),
        ):
            self.add_invariant(invariant)

    # Faults

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`.

        The clock of a member only drifts, because its driver reads a clock that is never set.
        """
        members, clients = list(self.member_names), self._client_names
        crashes = (CrashMode.KILLED, CrashMode.POWER)
        return (
            (4.0, fault_generators.crashes(members, kinds=crashes, max_duration=8.0, after_persist=0.3)),
            (3.0, fault_generators.pauses(members, max_duration=6.0)),
            (2.0, fault_generators.cuts(members)),
            (1.0, fault_generators.cuts(members + clients)),
            (3.0, splits(members, clients)),
            (1.0, fault_generators.bad_links(members)),
            (2.0, fault_generators.bad_links(members + clients)),
            (0.5, fault_generators.resets(members)),
            (0.5, fault_generators.half_opens(members)),
            (0.5, fault_generators.slow_readers(members, max_duration=8.0)),
            (1.0, fault_generators.clock_faults(members, max_offset=0.0, max_drift=MAX_DRIFT)),
            (1.0, fault_generators.clock_faults(clients)),
            (2.0, fault_generators.crashes(clients)),
            (1.0, fault_generators.pauses(clients)),
        )

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        faults: list[Fault] = list(super().draw_faults(rng))
        for _ in range(self.isolations):
            at = rng.uniform(5.0, self.duration - 10.0)
            faults += isolate(rng, at, self.member_names, self._client_names)
        for _ in range(self.blackouts):
            at = rng.uniform(20.0, self.duration - 40.0)
            for name in self.member_names:
                crash = rng.choice((CrashMode.KILLED, CrashMode.POWER))
                begin, lasts = round(at + rng.uniform(0.0, 0.02), 4), round(rng.uniform(0.2, 4.0), 3)
                faults.append(CrashFault(begin, lasts, name, crash, False))
        for _ in range(self.unheard_deaths):
            at = rng.uniform(5.0, self.duration - 10.0)
            faults += die_unheard(rng, at, self.member_names, self._client_names)
        return FaultSchedule(faults)

    # Workload

    def _run(self) -> None:
        for fault in self.faults:
            if set(fault.host_names()) & set(self.member_names) and not isinstance(fault, Reset):
                rng = Random(f"{self.seed}/{fault.at}")
                for _ in range(self.rush):
                    at = fault.at + rng.uniform(-0.5, 2.5)
                    if 3.0 < at < self.duration:
                        self.network.call_in(at, partial(self._publish, rng.choice(self.publishers), b"rush"))
        super()._run()

    def _hand_over(self) -> None:
        for member in self.members:
            if member.host.running and member.node.leads:
                self.operate(member.host, "hand over", hand_over)

    def _restart_leader(self) -> None:
        """Stop the leader as a supervisor does, and start it again."""
        leader = self.group.leader or self.rng.choice(self.members)
        host, boots = leader.host, leader.host.boots
        self.operate(host, "prepare to stop", lambda node, now: node.prepare_to_stop(now))
        self.network.call_in(0.01, partial(self._stop_if_ready, leader, boots, self.network.elapsed))

    def _stop_if_ready(self, member: MemberHost, boots: int, asked_at: float) -> None:
        host = member.host
        if host.boots != boots or not host.up:
            return
        if host.running and (member.node.may_stop or self.network.elapsed > asked_at + PROCESS_STOP_TIME):
            host.stop(CrashMode.KILLED, "stopped")
            self.network.call_in(1.0, host.start)
        elif self.network.elapsed < asked_at + 2 * PROCESS_STOP_TIME:
            self.network.call_in(0.01, partial(self._stop_if_ready, member, boots, asked_at))

    def _lose_disk(self) -> None:
        # Two members without their state could make the group forget what it has agreed on.
        if self.group.is_whole:
            self.rng.choice(self.members).lose_disk(self.rng.uniform(0.5, 10.0))

    def _on_member_event(self, event: object) -> None:
        if isinstance(event, TakenOver):
            self.taken_over.append(event)

    # State

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return self.group.leader is not None and super().settled()

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        starts = self.content.starts.values()
        return super().statistics() + Counter(
            {
                "takeovers": len(self.taken_over),
                "seams": len(starts),
                "heads": self.seams.answers,
                "terms": max((one.node.raft.term for one in self.members if one.host.up), default=0),
                "given up": sum(self.content.is_skipped(number) for number in self.content.truth),
                "leaderless ms": round(1_000 * self.leadership.longest),
            }
        )

    @property
    def _host_names(self) -> list[str]:
        return [*self.member_names, *self._client_names]

    def fault_hosts(self) -> list[Host]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return [member.host for member in self.members]


class FiveTakeovers(Takeovers):
    """Five members take over from one another, and two may fail at once."""

    name: ClassVar[str] = "fyrehose.takeovers-five"
    member_names: ClassVar[Sequence[str]] = ("a", "b", "c", "d", "e")
    fault_counts: ClassVar[tuple[int, int]] = (30, 55)


class WitnessTakeovers(Takeovers):
    """Two members and a witness, which only votes."""

    name: ClassVar[str] = "fyrehose.takeovers-witness"
    member_names: ClassVar[Sequence[str]] = ("a", "b", "w")
    witnesses: ClassVar[frozenset[str]] = frozenset({"w"})


SCENARIOS: tuple[type[FyrehoseScenario], ...] = (Takeovers, FiveTakeovers, WitnessTakeovers)
"""Scenarios of groups that ``fyrehose simulate --list`` shows."""
