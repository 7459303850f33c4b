"""What the simulator runs for this wing: what goes wrong, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import ClassVar

from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, OutboxConfig, Start
from fyrehose_twisted.fyrehose.events import StreamKnown
from fyrehose_twisted.fyrehose.node.backbone.backbone import Phase
from fyrehose_twisted.fyrehose.simulation.adversaries import STRANGER_ADDRESS, Stranger
from fyrehose_twisted.fyrehose.simulation.invariants.access import Admitted
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import STRANGER, Cast, GoesOn, Numbers
from fyrehose_twisted.fyrehose.simulation.invariants.journals import Durable, KeptAsTold, Unchanged
from fyrehose_twisted.fyrehose.simulation.invariants.memory import Bounded
from fyrehose_twisted.fyrehose.simulation.invariants.repair import Found
from fyrehose_twisted.fyrehose.simulation.journal_hosts import Keeper
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE
from fyrehose_twisted.fyrehose.simulation.transient_clients import Guest
from fyrehose_twisted.fyrehose.simulation.workload import SILENCE, FyrehoseScenario, Role
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import Boot, Crash
from fyrehose_twisted.sim.link import Link


class Storm(FyrehoseScenario):
    """Every kind of client, late joiners, and every kind of fault at once."""

    name: ClassVar[str] = "fyrehose.storm"

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (3.0, fault_generators.crashes(self._clients)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(Crash.KILLED, Crash.POWER), between=0.3)),
            (3.0, fault_generators.pauses(self._clients, longest=12.0)),
            (1.0, fault_generators.pauses(["backbone"])),
            (4.0, fault_generators.cuts(self._names, hub="backbone")),
            (6.0, fault_generators.bad_links(self._names, hub="backbone")),
            (2.0, fault_generators.clocks(self._names)),
        )


class Restarts(FyrehoseScenario):
    """The backbone is killed and loses power again and again, also between storing a number and sending it."""

    name: ClassVar[str] = "fyrehose.restarts"

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (5.0, fault_generators.crashes(["backbone"], kinds=(Crash.KILLED, Crash.POWER), longest=8.0, between=0.4)),
            (2.0, fault_generators.crashes(self._clients)),
            (1.0, fault_generators.pauses(["backbone"])),
            (2.0, fault_generators.bad_links(self._names, hub="backbone")),
        )


class Partitions(FyrehoseScenario):
    """Hosts are cut off from the backbone or from one another for long, in one direction or both."""

    name: ClassVar[str] = "fyrehose.partitions"

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (6.0, fault_generators.cuts(self._names, longest=30.0, hub="backbone")),
            (1.0, fault_generators.bad_links(self._names, hub="backbone")),
            (1.0, fault_generators.clocks(self._names)),
        )


class Journals(FyrehoseScenario):
    """Durable journals on disks that lose power in the midst of writing, fill up, and cannot be read or written for a
    while."""

    name: ClassVar[str] = "fyrehose.journals"
    messages: ClassVar[int] = 1_200
    roles: ClassVar[Sequence[Role]] = (
        Role("journal-1", ClientConfig(start=Start.OLDEST), keeps=True),
        Role("journal-2", keeps=True),
        Role("journal-late", ClientConfig(start=Start.OLDEST), keeps=True, begins=150.0),
        Role("subscriber", resumes=True),
        Role("subscriber-forgetful", ClientConfig(journal=False)),
        Role("publisher", publishes=True, kept=1),
        Role("publisher-only", ClientConfig(subscribe=False), publishes=True, kept=2),
        Role("late-oldest", ClientConfig(start=Start.OLDEST), begins=300.0),
    )

    def add_invariants(self, cast: Cast) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(cast)
        self.kept_as_told = KeptAsTold(cast)
        self.add_invariant(self.kept_as_told)
        self.add_invariant(Durable(cast, self.content))
        self.add_invariant(Unchanged(cast))

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        keepers = [one.name for one in self.participants if isinstance(one, Keeper)]
        return (
            (4.0, fault_generators.power_cuts(keepers, most=20_000)),
            (2.0, fault_generators.crashes(keepers, kinds=(Crash.KILLED, Crash.POWER), between=0.3)),
            (1.0, fault_generators.disks(keepers)),
            (0.3, fault_generators.crashes(keepers, kinds=(Crash.DISK,))),
            (1.0, fault_generators.crashes(["backbone"], kinds=(Crash.KILLED, Crash.POWER), between=0.3)),
            (3.0, fault_generators.bad_links(self._names, hub="backbone")),
            (1.0, fault_generators.cuts(self._names, hub="backbone")),
        )


class Rot(Journals):
    """Bits flip on the disks of journals, which lose power as well; what is damaged is named, and comes from others."""

    name: ClassVar[str] = "fyrehose.rot"

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        keepers = [one.name for one in self.participants if isinstance(one, Keeper)]
        return (
            (6.0, fault_generators.rots(keepers)),
            (3.0, fault_generators.crashes(keepers, kinds=(Crash.KILLED, Crash.POWER))),
            (1.0, fault_generators.power_cuts(keepers, most=20_000)),
            (1.0, fault_generators.bad_links(self._names, hub="backbone")),
        )


class Crowd(FyrehoseScenario):
    """Many subscribers and busy publishers on narrow links."""

    name: ClassVar[str] = "fyrehose.crowd"
    messages: ClassVar[int] = 1_000
    roles: ClassVar[Sequence[Role]] = (
        *(Role(f"publisher-{number}", publishes=True) for number in range(5)),
        *(Role(f"subscriber-{number}", resumes=True, begins=10.0 * number) for number in range(15)),
    )

    def make_link(self, rng: Random) -> Link:
        """See :class:`FyrehoseScenario`."""
        return replace(super().make_link(rng), bandwidth=rng.uniform(50_000, 500_000), queue=65_536)

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (1.0, fault_generators.crashes(self._clients)),
            (1.0, fault_generators.pauses(self._clients, longest=12.0)),
            (3.0, fault_generators.bad_links(self._names, hub="backbone")),
        )


class Bystanders(FyrehoseScenario):
    """One client holds the whole stream, many others joined late and hold its end, and packets get lost: whoever wants
    the beginning gets it. In half of the runs the holder keeps a durable journal, in the others memory."""

    name: ClassVar[str] = "fyrehose.bystanders"
    pauses: ClassVar[int] = 0
    fault_counts: ClassVar[tuple[int, int]] = (0, 0)
    roles: ClassVar[Sequence[Role]] = (
        Role("publisher", ClientConfig(history_bytes=4_000), publishes=True),
        *(Role(f"bystander-{number}", begins=300.0 + number) for number in range(12)),
        Role("late-numbered", ClientConfig(start=1), begins=450.0),
        Role("late-oldest", ClientConfig(start=Start.OLDEST), begins=455.0),
        Role("late-journal", ClientConfig(start=Start.OLDEST), keeps=True, begins=460.0),
    )
    HOLDERS: ClassVar[Sequence[Role]] = (Role("holder", keeps=True), Role("holder"))

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        holder = Random(f"{self.seed}/holder").choice(self.HOLDERS)
        self.roles = (holder, *type(self).roles)  # type: ignore[misc]
        super().build()

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), retransmit=4_000)

    def make_link(self, rng: Random) -> Link:
        """See :class:`FyrehoseScenario`."""
        return replace(super().make_link(rng), loss=rng.uniform(0.0, 0.05))

    def add_invariants(self, cast: Cast) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(cast)
        self.add_invariant(Found(cast))


class Garbage(FyrehoseScenario):
    """Damaged datagrams are delivered, and a stranger sends whatever it likes: nothing raises, nothing grows, and good
    traffic goes on."""

    name: ClassVar[str] = "fyrehose.garbage"

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        rng = self._rng()
        # A number too high is contradicted while the stream goes on, and believed in the end if it stands still.
        for second in range(3, int(self.duration + SILENCE), 3):
            self.network.call_in(second, partial(self._publish, rng.choice(self.publishers), b"tick"))
        self.network.add(
            STRANGER,
            STRANGER_ADDRESS,
            lambda boot: Stranger(self.network, rng, boot.now, self.duration, forges=True),
        )

    def add_invariants(self, cast: Cast) -> None:
        """See :class:`FyrehoseScenario`.

        What arrives damaged may say anything, so contents prove nothing; and one subscriber may have begun at a number
        that was damaged when nothing else came, and wait for the stream to get there.
        """
        self.content = Numbers(cast)
        self.progress = GoesOn(cast, self.content, share=0.9)
        for invariant in (self.content, Bounded(cast), self.progress):
            self.add_invariant(invariant)

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (8.0, fault_generators.bad_links(self._names, hub="backbone", garbling=True)),
            (1.0, fault_generators.crashes(self._clients)),
            (0.5, fault_generators.crashes(["backbone"])),
        )


class Amnesia(FyrehoseScenario):
    """The backbone loses its disk again and again; an operator makes it go on above all numbers that anyone saw."""

    name: ClassVar[str] = "fyrehose.amnesia"

    NOTICED: ClassVar[float] = 3.0
    """Seconds until the operator acts."""

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        self.repaired = 0
        self.backbone.host.on_event = self._backbone_told

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`.

        Links are as good as they are: a backbone that nobody can answer while it asks may count anew.
        """
        return (
            (3.0, fault_generators.crashes(["backbone"], kinds=(Crash.DISK, Crash.POWER), longest=8.0, between=0.3)),
            (4.0, fault_generators.crashes(self._clients)),
        )

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"disks replaced": self.repaired})

    def _backbone_told(self, event: object) -> None:
        if isinstance(event, StreamKnown):
            self.network.call_in(self.NOTICED, partial(self._start_at, self.rng.choice((1, 100, 5_000))))

    def _start_at(self, above: int) -> None:
        host = self.backbone.host
        if not host.running or self.backbone.node.phase is not Phase.REFUSING:
            return
        host.stop()
        last = self.content.last + above - 1
        self.repaired += 1
        self.backbone.start_at(last)


