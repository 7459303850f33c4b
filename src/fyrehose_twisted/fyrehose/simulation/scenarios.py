"""Simulated scenarios of fyrehose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import ClassVar

from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, OutboxConfig, Start
from fyrehose_twisted.fyrehose.events import ExistingStreamDetected
from fyrehose_twisted.fyrehose.node.backbone.backbone import BackboneState
from fyrehose_twisted.fyrehose.simulation import (
    ip_version_scenarios,
    mac_scenario,
    multicast_scenarios,
    relay_scenarios,
    takeover_scenarios,
)
from fyrehose_twisted.fyrehose.simulation.adversaries import ADVERSARY_ADDRESS, Adversary
from fyrehose_twisted.fyrehose.simulation.invariants.access import AccessControlled
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    ADVERSARY,
    NumbersDurableFirst,
    Participants,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.journals import (
    DurabilityReportsHold,
    DurableRecordsSurvive,
    StableBelowWatermark,
)
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded
from fyrehose_twisted.fyrehose.simulation.invariants.repair import HeldMessagesFound
from fyrehose_twisted.fyrehose.simulation.journal_hosts import JournalHost
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE
from fyrehose_twisted.fyrehose.simulation.sealed_scenario import Sealed
from fyrehose_twisted.fyrehose.simulation.transient_clients import TransientClient
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile, FyrehoseScenario
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.link import Link


class Storm(FyrehoseScenario):
    """All kinds of clients, late joiners, and all kinds of faults at once."""

    name: ClassVar[str] = "fyrehose.storm"

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (3.0, fault_generators.crashes(self._client_names)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (3.0, fault_generators.pauses(self._client_names, max_duration=12.0)),
            (1.0, fault_generators.pauses(["backbone"])),
            (4.0, fault_generators.cuts(self._host_names, hub="backbone")),
            (6.0, fault_generators.bad_links(self._host_names, hub="backbone")),
            (2.0, fault_generators.clock_faults(self._host_names)),
        )


class Restarts(FyrehoseScenario):
    """The backbone is killed and loses power repeatedly, also between storing a number and sending it."""

    name: ClassVar[str] = "fyrehose.restarts"

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (
                5.0,
                fault_generators.crashes(
                    ["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), max_duration=8.0, after_persist=0.4
                ),
            ),
            (2.0, fault_generators.crashes(self._client_names)),
            (1.0, fault_generators.pauses(["backbone"])),
            (2.0, fault_generators.bad_links(self._host_names, hub="backbone")),
        )


class Partitions(FyrehoseScenario):
    """Hosts are partitioned from the backbone or from one another for a long time, in one or both directions."""

    name: ClassVar[str] = "fyrehose.partitions"

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (6.0, fault_generators.cuts(self._host_names, max_duration=30.0, hub="backbone")),
            (1.0, fault_generators.bad_links(self._host_names, hub="backbone")),
            (1.0, fault_generators.clock_faults(self._host_names)),
        )


class Journals(FyrehoseScenario):
    """Durable journals on disks that lose power during writes, fill up, and temporarily cannot be read or written."""

    name: ClassVar[str] = "fyrehose.journals"
    messages: ClassVar[int] = 1_200
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("journal-1", ClientConfig(start=Start.OLDEST), has_journal=True),
        ClientProfile("journal-2", has_journal=True),
        ClientProfile("journal-late", ClientConfig(start=Start.OLDEST), has_journal=True, start_delay=150.0),
        ClientProfile("subscriber", resumes=True),
        ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
        ClientProfile("publisher", publishes=True, kept=1),
        ClientProfile("publisher-only", ClientConfig(subscribe=False), publishes=True, kept=2),
        ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=300.0),
    )

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(participants)
        self.durability_reports = DurabilityReportsHold(participants)
        self.add_invariant(self.durability_reports)
        self.add_invariant(DurableRecordsSurvive(participants, self.content))
        self.add_invariant(StableBelowWatermark(participants))

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        keepers = [one.name for one in self.participants if isinstance(one, JournalHost)]
        return (
            (4.0, fault_generators.power_cuts(keepers, max_bytes=20_000)),
            (2.0, fault_generators.crashes(keepers, kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (1.0, fault_generators.disk_errors(keepers)),
            (0.3, fault_generators.crashes(keepers, kinds=(CrashMode.DISK,))),
            (1.0, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (3.0, fault_generators.bad_links(self._host_names, hub="backbone")),
            (1.0, fault_generators.cuts(self._host_names, hub="backbone")),
        )


class Rot(Journals):
    """Bit rot and power failures on the disks of journals. Damaged records are reported and repaired."""

    name: ClassVar[str] = "fyrehose.bit-rot"
    aliases: ClassVar[tuple[str, ...]] = ("fyrehose.rot",)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        keepers = [one.name for one in self.participants if isinstance(one, JournalHost)]
        return (
            (6.0, fault_generators.bit_rot(keepers)),
            (3.0, fault_generators.crashes(keepers, kinds=(CrashMode.KILLED, CrashMode.POWER))),
            (1.0, fault_generators.power_cuts(keepers, max_bytes=20_000)),
            (1.0, fault_generators.bad_links(self._host_names, hub="backbone")),
        )


class Crowd(FyrehoseScenario):
    """Many subscribers and busy publishers on narrow links."""

    name: ClassVar[str] = "fyrehose.congestion"
    aliases: ClassVar[tuple[str, ...]] = ("fyrehose.crowd",)
    messages: ClassVar[int] = 1_000
    profiles: ClassVar[Sequence[ClientProfile]] = (
        *(ClientProfile(f"publisher-{number}", publishes=True) for number in range(5)),
        *(ClientProfile(f"subscriber-{number}", resumes=True, start_delay=10.0 * number) for number in range(15)),
    )

    def make_link(self, rng: Random) -> Link:
        """See :class:`FyrehoseScenario`."""
        return replace(super().make_link(rng), bandwidth=rng.uniform(50_000, 500_000), queue=65_536)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (1.0, fault_generators.crashes(self._client_names)),
            (1.0, fault_generators.pauses(self._client_names, max_duration=12.0)),
            (3.0, fault_generators.bad_links(self._host_names, hub="backbone")),
        )


class Bystanders(FyrehoseScenario):
    """One client holds the whole stream, many others joined late and hold its end, and packets are lost. Late joiners
    still receive the beginning. In half of the runs the holder has a durable journal, in the others memory."""

    name: ClassVar[str] = "fyrehose.late-joiners"
    aliases: ClassVar[tuple[str, ...]] = ("fyrehose.bystanders",)
    pause_count: ClassVar[int] = 0
    fault_counts: ClassVar[tuple[int, int]] = (0, 0)
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("publisher", ClientConfig(history_bytes=4_000), publishes=True),
        *(ClientProfile(f"bystander-{number}", start_delay=300.0 + number) for number in range(12)),
        ClientProfile("late-numbered", ClientConfig(start=1), start_delay=450.0),
        ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=455.0),
        ClientProfile("late-journal", ClientConfig(start=Start.OLDEST), has_journal=True, start_delay=460.0),
    )
    HOLDER_PROFILES: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("holder", has_journal=True),
        ClientProfile("holder"),
    )

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        holder = Random(f"{self.seed}/holder").choice(self.HOLDER_PROFILES)
        self.profiles = (holder, *type(self).profiles)  # type: ignore[misc]
        super().build()

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), retransmit=4_000)

    def make_link(self, rng: Random) -> Link:
        """See :class:`FyrehoseScenario`."""
        return replace(super().make_link(rng), loss=rng.uniform(0.0, 0.05))

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(participants)
        self.add_invariant(HeldMessagesFound(participants))


class Garbage(FyrehoseScenario):
    """Damaged datagrams are delivered, and an adversary sends arbitrary ones. No node raises, memory stays bounded, and
    valid traffic continues."""

    name: ClassVar[str] = "fyrehose.garbage"

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        self._add_adversary()

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`.

        Damaged packets may contain anything, so contents are not checked. A subscriber may also have started at a
        damaged number, and wait until the stream reaches it.
        """
        self.content = NumbersDurableFirst(participants)
        self.progress = StreamProgress(participants, self.content, share=0.9)
        for invariant in (self.content, MemoryBounded(participants), self.progress):
            self.add_invariant(invariant)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (8.0, fault_generators.bad_links(self._host_names, hub="backbone", deliver_corrupted=True)),
            (1.0, fault_generators.crashes(self._client_names)),
            (0.5, fault_generators.crashes(["backbone"])),
        )


