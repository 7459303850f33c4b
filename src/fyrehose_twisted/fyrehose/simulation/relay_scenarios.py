"""Simulated scenarios of relays in trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, Start
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    AcknowledgedArePublished,
    ExactlyOnce,
    InOrder,
    NumbersDurableFirst,
    Participants,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded
from fyrehose_twisted.fyrehose.simulation.invariants.relays import (
    NothingLostInTree,
    OneParentDelivers,
    RelayMemoryBounded,
    SameNumbersEverywhere,
    SilentParentReplaced,
)
from fyrehose_twisted.fyrehose.simulation.invariants.repair import LossOnlyAfterRetries
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE, BackboneHost
from fyrehose_twisted.fyrehose.simulation.relay_hosts import RelayHost
from fyrehose_twisted.fyrehose.simulation.workload import RAW_CONFIG, ClientProfile, FyrehoseScenario
from fyrehose_twisted.fyrehose.wire.packets import Dialect
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode

LEVELS = (2, 3, 4)
"""Number of relays at each level below the backbone."""

RELAY_RETRANSMIT = (0, 4_000, 2**20)
"""Bytes of history of a relay, one of which is drawn."""


class Relays(FyrehoseScenario):
    """A tree of relays at three levels, some with several parents. Relays die, are paused and are cut off."""

    name: ClassVar[str] = "fyrehose.relays"
    duration: ClassVar[float] = 300.0
    messages: ClassVar[int] = 500
    pause_count: ClassVar[int] = 5
    fault_counts: ClassVar[tuple[int, int]] = (15, 40)
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("subscriber", resumes=True),
        ClientProfile("subscriber-2", resumes=True),
        ClientProfile("subscriber-v1", ClientConfig(dialect=Dialect.V1), resumes=True),
        ClientProfile("subscriber-raw", ClientConfig(raw=True)),
        ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
        ClientProfile("subscriber-small", ClientConfig(buffer_bytes=4_000, history_bytes=40_000), resumes=True),
        ClientProfile("publisher", publishes=True),
        ClientProfile("publisher-2", publishes=True),
        ClientProfile("publisher-only", ClientConfig(subscribe=False), publishes=True),
        ClientProfile("publisher-raw", RAW_CONFIG, publishes=True),
        ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=120.0),
        ClientProfile("late-numbered", ClientConfig(start=50), start_delay=150.0, resumes=True),
        ClientProfile("late", start_delay=200.0),
    )
    spread: ClassVar[bool] = True
    """Whether clients are at all levels, and not only at the lowest."""

    relays: list[RelayHost]

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        self.backbone = BackboneHost(self.network, self.backbone_config(), self._make_rng())
        rng = self._make_rng()
        self.levels = self._make_relays(rng)
        self.relays = [relay for level in self.levels for relay in level]
        self.participants = []
        for number, profile in enumerate(self.profiles, 1):
            level = rng.choice(self.levels) if self.spread else self.levels[-1]
            parents = [relay.address for relay in rng.sample(level, min(len(level), rng.choice((1, 2, 2))))]
            self.participants.append(self._make_participant(profile, (f"10.0.1.{number}", 4_000), parents))
        self.publishers = [one for one, role in zip(self.participants, self.profiles, strict=True) if role.publishes]
        self._arrange_workload()
        self.add_invariants(Participants(self.network, self.backbone, self.participants))

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`. The backbone holds the whole stream."""
        return replace(super().backbone_config(), retransmit=32 * 2**20)

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        self.content = SameNumbersEverywhere(participants, self.relays)
        self.progress = StreamProgress(participants, self.content)
        for invariant in (
            self.progress,
            self.content,
            InOrder(participants, self.content),
            ExactlyOnce(participants),
            AcknowledgedArePublished(participants, self.content),
            LossOnlyAfterRetries(participants),
            NothingLostInTree(participants),
            OneParentDelivers(participants, self.relays),
            SilentParentReplaced(participants, self.relays),
            MemoryBounded(participants),
            RelayMemoryBounded(participants, self.relays),
        ):
            self.add_invariant(invariant)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        relays = [relay.host.name for relay in self.relays]
        return (
            (4.0, fault_generators.crashes(relays, kinds=(CrashMode.KILLED,))),
            (2.0, fault_generators.pauses(relays, max_duration=8.0)),
            (1.0, fault_generators.crashes(self._client_names, kinds=(CrashMode.KILLED,))),
            (1.0, fault_generators.pauses(self._client_names)),
            (3.0, fault_generators.cuts([*relays, "backbone"])),
            (2.0, fault_generators.cuts([*relays, *self._client_names])),
            (4.0, fault_generators.bad_links([*relays, "backbone", *self._client_names])),
        )

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        total = super().statistics()
        for relay in self.relays:
            if relay.host.up:
                counters = relay.node.downstream.relay_counters
                total["REQUESTs passed up"] += counters.requests_passed
                total["repairs passed down"] += counters.repairs_passed
                total["confirmations returned"] += counters.returned
                total["parents changed"] += relay.node.upstream.counters.leader_changes
        return total

    def _make_relays(self, rng: Random) -> list[list[RelayHost]]:
        levels: list[list[RelayHost]] = []
        above: list[Address] = [BACKBONE]
        for depth, count in enumerate(LEVELS, 1):
            level = [self._make_relay(rng, depth, number, above) for number in range(1, count + 1)]
            above = [relay.address for relay in level]
            levels.append(level)
        return levels

    def _make_relay(self, rng: Random, depth: int, number: int, above: Sequence[Address]) -> RelayHost:
        parents = rng.sample(above, min(len(above), rng.choice((1, 2, 2))))
        address = f"10.0.{2 + depth}.{number}", 2323
        return RelayHost(
            self.network,
            f"relay-{depth}-{number}",
            address,
            parents,
            *self._relay_configs(address, rng),
            self._make_rng(),
            answer_repairs=rng.random() < 0.5,
        )

    def _relay_configs(self, address: Address, rng: Random) -> tuple[BackboneConfig, ClientConfig]:
        """Return the configuration of both sides of a relay."""
        return BackboneConfig(retransmit=rng.choice(RELAY_RETRANSMIT)), ClientConfig(raw=True)


class HostileRelays(Relays):
    """Damaged datagrams are delivered, and an adversary sends arbitrary ones to relays and their clients. No node
    raises, memory stays bounded, and valid traffic continues."""

    name: ClassVar[str] = "fyrehose.relays-garbage"

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        self._add_adversary()

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`. Damaged packets may contain anything, so contents are not checked."""
        self.content = NumbersDurableFirst(participants)
        self.progress = StreamProgress(participants, self.content, share=0.9)
        for invariant in (
            self.content,
            MemoryBounded(participants),
            RelayMemoryBounded(participants, self.relays),
            self.progress,
        ):
            self.add_invariant(invariant)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        relays = [relay.host.name for relay in self.relays]
        hosts = [*relays, "backbone", *self._client_names]
        return (
            (8.0, fault_generators.bad_links(hosts, deliver_corrupted=True)),
            (1.0, fault_generators.crashes(relays)),
            (0.5, fault_generators.crashes(self._client_names)),
        )


SCENARIOS: tuple[type[FyrehoseScenario], ...] = (Relays, HostileRelays)