class Limits(FyrehoseScenario):
    """More clients than the backbone serves come and go, strangers do not know its secret, and little may be queued."""

    name: ClassVar[str] = "fyrehose.limits"
    messages: ClassVar[int] = 1_500
    secret: ClassVar[bytes | None] = b"known to clients"
    roles: ClassVar[Sequence[Role]] = (
        Role("subscriber", resumes=True),
        Role("subscriber-small", ClientConfig(buffer_bytes=2_000, history_bytes=10_000), resumes=True),
        Role("subscriber-forgetful", ClientConfig(journal=False)),
        Role("publisher", ClientConfig(outbox=OutboxConfig(queue_messages=8)), publishes=True),
        Role("publisher-only", ClientConfig(subscribe=False, outbox=OutboxConfig(queue_bytes=500)), publishes=True),
        Role("late-oldest", ClientConfig(start=Start.OLDEST), begins=200.0),
    )

    GUESTS: ClassVar[int] = 8
    FREE: ClassVar[int] = 2

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        super().build()
        rng = self._rng()
        self.network.add(STRANGER, STRANGER_ADDRESS, lambda boot: self._stranger(rng, boot))
        for number in range(self.GUESTS):
            address = f"10.0.2.{number}", 4_000
            config = ClientConfig(secret=self.secret, address=address)
            self.network.add(f"guest-{number}", address, partial(self._guest, config, self._rng()))

    def backbone_config(self) -> BackboneConfig:
        """See :class:`FyrehoseScenario`."""
        return replace(super().backbone_config(), max_clients=len(self.roles) + self.FREE)

    def add_invariants(self, cast: Cast) -> None:
        """See :class:`FyrehoseScenario`."""
        super().add_invariants(cast)
        self.add_invariant(Admitted(cast))

    def mix(self) -> Sequence[tuple[float, fault_generators.Maker]]:
        """See :class:`FyrehoseScenario`."""
        return (
            (2.0, fault_generators.crashes(self._clients, longest=10.0)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(Crash.KILLED, Crash.POWER), between=0.3)),
            (2.0, fault_generators.cuts(self._names, hub="backbone")),
            (3.0, fault_generators.bad_links(self._names, hub="backbone")),
            (1.0, fault_generators.clocks(self._names)),
        )

    def _stranger(self, rng: Random, boot: Boot) -> Stranger:
        return Stranger(self.network, rng, boot.now, self.duration, [BACKBONE])

    def _guest(self, config: ClientConfig, rng: Random, boot: Boot) -> Guest:
        return Guest(BACKBONE, config, rng, boot.now, boot.now + self.duration - 40)


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
)
"""What ``fyrehose simulate --list`` shows."""
