"""Simulated scenarios of a backbone with a multicast group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, Start
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import Participants
from fyrehose_twisted.fyrehose.simulation.invariants.multicast import GroupRepairsBounded, LeaderHeard, ListenersAgreed
from fyrehose_twisted.fyrehose.simulation.member_hosts import Group, MemberHost
from fyrehose_twisted.fyrehose.simulation.takeover_scenarios import CLIENTS, Takeovers
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile, FyrehoseScenario
from fyrehose_twisted.fyrehose.wire.packets import Dialect
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.link import Link

GROUP: Address = ("239.1.1.1", 2324)

LISTENS = ClientConfig(multicast=True)


class Multicast(FyrehoseScenario):
    """Clients that hear a multicast group, at times or never, beside clients that are served one by one, while packets
    get lost: for one client, or for all."""

    name: ClassVar[str] = "fyrehose.multicast"
    pause_count: ClassVar[int] = 5
    fault_counts: ClassVar[tuple[int, int]] = (0, 0)
    deaf_count: ClassVar[int] = 6
    """Number of times that the group does not reach a client for a while."""
    profiles: ClassVar[Sequence[ClientProfile]] = (
        *(ClientProfile(f"listener-{number}", LISTENS, resumes=True) for number in range(1, 7)),
        ClientProfile("listener-publisher", LISTENS, publishes=True),
        ClientProfile("listener-forgetful", replace(LISTENS, journal=False)),
        ClientProfile("listener-late", replace(LISTENS, start=Start.OLDEST), start_delay=200.0),
        ClientProfile("listener-deaf", LISTENS),
        ClientProfile("subscriber", resumes=True),
        ClientProfile("subscriber-v1", ClientConfig(dialect=Dialect.V1)),
        ClientProfile("publisher", publishes=True),
    )

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        deaf, rng = self.network.multicast.deaf, self._make_rng()
        listeners = [one.host.address for one in self.participants if one.config.multicast]
        for one in self.participants:
            if one.name == "listener-deaf":
                deaf.add(one.host.address)
                listeners.remove(one.host.address)
        for _ in range(self.deaf_count):
            address, at = rng.choice(listeners), rng.uniform(5.0, self.duration - 60.0)
            self.network.call_in(at, lambda address=address: deaf.add(address))  # type: ignore[misc]
            self.network.call_in(at + rng.uniform(0.5, 20.0), lambda address=address: deaf.discard(address))  # type: ignore[misc]

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), multicast=GROUP)

    def make_link(self, rng: Random) -> Link:
        """See :class:`FyrehoseScenario`."""
        return replace(super().make_link(rng), loss=rng.uniform(0.0, 0.05))

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(participants)
        self.add_invariant(ListenersAgreed(participants, always=not self.fault_counts[1]))
        self.add_invariant(GroupRepairsBounded(participants))


class MulticastStorm(Multicast):
    """A backbone with a multicast group, and all kinds of faults at once."""

    name: ClassVar[str] = "fyrehose.multicast-storm"
    pause_count: ClassVar[int] = 20
    fault_counts: ClassVar[tuple[int, int]] = (25, 60)

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return self._all_faults()


class MulticastTakeovers(Takeovers):
    """Three backbones with a multicast group each take over from one another, and clients listen to that of the
    leader."""

    name: ClassVar[str] = "fyrehose.multicast-members"
    profiles: ClassVar[Sequence[ClientProfile]] = tuple(
        one._replace(config=replace(one.config, multicast=True))
        if one.config.subscribe and one.config.dialect is Dialect.V2 and one.name != "learner"
        else one
        for one in CLIENTS
    )

    def _make_members(self, rng: Random) -> list[MemberHost]:
        members = super()._make_members(rng)
        for number, member in enumerate(members):
            member.config = replace(member.config, multicast=(f"239.1.1.{number + 1}", GROUP[1]))
        return members

    def _add_group_invariants(self, group: Group) -> None:
        super()._add_group_invariants(group)
        self.add_invariant(LeaderHeard(group))


SCENARIOS: tuple[type[FyrehoseScenario], ...] = (Multicast, MulticastStorm, MulticastTakeovers)
"""Scenarios that ``fyrehose simulate --list`` shows."""