class Amnesia(FyrehoseScenario):
    """The backbone loses its disk repeatedly, and an operator restarts it above all numbers that clients have seen."""

    name: ClassVar[str] = "fyrehose.amnesia"

    OPERATOR_DELAY: ClassVar[float] = 3.0
    """Seconds until the operator acts."""

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        self.disks_replaced = 0
        self.backbone.host.on_event = self._on_backbone_event

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`.

        There are no link faults, because a backbone whose queries get no answer may restart its numbers.
        """
        return (
            (
                3.0,
                fault_generators.crashes(
                    ["backbone"], kinds=(CrashMode.DISK, CrashMode.POWER), max_duration=8.0, after_persist=0.3
                ),
            ),
            (4.0, fault_generators.crashes(self._client_names)),
        )

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"disks replaced": self.disks_replaced})

    def _on_backbone_event(self, event: object) -> None:
        if isinstance(event, ExistingStreamDetected):
            self.network.call_in(self.OPERATOR_DELAY, partial(self._start_at, self.rng.choice((1, 100, 5_000))))

    def _start_at(self, above: int) -> None:
        host = self.backbone.host
        if not host.running or self.backbone.node.state is not BackboneState.REFUSING:
            return
        host.stop()
        last = self.content.last + above - 1
        self.disks_replaced += 1
        self.backbone.start_at(last)


class Limits(FyrehoseScenario):
    """More clients join and leave than the backbone serves, an adversary lacks the secret, and queues are small."""

    name: ClassVar[str] = "fyrehose.limits"
    messages: ClassVar[int] = 1_500
    secret: ClassVar[bytes | None] = b"known to clients"
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("subscriber", resumes=True),
        ClientProfile("subscriber-small", ClientConfig(buffer_bytes=2_000, history_bytes=10_000), resumes=True),
        ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
        ClientProfile("publisher", ClientConfig(outbox=OutboxConfig(queue_messages=8)), publishes=True),
        ClientProfile(
            "publisher-only", ClientConfig(subscribe=False, outbox=OutboxConfig(queue_bytes=500)), publishes=True
        ),
        ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=200.0),
    )

    TRANSIENT_CLIENTS: ClassVar[int] = 8
    FREE_SLOTS: ClassVar[int] = 2

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        rng = self._make_rng()
        self.network.add(ADVERSARY, ADVERSARY_ADDRESS, lambda boot: self._make_adversary(rng, boot))
        for number in range(self.TRANSIENT_CLIENTS):
            address = f"10.0.2.{number}", 4_000
            config = ClientConfig(secret=self.secret, address=address)
            self.network.add(f"guest-{number}", address, partial(self._make_transient_client, config, self._make_rng()))

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), max_clients=len(self.profiles) + self.FREE_SLOTS)

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(participants)
        self.add_invariant(AccessControlled(participants))

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (2.0, fault_generators.crashes(self._client_names, max_duration=10.0)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (2.0, fault_generators.cuts(self._host_names, hub="backbone")),
            (3.0, fault_generators.bad_links(self._host_names, hub="backbone")),
            (1.0, fault_generators.clock_faults(self._host_names)),
        )

    def _make_adversary(self, rng: Random, boot: Boot) -> Adversary:
        return Adversary(self.network, rng, boot.now, self.duration, [BACKBONE])

    def _make_transient_client(self, config: ClientConfig, rng: Random, boot: Boot) -> TransientClient:
        return TransientClient(BACKBONE, config, rng, boot.now, boot.now + self.duration - 40)


SCENARIOS: tuple[type[FyrehoseScenario], ...] = (
    Storm,
    Restarts,
    Amnesia,
    Partitions,
    Journals,
    Rot,
    Crowd,
    Bystanders,
    Limits,
    Garbage,
    *ip_version_scenarios.SCENARIOS,
    *multicast_scenarios.SCENARIOS,
    Sealed,
    *mac_scenario.SCENARIOS,
    *takeover_scenarios.SCENARIOS,
    *relay_scenarios.SCENARIOS,
)
"""Scenarios that ``fyrehose simulate --list`` shows."""
