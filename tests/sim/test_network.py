from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, nextafter
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sim.worlds import MakeWorld, Recorder, World
from zope.interface.verify import verifyObject

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.schedule import FaultSchedule


def test_the_recording_test_node_provides_idatagramnode(make_world: MakeWorld) -> None:
    world = make_world()
    world.add("a")
    assert verifyObject(IDatagramNode, world["a"])


def test_virtual_time_begins_at_the_given_start() -> None:
    network = Network(1, start=100.0)
    called: list[float] = []
    network.call_in(2.5, lambda: called.append(network.elapsed))
    network.run(2.0)
    assert (network.now, network.elapsed, called) == (102.0, 2.0, [])
    network.run(1.0)
    assert (network.now, network.elapsed, called) == (103.0, 3.0, [2.5])


class TestAdd:
    def test_hosts_are_found_by_name_and_by_address(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b")
        assert world.network.host("b") is b
        assert list(world.network.hosts.values()) == [a, b]
        assert world.network.hosts[b.address] is b
        with pytest.raises(KeyError, match="no host 'c'; there are a, b"):
            world.network.host("c")

    @pytest.mark.parametrize(("name", "address"), [("a", ("10.1.1.1", 1)), ("other", ("10.0.0.1", 1))])
    def test_host_names_and_addresses_are_unique(self, make_world: MakeWorld, name: str, address: Address) -> None:
        world = make_world()
        world.add("a")
        with pytest.raises(ValueError, match="already"):
            world.network.add(name, address, lambda boot: None)
        assert len(world.network.hosts) == 1

    @pytest.mark.parametrize("name", ["", "*", "for", "a b", "a,b", "a#b", "a\n"])
    def test_a_host_name_that_fault_syntax_cannot_hold_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="a host cannot be called"):
            Network(1).add(name, ("10.0.0.1", 1), lambda boot: None)  # type: ignore[arg-type, return-value]


