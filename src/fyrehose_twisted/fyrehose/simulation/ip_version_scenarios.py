"""Simulated scenarios of hosts with IPv4, IPv6 or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, Start
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import Participants
from fyrehose_twisted.fyrehose.simulation.invariants.ip_versions import IpVersionsRespected
from fyrehose_twisted.fyrehose.simulation.invariants.repair import HeldMessagesFound
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE, BackboneHost, Participant
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile, FyrehoseScenario
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.link import Link

BACKBONE6: Address = ("fd00::1", 2323)

FOUR, SIX, BOTH = ClientConfig(ip_versions=(4,)), ClientConfig(ip_versions=(6,)), ClientConfig(ip_versions=(4, 6))
DOCUMENTS = ClientConfig()
"""Client that tells nothing of IP versions."""

LATE_STARTS: Sequence[tuple[str, Start | int, float]] = (
    ("live", Start.LIVE, 300.0),
    ("first", 1, 450.0),
    ("oldest", Start.OLDEST, 460.0),
)
"""Kind of late joiner, its start position, and when it joins in seconds."""


class IpVersions(FyrehoseScenario):
    """Clients with IPv4, IPv6 or both on one backbone, of which one holds the whole stream, and packets are lost. Late
    joiners of each kind still receive the beginning: from it, or through the backbone."""

    name: ClassVar[str] = "fyrehose.ip-versions"
    pause_count: ClassVar[int] = 0
    fault_counts: ClassVar[tuple[int, int]] = (0, 0)
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("publisher-4", replace(FOUR, history_bytes=4_000), publishes=True),
        ClientProfile("publisher-6", replace(SIX, history_bytes=4_000), publishes=True, over_ipv6=True),
        *(
            ClientProfile(f"{name}-{kind}", replace(config, start=start), start_delay=delay, over_ipv6=over_ipv6)
            for name, config, over_ipv6 in (
                ("only-4", FOUR, False),
                ("only-6", SIX, True),
                ("both-over-4", BOTH, False),
                ("both-over-6", BOTH, True),
                ("documents-4", DOCUMENTS, False),
                ("documents-6", DOCUMENTS, True),
            )
            for kind, start, delay in LATE_STARTS
        ),
    )
    HOLDER_PROFILES: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("holder", FOUR),
        ClientProfile("holder", FOUR, has_journal=True),
        ClientProfile("holder", DOCUMENTS),
        ClientProfile("holder", BOTH),
        ClientProfile("holder", SIX, over_ipv6=True),
        ClientProfile("holder", SIX, has_journal=True, over_ipv6=True),
        ClientProfile("holder", BOTH, over_ipv6=True),
    )

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        holder = Random(f"{self.seed}/holder").choice(self.HOLDER_PROFILES)
        self.profiles = (holder, *type(self).profiles)  # type: ignore[misc]
        super().build()

    def make_backbone(self) -> BackboneHost:
        """See :class:`FyrehoseScenario`."""
        return BackboneHost(self.network, self.backbone_config(), self._make_rng(), BACKBONE6)

    def make_client(self, number: int, profile: ClientProfile) -> Participant:
        """See :class:`FyrehoseScenario`."""
        four, six = (f"10.0.1.{number}", 4_000), (f"fd00::1:{number:x}", 4_000)
        first, second, backbone = (six, four, BACKBONE6) if profile.over_ipv6 else (four, six, BACKBONE)
        client = self._make_participant(profile, first, (backbone,))
        if len(profile.config.ip_versions) > 1:
            self.network.add_address(client.host, second)
        return client

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
        self.add_invariant(IpVersionsRespected(participants))


class IpVersionStorm(IpVersions):
    """Clients with IPv4, IPv6 or both, and all kinds of faults at once."""

    name: ClassVar[str] = "fyrehose.ip-version-storm"
    pause_count: ClassVar[int] = 20
    fault_counts: ClassVar[tuple[int, int]] = (25, 60)

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`. Faults may cost messages."""
        FyrehoseScenario.add_invariants(self, participants)
        self.add_invariant(IpVersionsRespected(participants))

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return self._all_faults()


SCENARIOS: tuple[type[FyrehoseScenario], ...] = (IpVersions, IpVersionStorm)
"""Scenarios that ``fyrehose simulate --list`` shows."""
