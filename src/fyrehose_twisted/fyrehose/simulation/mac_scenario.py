"""Simulated scenarios of forged addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, MacPolicy, Start
from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.simulation.adversaries import ADVERSARY_ADDRESS
from fyrehose_twisted.fyrehose.simulation.forger import MARK, Forger
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import ADVERSARY, ClientInvariant, Participants
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE
from fyrehose_twisted.fyrehose.simulation.relay_scenarios import Relays
from fyrehose_twisted.fyrehose.simulation.workload import ClientProfile, FyrehoseScenario
from fyrehose_twisted.fyrehose.wire.mac import MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import WITH_MAC, Dialect, PacketType
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.host import Host

SECRET = b"known to clients"

REQUIRES = ClientConfig(secret=SECRET, mac=MacPolicy.REQUIRE)

_OVERHEARD = (PacketType.DELIVER, PacketType.DELIVER | WITH_MAC, PacketType.KEEPALIVE)


class NothingForgedDelivered(ClientInvariant):
    """No application gets what a host without the secret has made up."""

    name: ClassVar[str] = "nothing forged is delivered"

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(event, MessagesDelivered):
            for message in event.messages:
                if MARK in message.data:
                    self.violated(f"{message.sequence} was delivered as {message.data!r}, which was forged", host)


class _ForgingHost(FyrehoseScenario):
    """A host on the path."""

    secret: ClassVar[bytes | None] = SECRET

    @property
    def relay_addresses(self) -> list[Address]:
        """Addresses of the relays."""
        return []

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        self.forgers: list[Forger] = []
        self.network.observers.sent.append(self._overhear, _OVERHEARD)
        self.network.add(ADVERSARY, ADVERSARY_ADDRESS, lambda boot: self._make_forger(self._make_rng(), boot))

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), stream="fyrehose://forged")

    def add_invariants(self, participants: Participants) -> None:
        """See :class:`FyrehoseScenario`."""
        self.add_invariant(NothingForgedDelivered(participants))
        super().add_invariants(participants)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        total = super().statistics()
        total["forged"] = sum(forger.sent for forger in self.forgers)
        for one in self.participants:
            for application in one.applications:
                total["refused"] += sum(application.client.drops.counts[why] for why in ("mac_missing", "mac_wrong"))
        return total

    def _make_forger(self, rng: Random, boot: Boot) -> Forger:
        relays = self.relay_addresses
        clients = [*relays, *(one.host.address for one in self.participants)]
        believers = [one.host.address for one in self.participants if one.config.mac is not MacPolicy.REQUIRE]
        elsewhere = MacKey(SECRET, make_stream_id("fyrehose://elsewhere"))
        self.forgers.append(
            Forger(self.network, rng, boot.now, self.duration, [BACKBONE, *relays], clients, believers, elsewhere)
        )
        return self.forgers[-1]

    def _overhear(self, packet: Any) -> None:
        for forger in self.forgers:
            forger.overhear(packet)


class Forged(_ForgingHost):
    """A host on the path forges the addresses of the backbone and of clients, which have a secret that it lacks. Nodes
    crash and restart."""

    name: ClassVar[str] = "fyrehose.forged"
    messages: ClassVar[int] = 700
    profiles: ClassVar[Sequence[ClientProfile]] = (
        ClientProfile("subscriber", REQUIRES, resumes=True),
        ClientProfile("subscriber-offers"),
        ClientProfile("subscriber-forgetful", replace(REQUIRES, journal=False)),
        ClientProfile("subscriber-raw", replace(REQUIRES, raw=True)),
        ClientProfile("journal", REQUIRES, has_journal=True),
        ClientProfile("publisher", REQUIRES, publishes=True),
        ClientProfile("publisher-only", replace(REQUIRES, subscribe=False), publishes=True),
        ClientProfile("late-oldest", replace(REQUIRES, start=Start.OLDEST), start_delay=200.0),
    )

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (4.0, fault_generators.crashes(self._client_names)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (2.0, fault_generators.pauses(self._client_names)),
            (4.0, fault_generators.bad_links(self._host_names, hub="backbone")),
        )


class ForgedRelays(_ForgingHost, Relays):
    """A host on the path forges addresses in a tree of relays. Relays die, are paused and are cut off."""

    name: ClassVar[str] = "fyrehose.forged-relays"
    profiles: ClassVar[Sequence[ClientProfile]] = tuple(
        profile._replace(config=replace(profile.config, secret=SECRET, mac=MacPolicy.REQUIRE))
        for profile in Relays.profiles
        if profile.config.dialect is Dialect.V2
    )

    @property
    def relay_addresses(self) -> list[Address]:
        """See :class:`_ForgingHost`."""
        return [relay.address for relay in self.relays]

    def _relay_configs(self, address: Address, rng: Random) -> tuple[BackboneConfig, ClientConfig]:
        """See :class:`~fyrehose_twisted.fyrehose.simulation.relay_scenarios.Relays`."""
        backbone, client = super()._relay_configs(address, rng)
        # A relay with one socket takes repairs of its clients for some of its parent, so both sides need one key.
        return (
            replace(backbone, secret=SECRET, stream="fyrehose://forged"),
            replace(client, secret=SECRET, address=address, mac=MacPolicy.REQUIRE),
        )


SCENARIOS: tuple[type[FyrehoseScenario], ...] = (Forged, ForgedRelays)
"""Scenarios that ``fyrehose simulate --list`` shows."""