class Passing:
    """Hosts ``a`` to ``d`` that all send to each other, to find which pairs are connected."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = "abcd"
        world.add(*self.names)

    def now(self) -> set[str]:
        """Return the pairs of source and destination that are connected."""
        before = {name: len(self.world[name].rows) for name in self.names}
        for source in self.names:
            for to in self.names:
                self.world.send(source, to, b"?")
        self.world.network.run(1)
        by_address = {self.world.address(name): name for name in self.names}
        return {
            by_address[peer] + name for name in self.names for _, _, peer, _ in self.world[name].rows[before[name] :]
        }

    def cut(self, sources: str | None, destinations: str | None) -> Any:
        return self.world.network.override_links(
            None if sources is None else (self.world.address(name) for name in sources),
            None if destinations is None else [self.world.address(name) for name in destinations],
            up=False,
        )


class TestSecondAddresses:
    """Host ``a`` has IPv4 only, ``b`` has both IP versions, and ``c`` has IPv6 only."""

    B6: Address = ("fd00::2", 2)
    C6: Address = ("fd00::3", 3)

    @pytest.fixture
    def world(self, make_world: MakeWorld) -> World:
        world = make_world()
        _, b = world.add("a", "b")
        world.network.add_address(b, self.B6)
        world.lives["c"] = []

        def start(boot: Boot) -> Recorder:
            world.lives["c"].append(Recorder(boot))
            return world.lives["c"][-1]

        world.network.add("c", self.C6, start).start()
        return world

    def test_a_datagram_comes_from_the_address_of_the_ip_version_of_its_destination(self, world: World) -> None:
        network, b = world.network, world.network.host("b")
        network.send(b, Send([b"to both"], (world.address("a"), self.C6)))
        network.send(network.host("c"), Send([b"to b"], (self.B6,)))
        network.run(1.0)
        assert [row[1:3] for row in world["a"].rows] == [(b"to both", b.address)]
        assert [row[1:3] for row in world["c"].rows] == [(b"to both", self.B6)]
        assert [row[1:3] for row in world["b"].rows] == [(b"to b", self.C6)]

    def test_a_host_cannot_send_to_an_ip_version_of_which_it_has_no_address(self, world: World) -> None:
        world.network.send(world.network.host("a"), Send([b"x"], (self.B6, self.C6)))
        world.network.send(world.network.host("c"), Send([b"x"], (world.address("a"), world.address("b"))))
        world.network.run(1.0)
        assert world.dropped() == {"no route": 4}

    def test_a_cut_applies_to_both_addresses_of_a_host(self, world: World) -> None:
        network = world.network
        network.override_links(None, [world.address("b")], up=False)
        network.send(network.host("c"), Send([b"x"], (self.B6,)))
        network.send(network.host("a"), Send([b"x"], (world.address("b"),)))
        network.run(1.0)
        assert world.dropped() == {"cut": 2}

    def test_a_host_is_found_at_both_addresses(self, world: World) -> None:
        b = world.network.host("b")
        assert world.network.host_at(self.B6) is world.network.host_at(b.address) is b
        assert world.network.host_at(("fd00::9", 1)) is None
        assert list(world.network.hosts) == [world.address("a"), b.address, self.C6]

    @pytest.mark.parametrize("address", [("fd00::3", 3), ("10.9.9.9", 1)])
    def test_a_second_address_is_free_and_of_the_other_ip_version(self, world: World, address: Address) -> None:
        with pytest.raises(ValueError, match="no second address of a"):
            world.network.add_address(world.network.host("a"), address)


EVERY_PAIR = {source + to for source in "abcd" for to in "abcd"}


class TestChanges:
    def test_a_partition_can_be_one_way(self, make_world: MakeWorld) -> None:
        passing = Passing(make_world())
        change = passing.cut("a", "b")
        assert passing.now() == EVERY_PAIR - {"ab"}
        assert passing.world.dropped() == {"cut": 1}
        passing.world.network.remove_override(change)
        assert passing.now() == EVERY_PAIR

    def test_a_partition_can_separate_groups_of_hosts(self, make_world: MakeWorld) -> None:
        passing = Passing(make_world())
        passing.cut("ab", "cd")
        assert passing.now() == EVERY_PAIR - {"ac", "ad", "bc", "bd"}

    def test_a_partition_without_hosts_applies_to_all(self, make_world: MakeWorld) -> None:
        passing = Passing(make_world())
        change = passing.cut(None, "b")
        assert passing.now() == EVERY_PAIR - {"ab", "bb", "cb", "db"}
        passing.world.network.remove_override(change)
        change = passing.cut("b", None)
        assert passing.now() == EVERY_PAIR - {"ba", "bb", "bc", "bd"}
        passing.world.network.remove_override(change)
        change = passing.cut(None, None)
        assert passing.now() == set()
        passing.world.network.remove_override(change)
        assert passing.now() == EVERY_PAIR

    def test_a_partition_with_an_empty_group_applies_to_no_host(self, make_world: MakeWorld) -> None:
        passing = Passing(make_world())
        passing.cut("", None)
        assert passing.now() == EVERY_PAIR

    def test_equal_link_changes_end_independently(self, make_world: MakeWorld) -> None:
        passing = Passing(make_world())
        first, second = passing.cut("a", "b"), passing.cut("a", "b")
        passing.world.network.remove_override(second)
        passing.world.network.remove_override(second)
        assert "ab" not in passing.now()
        passing.world.network.remove_override(first)
        assert "ab" in passing.now()

    def test_the_latest_of_overlapping_link_changes_applies(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25))
        a, b = world.add("a", "b")
        network = world.network

        def link() -> tuple[float, float, float]:
            now = network.path(a, b.address).link
            return now.delay, now.loss, now.jitter

        first = network.override_links([a.address], None, delay=1.0, loss=0.5)
        second = network.override_links(None, [b.address], delay=2.0, jitter=0.75)
        assert link() == (2.0, 0.5, 0.75)
        assert network.path(b, a.address).link == network.link
        network.remove_override(first)
        assert link() == (2.0, 0.0, 0.75)
        third = network.override_links(None, None, delay=3.0)
        network.remove_override(second)
        assert link() == (3.0, 0.0, 0.0)
        network.remove_override(third)
        assert network.path(a, b.address).link == network.link

    def test_a_link_change_does_not_affect_datagrams_in_flight(self, make_world: MakeWorld) -> None:
        passing = Passing(make_world())
        passing.world.send("a", "b", b"before")
        passing.cut(None, None)
        passing.world.network.run(1)
        assert passing.world.got("b") == [b"before"]

    def test_an_invalid_link_change_is_refused_at_its_creation(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b")
        with pytest.raises(TypeError, match="los"):
            world.network.override_links(None, None, los=0.5)
        with pytest.raises(ConfigurationError, match=r"loss=3\.0"):
            world.network.override_links(None, None, loss=3.0)
        assert world.network.path(a, b.address).link == world.network.link


class TestMoments:
    def test_arrivals_within_a_batch_interval_form_one_ordered_batch(self, make_world: MakeWorld) -> None:
        link = Link(delay=0.0, jitter=0.25)
        together, apart = make_world(link=link, moment=0.0625), make_world(link=link)
        for each in (together, apart):
            each.add("a", "b")
            each.send("a", "b", *(b"%d" % number for number in range(200)))
            each.network.run(1)
        assert [now for _, now, _ in together["b"].story] == [0.0625, 0.125, 0.1875, 0.25]
        assert len(apart["b"].story) == 200
        assert together.got("b") == apart.got("b")
        for (_, end, _), (arrived, got, *_) in zip(
            [entry for entry in together["b"].story for _ in entry[2]], apart["b"].rows, strict=True
        ):
            assert end - 0.0625 < arrived <= end, got

    def test_simultaneous_arrivals_are_ordered_by_host(self, make_world: MakeWorld) -> None:
        for order in ("abcd", "dcba"):
            here = make_world()
            here.add("a", "b", "c", "d", "e")
            for name in order:
                here.send(name, "e", name.encode() + b"1", name.encode() + b"2")
            here.network.run(1)
            assert here["e"].story == [("batch", 0.25, [b"a1", b"a2", b"b1", b"b2", b"c1", b"c2", b"d1", b"d2"])]

    def test_arrivals_are_ordered_by_time_before_host(self, make_world: MakeWorld) -> None:
        here = make_world(moment=1.0)
        a, *_ = here.add("a", "b", "c")
        here.network.override_links([a.address], None, delay=0.5)
        for name in ("a", "b", "a", "b"):
            here.send(name, "c", name.encode())
        here.network.run(2)
        assert here["c"].story == [("batch", 1.0, [b"b", b"b", b"a", b"a"])]

    def test_batch_intervals_work_at_realistic_timestamps(self, make_world: MakeWorld) -> None:
        here = make_world(link=Link(delay=0.002, jitter=0.01), moment=0.001, start=1_767_225_600.0)
        here.add("a", "b")
        for number in range(2_000):
            here.network.call_in(number * 0.0007, lambda number=number: here.send("a", "b", b"%d" % number))
        here.network.run(2)
        assert here.network.counters["arrived"] == 2_000
        for now, datagram, *_ in here["b"].rows:
            sent = int(datagram) * 0.0007
            assert 0.002 - 1e-6 <= now - 1_767_225_600.0 - sent <= 0.013 + 1e-6

    def test_datagrams_without_delay_arrive_in_the_next_batch_interval(self, make_world: MakeWorld) -> None:
        here = make_world(link=Link(delay=0.0), moment=0.05, start=1_767_225_600.0)
        here.add("a", "b")
        for number in range(2_000):
            # Just after the end of a batch interval, where rounding may hit the end itself.
            when = nextafter(1_767_225_600.0 + number * 0.05, inf)
            here.network.scheduler.call_at(when, lambda: here.send("a", "b", b"x"))
        here.network.run(101)
        assert here.network.counters["arrived"] == 2_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"moment": -1.0}, "moment=-1.0"),
        ({"moment": nan}, "moment=nan"),
        ({"moment": inf}, "moment=inf"),
        ({"split": 7.0}, "split=7.0"),
        ({"split": -0.1}, "split=-0.1"),
        ({"split": nan}, "split=nan"),
    ],
)
def test_invalid_batch_intervals_and_splits_are_refused(options: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}; "):
        Network(1, **options)  # type: ignore[arg-type]


class TestSplit:
    def test_a_split_seed_splits_batches_at_its_rate_without_loss(self, make_world: MakeWorld) -> None:
        world = make_world(split=0.2)
        world.add("a", "b")
        datagrams = [b"%d" % number for number in range(2_000)]
        world.send("a", "b", *datagrams)
        world.network.run(1)
        assert world.got("b") == datagrams
        assert len(world["b"].story) == pytest.approx(401, rel=0.15)
        assert world.network.counters["batches"] == len(world["b"].story)

    def test_without_a_split_seed_batches_are_not_split(self, make_world: MakeWorld) -> None:
        world = make_world(split=0.0)
        world.add("a", "b")
        world.send("a", "b", *(b"%d" % number for number in range(1_000)))
        world.network.run(1)
        assert world.network.counters["batches"] == 1

    def test_another_split_seed_splits_elsewhere(self, make_world: MakeWorld) -> None:
        stories = []
        for split_seed in (1, 1, 2):
            here = make_world(split=0.5, split_seed=split_seed)
            here.add("a", "b")
            here.send("a", "b", *(b"%d" % number for number in range(100)))
            here.network.run(1)
            stories.append(here["b"].story)
        assert stories[0] == stories[1] != stories[2]


class Chatter:
    """A node that relays datagrams as often as their first byte says, and persists its count.

    How it answers depends on what came before, but not on how that was cut into batches.
    """

    def __init__(self, peers: list[Address], started: float) -> None:
        self._peers = peers
        self._received = 0
        self._persisted = 0
        self._effects: list[Send] = []
        self._next = started + 0.5
        self.rows: list[tuple[float, bytes, Address, bool]] = []

    def receive_batch(self, batch: Batch, now: float) -> None:
        for datagram, peer, truncated in batch:
            self._received += 1
            self.rows.append((now, bytes(datagram), peer, truncated))
            # A corrupted count must not make it relay endlessly.
            if len(datagram) > 1 and 1 <= datagram[0] <= 3:
                data = bytes((datagram[0] - 1, self._received % 256)) + bytes(datagram[2:])
                first = self._received % len(self._peers)
                self._effects.append(Send([data, data[:1]], self._peers[first : first + 1]))

    def tick(self, now: float) -> None:
        if now >= self._next:
            self._next = now + 0.5
            self._effects.append(Send([bytes((3, self._received % 256)) + bytes(50)], self._peers[:2]))

    def next_deadline(self) -> float:
        return self._next

    def drain(self) -> Outputs:
        effects, self._effects = self._effects, []
        persist = None if self._received == self._persisted else self._received
        self._persisted = self._received
        return Outputs(persist, effects, [])


def chat(seed: int, link: Link, faults: int, **options: Any) -> tuple[Network, list[Any]]:
    """Run four hosts for eight seconds with faults, then until no traffic remains."""
    network, names, rng = Network(seed, link, **options), "abcd", Random(f"{seed}/chat")
    addresses = [(f"10.0.0.{number}", number) for number in range(1, 5)]
    seen: list[Any] = []
    for name, address in zip(names, addresses, strict=True):
        # An unknown peer is among them.
        peers = [other for other in [*addresses, ("10.9.9.9", 9)] if other != address]

        def start(boot: Any, name: str = name, peers: list[Address] = peers) -> Chatter:
            node = Chatter(peers, boot.now)
            seen.append((name, network.now, boot, node.rows))
            return node

        network.add(name, address, start).start()
    kinds: list[tuple[float, Callable[[Random, float], Any]]] = [
        (2.0, fault_generators.crashes(names, kinds=tuple(CrashMode), after_persist=0.5)),
        (1.0, fault_generators.pauses(names, max_duration=2.0)),
        (1.0, fault_generators.clock_faults(names, max_offset=1.0)),
        (1.0, fault_generators.cuts(names, max_duration=2.0)),
        (2.0, fault_generators.bad_links(names, max_duration=5.0, deliver_corrupted=True)),
    ]
    FaultSchedule.draw(rng, faults, until=4.0, kinds=kinds).schedule_on(network)
    # A host that crashed late restarts within five seconds and has to be stopped again.
    for seconds in (8, 6, 1_000):
        network.run(seconds)
        for host in network.hosts.values():
            host.stop()
    assert len(network.scheduler) == 0, seed
    return network, seen


UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Settings without shrinking, which would take too long for runs of seconds."""

