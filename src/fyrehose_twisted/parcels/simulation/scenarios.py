"""What the simulator runs for parcels."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count
from random import Random
from typing import Any, ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.simulation.invariants import (
    Acknowledged,
    Bounded,
    Named,
    OneFounding,
    OneLeader,
    OneOrder,
    PublishersOrder,
    Recovers,
)
from fyrehose_twisted.parcels.simulation.participants import Cast, Follower
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import MAX_NAME, Mode, node_id
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import Crash
from fyrehose_twisted.sim.faults.faults import Fault, Stopped
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

PORT = 7_878
NAMES = ("Ivan", "Boris", "Vera", "Olga", "Petr")


class ClusterScenario(Scenario):
    """Base: nodes that form a cluster, and applications everywhere that publish.

    :cvar sizes: how many nodes there may be.
    :cvar journals: probability that the nodes keep journals.
    :cvar bytes_travel: probability that parcels travel as bytes.
    :cvar interval: seconds between two publications on a node, on average.
    :cvar secret: of the cluster.
    :cvar max_neighbours: how many nodes each knows at once.
    """

    duration: ClassVar[float] = 120.0
    patience: ClassVar[float] = 90.0
    sizes: ClassVar[tuple[int, ...]] = (3,)
    journals: ClassVar[float] = 0.3
    bytes_travel: ClassVar[float] = 0.2
    interval: ClassVar[float] = 0.4
    secret: ClassVar[bytes | None] = None
    max_neighbours: ClassVar[int] = 64

    def make_network(self, split_seed: int) -> Network:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return Network(self.seed, Link(delay=0.0005, jitter=0.001), split_seed=split_seed)

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        rng = self.rng
        self.cast = Cast(self.network, rng)
        names = NAMES[: rng.choice(self.sizes)]
        addresses = [(f"10.0.0.{number}", PORT) for number in range(1, len(names) + 1)]
        journal = rng.random() < self.journals
        for name, address in zip(names, addresses, strict=True):
            self.add_node(name, address, [one for one in addresses if one != address], journal=journal)
        if rng.random() < self.bytes_travel:
            self.network.streams.codec = ParcelCodec()
        order = OneOrder(self.cast)
        self.order = order
        self.acknowledged = Acknowledged(self.cast, order)
        self.network.watch(self.cast)
        for invariant in (
            order,
            OneFounding(self.cast),
            PublishersOrder(self.cast, order),
            self.acknowledged,
            OneLeader(self.cast),
            Bounded(self.cast),
            Named(self.cast),
            Recovers(self.cast),
        ):
            self.add_invariant(invariant)
        self.arrange()
        for host in self.cast.hosts:
            self._publish_later(host)

    def add_node(self, name: str, address: Address, neighbours: list[Address], *, journal: bool) -> None:
        """Add a node; the first founds the cluster."""
        first = not self.cast.hosts
        config = NodeConfig(
            name,
            "sim",
            address,
            tuple(neighbours),
            found=first,
            secret=self.secret,
            window_bytes=self.window(),
            max_neighbours=self.max_neighbours,
        )
        host = self.cast.add(name, address, Follower(config, journal=journal))
        host.begins = 0.0 if first else self.rng.uniform(0.0, 5.0)

    def window(self) -> int:
        """Return how much memory nodes have for events."""
        return self.rng.choice((200_000, 64 * 2**20))

    def arrange(self) -> None:
        """Put in what else belongs to the scenario."""

    def _publish_later(self, host: Any) -> None:
        delay = self.rng.expovariate(1 / self.interval)
        if self.network.elapsed + delay > self.duration:
            return

        def publish() -> None:
            if self.rng.random() < 0.2:
                self.operate(host, "publish keyed", self.cast.publish_keyed)
            else:
                many = self.rng.choice((1, 1, 1, 2, 5, 40))
                self.operate(host, f"publish {many}", lambda node, now: self.cast.publish(node, now, many))
            self._publish_later(host)

        self.network.call_in(delay, publish)

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return FaultSchedule()

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        members = self.cast.members()
        return all(host.node.mode is Mode.WRK for host in members) and len({h.node.sequence for h in members}) == 1

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        hosts = [host for host in self.cast.hosts if host.up]
        counts = Counter(
            {
                "events": len(self.order.order),
                "acknowledged": self.cast.answered,
                "not taken": self.cast.failed,
                "lost clusters": int(self.cast.is_lost()),
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
    """A cluster of one to five forms, and nothing goes wrong."""

    name = "parcels.calm"
    sizes = (1, 2, 3, 4, 5)
    duration = 30.0


class Storm(ClusterScenario):
    """Three to five nodes, publishers everywhere, and everything goes wrong that can."""

    name = "parcels.storm"
    sizes = (3, 4, 5)
    duration = 600.0
    interval = 1.5

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        return FaultSchedule.draw(
            rng,
            rng.randrange(30, 120),
            until=self.duration,
            kinds=[
                (2.0, fault_generators.crashes(names, kinds=(Crash.KILLED, Crash.POWER), longest=8.0, between=0.2)),
                (2.0, fault_generators.pauses(names, longest=9.0)),
                (3.0, fault_generators.cuts(names, longest=12.0)),
                (2.0, fault_generators.bad_links(names)),
                (1.0, fault_generators.resets(names)),
                (1.0, fault_generators.half_opens(names)),
                (0.5, fault_generators.refusals(names)),
                (1.0, fault_generators.slow_readers(names)),
                (0.5, fault_generators.clocks(names)),
            ],
        )


class Keys(Storm):
    """Idempotency keys are used twice, for two events, at any nodes in a storm: none gets the number of the other."""

    name = "parcels.keys"
    duration = 100.0
    interval = 0.5

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        for host in self.cast.hosts:
            self._clash_later(host)

    def _clash_later(self, host: Host) -> None:
        delay = self.rng.expovariate(1 / self.interval)
        if self.network.elapsed + delay > self.duration:
            return

        def publish() -> None:
            self.operate(host, "publish clashing", self.cast.publish_clashing)
            self._clash_later(host)

        self.network.call_in(delay, publish)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"clashed": self.cast.clashed})


class Silence(ClusterScenario):
    """Nodes that stand still for longer than others wait, connections that flap, networks that fall apart."""

    name = "parcels.silence"
    sizes = (3, 5)

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        return FaultSchedule.draw(
            rng,
            rng.randrange(10, 60),
            until=self.duration,
            kinds=[
                (1.0, fault_generators.pauses(names, longest=15.0)),
                (1.0, fault_generators.cuts(names, longest=20.0)),
                (4.0, fault_generators.cuts(names, longest=1.5)),
                (1.0, fault_generators.half_opens(names)),
                (1.0, fault_generators.slow_readers(names)),
            ],
        )


class TwoDie(ClusterScenario):
    """Two of five nodes die and do not come back, whenever; the others go on."""

    name = "parcels.two-die"
    sizes = (5,)
    journals = 0.0

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        kinds = [
            (1.0, fault_generators.resets(names)),
            (1.0, fault_generators.bad_links(names)),
            (1.0, fault_generators.slow_readers(names)),
        ]
        return FaultSchedule.draw(rng, rng.randrange(0, 8), until=self.duration, kinds=kinds)

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        first = self.rng.uniform(20.0, 60.0)
        again = self.rng.choice((0.0, 0.0, 0.05, 1.0, self.rng.uniform(0.0, 30.0)))
        for host, at in zip(self.rng.sample(self.cast.hosts, 2), (first, first + again), strict=True):
            crash = self.rng.choice((Crash.KILLED, Crash.POWER))
            self.network.call_in(at, partial(host.stop, crash))


class Blackout(ClusterScenario):
    """All nodes crash at once, again and again; what they keep in journals is enough to go on."""

    name = "parcels.blackout"
    sizes = (1, 2, 3, 5)
    journals = 1.0
    duration = 240.0
    interval = 0.8

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        faults: list[Fault] = []
        at = 15.0
        while at < self.duration:
            crash = rng.choice((Crash.KILLED, Crash.POWER))
            # One after the other within a moment, so that what one still sends another may still promise.
            faults += [
                Stopped(round(at + rng.uniform(0.0, 0.01), 4), round(rng.uniform(0.2, 3.0), 3), name, crash, False)
                for name in names
            ]
            at += rng.uniform(4.0, 30.0)
        return FaultSchedule(sorted(faults, key=lambda fault: fault.at))


class Behind(ClusterScenario):
    """Nodes are away for longer than the others remember entries, so that they need state, and events from others."""

    name = "parcels.behind"
    sizes = (3, 5)
    interval = 0.1

    def window(self) -> int:
        """See :class:`ClusterScenario`."""
        return 100_000

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        kinds = [
            (2.0, fault_generators.pauses(names, longest=20.0)),
            (2.0, fault_generators.cuts(names, longest=20.0)),
            (1.0, fault_generators.crashes(names, longest=10.0)),
            (1.0, fault_generators.slow_readers(names)),
        ]
        return FaultSchedule.draw(rng, rng.randrange(8, 20), until=self.duration, kinds=kinds)


class Amnesia(ClusterScenario):
    """Most nodes crash at once and remember nothing; nobody goes on before the operator says so."""

    name = "parcels.amnesia"
    sizes = (3, 4, 5)
    journals = 0.0
    duration = 90.0

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        lost = rng.sample(names, len(names) // 2 + 1)
        at = rng.uniform(25.0, 35.0)
        return FaultSchedule([Stopped(at, rng.uniform(0.5, 4.0), name, Crash.KILLED, False) for name in lost])

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        self.reformed = False
        self.network.call_in(60.0, self._reform)

    def _reform(self) -> None:
        for host in self.cast.hosts:
            if host.node.mode is Mode.WRK:
                return  # The members were fewer, and enough of them are left.
        survivors = [host for host in self.cast.hosts if host.node.sequence]
        if not survivors:
            return
        best = max(survivors, key=lambda host: host.node.sequence)
        self.reformed = True
        self.cast.forget_view()
        self.operate(best, "reform", lambda node, now: node.reform(now))
        for host in self.cast.hosts:
            if host is not best and host.node.founding:
                # Those who remember the former cluster have to be started anew.
                self.network.call_in(1.0, partial(host.stop, Crash.KILLED))
                self.network.call_in(2.0, host.start)

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return super().statistics() + Counter({"reformed": int(self.reformed)})


class FoundedAnew(ClusterScenario):
    """The whole cluster is wiped and founded again: its numbers begin anew, and no id of an event comes twice."""

    name = "parcels.anew"
    sizes = (1, 3)
    journals = 0.0
    duration = 60.0

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        at = self.rng.uniform(20.0, 35.0)
        self.network.call_in(at, self._wipe)
        self.network.call_in(at + 1.0, self._found)

    def _wipe(self) -> None:
        for host in self.cast.hosts:
            host.stop(Crash.KILLED)
        self.cast.forget_view()
        self.order.begin_anew()
        self.acknowledged.begin_anew()

    def _found(self) -> None:
        for host in self.cast.hosts:
            host.start()


class Strangers(ClusterScenario):
    """Who is called like a member, or has its id, or is of another cluster, or by no name that fits, is kept out; who
    speaks only the document is a neighbour."""

    name = "parcels.strangers"
    sizes = (3, 4)
    journals = 0.0

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        names = [host.name for host in self.cast.hosts]
        kinds = [(2.0, fault_generators.resets(names)), (1.0, fault_generators.cuts(names, longest=1.0))]
        return FaultSchedule.draw(rng, rng.randrange(0, 15), until=self.duration, kinds=kinds)

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        first, second = self.cast.hosts[:2]
        everybody = tuple(host.address for host in self.cast.hosts)
        kinds = [(first.name, "sim"), (namesake(second.name), "sim"), ("Nina", "another")]
        for number, (name, cluster) in enumerate(kinds, 1):
            address = (f"10.0.1.{number}", PORT)
            config = NodeConfig(name, cluster, address, everybody)
            stranger = self.cast.add(f"stranger-{number}", address, Follower(config, journal=False), belongs=False)
            stranger.begins = self.rng.uniform(15.0, 60.0)
        for number in (1, 2):
            address = (f"10.0.2.{number}", PORT)
            self.cast.add_document_peer(f"Document-{number}", address, everybody).begins = self.rng.uniform(0.0, 60.0)
        for number, name in enumerate(("", "n" * (MAX_NAME + 1), "Ivan\r"), 1):
            host_name, address = f"unnamed-{number}", (f"10.0.3.{number}", PORT)
            stranger = self.cast.add_document_peer(name, address, everybody, host_name=host_name)
            stranger.begins = 20.0 + number


class Crowd(ClusterScenario):
    """Many that speak only the document call from one address and from many, before the members of a cluster with a
    secret: they get a part of the table of neighbours, and no member is kept out."""

    name = "parcels.crowd"
    duration = 60.0
    journals = 0.0
    secret = b"a secret of the simulator"
    max_neighbours = 8

    def arrange(self) -> None:
        """See :class:`ClusterScenario`."""
        everybody = tuple(host.address for host in self.cast.hosts)
        for number in range(24):
            shared = number % 2 == 0
            address = ("10.0.2.1", PORT + number) if shared else (f"10.0.3.{number}", PORT)
            self.cast.add_document_peer(f"Document-{number}", address, everybody).begins = self.rng.uniform(1.0, 3.0)
        # Its name is taken before the member comes.
        second = self.cast.hosts[1].name
        self.cast.add_document_peer(second, ("10.0.4.1", PORT), everybody, host_name="impostor").begins = 0.5
        for host in self.cast.hosts[1:]:
            host.begins = self.rng.uniform(5.0, 20.0)


def namesake(name: str) -> str:
    """Return another name with the same id."""
    wanted = node_id(name)
    return next(other for number in count() if node_id(other := f"Someone-{number}") == wanted)


SCENARIOS: tuple[type[Scenario], ...] = (
    Calm,
    Storm,
    Keys,
    Silence,
    TwoDie,
    Blackout,
    Behind,
    Amnesia,
    FoundedAnew,
    Strangers,
    Crowd,
)
