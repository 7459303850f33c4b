"""Simulated scenario of sealed payloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig, Start
from fyrehose_twisted.fyrehose.simulation.adversaries import ADVERSARY_ADDRESS
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    ADVERSARY,
    ExactlyOnce,
    InOrder,
    Participants,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded
from fyrehose_twisted.fyrehose.simulation.invariants.sealing import SealedContent, SealedDelivery
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE, Participant
from fyrehose_twisted.fyrehose.simulation.path_host import PathHost
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile, FyrehoseScenario
from fyrehose_twisted.interfaces import IPayloadOpener, IPayloadSealer
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import KEY_SIZE, SealKey
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.outcome import Refusal
from fyrehose_twisted.sealing.sealer import PayloadSealer
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode


class Sealed(FyrehoseScenario):
    """Publishers seal, and a host on the path replays, changes and forges messages. Nodes crash and restart."""

    name: ClassVar[str] = "fyrehose.sealed"
    messages: ClassVar[int] = 700
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("subscriber", resumes=True),
        ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
        ClientProfile("publisher", publishes=True),
        ClientProfile("publisher-only", ClientConfig(subscribe=False), publishes=True),
        ClientProfile("publisher-bare", ClientConfig(outbox=OutboxConfig(raw=True)), publishes=True),
        ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=200.0),
    )

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        secret = Random(f"{self.seed}/key").randbytes(KEY_SIZE)
        key = SealKey(Random(f"{self.seed}/algorithm").choice(("chacha20-poly1305", "aes-256-gcm")), secret)
        self.ring, elsewhere = (KeyRing(f"fyrehose://{name}", [key]) for name in ("sealed", "elsewhere"))
        super().build()
        rng = self._make_rng()
        sealer = PayloadSealer(elsewhere, self._make_rng())
        self.network.add(
            ADVERSARY, ADVERSARY_ADDRESS, lambda boot: PathHost(BACKBONE, rng, boot.now, self.duration, sealer)
        )

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        content = self.content = SealedContent(participants)
        self.progress = StreamProgress(participants, content)
        for invariant in (
            self.progress,
            content,
            SealedDelivery(participants, content),
            InOrder(participants, content),
            ExactlyOnce(participants),
            MemoryBounded(participants),
        ):
            self.add_invariant(invariant)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (4.0, fault_generators.crashes(self._client_names)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (2.0, fault_generators.pauses(self._client_names)),
            (4.0, fault_generators.bad_links(self._host_names, hub="backbone")),
            (1.0, fault_generators.clock_faults(self._host_names)),
        )

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        total = super().statistics()
        for one in self.participants:
            for application in one.applications:
                total["opened"] += application.client.counters.opened
                total["refused"] += sum(application.client.drops.counts[reason] for reason in Refusal)
        return total

    def _make_participant(
        self, profile: ClientProfile, address: Address, backbones: Sequence[Address] = (BACKBONE,)
    ) -> Participant:
        participant = super()._make_participant(profile, address, backbones)
        rng = self._make_rng()

        def make_seals() -> tuple[IPayloadSealer, IPayloadOpener]:
            return PayloadSealer(self.ring, Random(rng.getrandbits(64))), PayloadOpener(self.ring)

        participant.make_seals = make_seals
        return participant