links = st.builds(
    Link,
    loss=st.sampled_from((0.0, 0.1)),
    duplication=st.sampled_from((0.0, 0.1, 1.0)),
    reordering=st.sampled_from((0.0, 0.3)),
    delay=st.sampled_from((0.0, 0.003)),
    jitter=st.sampled_from((0.0, 0.02)),
    tail=st.sampled_from((0.0, 0.01)),
    corruption=st.sampled_from((0.0, 0.2)),
    truncation=st.sampled_from((0.0, 0.2)),
    checksum=st.booleans(),
    mtu=st.sampled_from((None, 40)),
    fragments=st.booleans(),
    bandwidth=st.sampled_from((None, 5_000.0)),
    queue=st.sampled_from((500, 65_536)),
)


@settings(phases=UNSHRUNK)
@given(
    st.integers(0, 2**32),
    links,
    st.integers(0, 12),
    st.sampled_from((0.0, 0.001, 0.05)),
    st.sampled_from((0.3, 1.0)),
    st.integers(1, 99),
)
def test_batch_splits_do_not_change_arrivals(
    seed: int, link: Link, faults: int, moment: float, split: float, split_seed: int
) -> None:
    plain, expected = chat(seed, link, faults, moment=moment)
    network, seen = chat(seed, link, faults, moment=moment, split=split, split_seed=split_seed)
    assert seen == expected
    assert network.counters.pop("batches", 0) >= plain.counters.pop("batches", 0)
    assert network.counters == plain.counters


def test_the_split_test_has_batches_to_split() -> None:
    """The property above must not be vacuous."""
    link = Link(delay=0.003, jitter=0.02)
    plain, _ = chat(1, link, 12, moment=0.05)
    network, seen = chat(1, link, 12, moment=0.05, split=1.0)
    assert network.counters["arrived"] > 250
    assert network.counters["arrived"] == network.counters["batches"] > 1.5 * plain.counters["batches"]
    assert len(seen) > 4  # So some crashed and restarted.


@settings(phases=UNSHRUNK)
@given(st.integers(0, 2**32), links, st.integers(0, 20), st.sampled_from((0.0, 0.001, 0.05)))
def test_every_sent_or_duplicated_datagram_arrives_or_is_dropped(
    seed: int, link: Link, faults: int, moment: float
) -> None:
    network, seen = chat(seed, link, faults, moment=moment, split=0.2)
    counts = network.counters
    why = {key: count for key, count in counts.items() if key.startswith("dropped: ")}
    assert counts["sent"] + counts["duplicated"] == counts["arrived"] + counts["dropped"]
    assert counts["dropped"] == sum(why.values())
    assert counts["arrived"] == sum(len(rows) for *_, rows in seen)
    assert counts["faults"] == faults
    assert counts["sent"] > 0


def test_network_runs_are_reproducible_by_seed() -> None:
    link = Link(delay=0.003, loss=0.1, duplication=0.1, jitter=0.02)
    first, again, another = (chat(seed, link, 5, moment=0.001, split=0.2) for seed in (1, 1, 2))
    assert (first[1], first[0].counters) == (again[1], again[0].counters)
    assert first[1] != another[1]
