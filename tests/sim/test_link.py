from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.worlds import MakeWorld, World

from fyrehose_twisted.effects import Send
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.link import MAX_REORDER_DELAY, Link, corrupt


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def times(world: World, name: str) -> list[float]:
    return [now for now, *_ in world[name].rows]


class TestLink:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"loss": 1.01}, "loss=1.01; a probability goes from 0 to 1"),
            ({"duplication": -0.1}, "duplication=-0.1; a probability"),
            ({"reordering": nan}, "reordering=nan; a probability"),
            ({"corruption": 2}, "corruption=2; a probability"),
            ({"truncation": inf}, "truncation=inf; a probability"),
            ({"delay": -0.001}, "delay=-0.001; a time is 0 or more seconds"),
            ({"jitter": -1.0}, "jitter=-1.0; a time"),
            ({"tail": inf}, "tail=inf; a time"),
            ({"mtu": 0}, "mtu=0; give 1 byte or more"),
            ({"bandwidth": 0.0}, "bandwidth=0.0; give more than 0 bytes a second"),
            ({"bandwidth": inf}, "bandwidth=inf; give more"),
            ({"queue": -1}, "queue=-1; give 0 bytes or more"),
        ],
    )
    def test_impossible_link_properties_are_refused(self, changes: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            Link(**changes)

    def test_extreme_link_properties_are_accepted(self) -> None:
        Link(
            loss=1.0, duplication=1.0, reordering=1, corruption=1.0, truncation=1.0, delay=0.0, jitter=0, tail=0, mtu=1
        )
        Link(bandwidth=1e-9, queue=0)

    def test_a_perfect_link_draws_no_random_numbers_and_has_a_fixed_latency(self) -> None:
        rng = Random(1)
        before = rng.getstate()
        assert Link().draw_loss(100_000, rng) is None
        assert Link(delay=0.3).latency(rng) == 0.3
        assert rng.getstate() == before

    def test_a_link_that_is_down_cuts_everything(self) -> None:
        assert Link(up=False).draw_loss(1, Random(1)) == "cut"

    def test_jitter_is_uniform_up_to_its_bound(self) -> None:
        rng = Random(2)
        drawn = [Link(delay=0.5, jitter=0.2).latency(rng) - 0.5 for _ in range(10_000)]
        assert min(drawn) >= 0.0
        assert 0.1998 < max(drawn) <= 0.2
        assert sum(drawn) / len(drawn) == pytest.approx(0.1, rel=0.05)
        assert sum(late < 0.05 for late in drawn) == pytest.approx(2_500, rel=0.1)

    def test_the_latency_tail_is_exponential_with_its_mean(self) -> None:
        rng = Random(3)
        drawn = [Link(delay=0.5, tail=0.2).latency(rng) - 0.5 for _ in range(20_000)]
        assert min(drawn) >= 0.0
        assert sum(drawn) / len(drawn) == pytest.approx(0.2, rel=0.05)
        # In an exponential distribution, a share of e^-3 is beyond three times the mean.
        assert sum(late > 0.6 for late in drawn) == pytest.approx(996, rel=0.15)

    def test_reordering_delays_the_configured_share_within_its_bound(self) -> None:
        rng = Random(4)
        drawn = [Link(delay=0.5, reordering=0.3).latency(rng) - 0.5 for _ in range(10_000)]
        held = [late for late in drawn if late]
        assert len(held) == pytest.approx(3_000, rel=0.1)
        assert 0.0 < min(held) < 0.001
        assert 0.99 * MAX_REORDER_DELAY < max(held) <= MAX_REORDER_DELAY

    @pytest.mark.parametrize(("size", "fragments"), [(1, 1), (1_000, 1), (1_001, 2), (2_000, 2), (2_001, 3)])
    def test_a_lost_fragment_loses_the_datagram(self, size: int, fragments: int) -> None:
        rng, link = Random(5), Link(loss=0.2, mtu=1_000)
        lost = sum(link.draw_loss(size, rng) == "loss" for _ in range(20_000))
        assert lost == pytest.approx(20_000 * (1 - 0.8**fragments), rel=0.05)

    def test_without_fragmentation_datagrams_over_the_mtu_are_dropped(self) -> None:
        link = Link(mtu=1_000, fragments=False)
        assert link.draw_loss(1_000, Random(1)) is None
        assert link.draw_loss(1_001, Random(1)) == "mtu"

    def test_loss_of_1_drops_everything_and_of_0_nothing(self) -> None:
        rng = Random(6)
        assert {Link(loss=1.0).draw_loss(1, rng) for _ in range(1_000)} == {"loss"}
        assert {Link(loss=0.0, mtu=1).draw_loss(1_000, rng) for _ in range(1_000)} == {None}


class TestGarble:
    @given(st.binary(max_size=8), st.integers())
    def test_corrupt_always_changes_a_datagram(self, datagram: bytes, seed: int) -> None:
        assert corrupt(datagram, Random(seed)) != datagram

    def test_corruption_changes_truncates_or_extends_a_datagram(self) -> None:
        rng, datagram = Random(7), bytes(100)
        garbled = [corrupt(datagram, rng) for _ in range(2_000)]
        same = [one for one in garbled if len(one) == 100]
        assert len(same) == pytest.approx(1_200, rel=0.1)
        assert {sum(byte != 0 for byte in one) for one in same} == {1, 2, 3, 4}
        assert sum(len(one) < 100 for one in garbled) == pytest.approx(400, rel=0.2)
        assert {len(one) for one in garbled if len(one) > 100} == set(range(101, 164))

    def test_corrupt_never_replaces_a_byte_with_itself(self) -> None:
        rng = Random(10)
        assert all(corrupt(b"x", rng) != b"x" for _ in range(5_000))

    def test_corrupt_is_deterministic_for_a_seed(self) -> None:
        assert corrupt(b"something", Random(8)) == corrupt(b"something", Random(8)) != corrupt(b"something", Random(9))


class TestPath:
    def test_a_perfect_link_keeps_order_and_takes_its_delay(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25), start=100.0)
        world.add("a", "b")
        world.send("a", "b", *numbered(50))
        world.network.run(1)
        assert world["b"].story == [("batch", 100.25, numbered(50))]
        assert {peer for _, _, peer, _ in world["b"].rows} == {world.address("a")}

    @pytest.mark.interpreted
    def test_a_path_evaluates_link_changes_only_when_there_are_any(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_world()
        world.add("a", "b")
        looks: list[object] = []
        link_between = world.network.link_between
        monkeypatch.setattr(world.network, "link_between", lambda *ends: looks.append(ends) or link_between(*ends))
        for _ in range(3):
            world.network.override_links(None, None, loss=0.5)
            world.send("a", "b", *numbered(100))
        assert len(looks) == 3

    def test_datagrams_are_lost_and_duplicated_at_the_rates_of_the_link(self, make_world: MakeWorld) -> None:
        world = make_world(5, Link(loss=0.2, duplication=0.1))
        world.add("a", "b")
        world.send("a", "b", *numbered(10_000))
        world.network.run(1)
        counts, got = world.network.counters, Counter(world.got("b"))
        assert counts["sent"] == 10_000
        assert world.dropped() == {"loss": counts["dropped"]}
        assert 1_850 < counts["dropped"] < 2_150
        assert 700 < counts["duplicated"] < 900  # Of the datagrams not lost.
        assert counts["arrived"] == got.total() == 10_000 - counts["dropped"] + counts["duplicated"]
        assert Counter(got.values()) == {1: len(got) - counts["duplicated"], 2: counts["duplicated"]}
        assert len(got) == 10_000 - counts["dropped"]

    def test_a_duplicate_has_its_own_latency(self, make_world: MakeWorld) -> None:
        world = make_world(1, Link(duplication=1.0, delay=0.25, jitter=0.5))
        world.add("a", "b")
        for _ in range(50):
            world.send("a", "b", b"twice")
        world.network.run(1)
        assert len(set(times(world, "b"))) == 100

    def test_jitter_reorders_datagrams_within_its_bound(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25, jitter=0.5), start=100.0)
        world.add("a", "b")
        world.send("a", "b", *numbered(100))
        world.network.run(1)
        assert sorted(world.got("b")) == sorted(numbered(100)) != world.got("b")
        assert all(100.25 <= when <= 100.75 for when in times(world, "b"))

    def test_datagrams_delayed_by_reordering_are_overtaken_by_others(self, make_world: MakeWorld) -> None:
        world = make_world(1, Link(delay=0.25, reordering=0.2))
        world.add("a", "b")
        for number in range(200):
            world.network.call_in(number * 0.001, lambda number=number: world.send("a", "b", b"%d" % number))
        world.network.run(1)
        got = [int(datagram) for datagram in world.got("b")]
        late = [number for place, number in enumerate(got) if max(got[: place + 1]) > number]
        assert sorted(got) == list(range(200))
        assert 20 < len(late) < 60
        assert [number for number in got if number not in late] == sorted(set(got) - set(late))

    def test_sent_datagrams_are_copied(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, _ = world.add("a", "b")
        buffer = bytearray(b"before")
        world.network.send(a, Send([memoryview(buffer), buffer], (world.address("b"),)))
        buffer[:] = b"after!"
        world.network.run(1)
        assert world.got("b") == [b"before", b"before"]

    def test_corrupted_datagrams_are_dropped_by_the_checksum(self, make_world: MakeWorld) -> None:
        world = make_world(2, Link(corruption=0.3))
        world.add("a", "b")
        world.send("a", "b", *numbered(5_000))
        world.network.run(1)
        assert set(world.got("b")) <= set(numbered(5_000))
        assert world.dropped() == {"checksum": 5_000 - len(world.got("b"))}
        assert world.dropped()["checksum"] == pytest.approx(1_500, rel=0.1)
        assert world.network.counters["corrupted"] == 0

    def test_corrupted_datagrams_arrive_without_a_checksum(self, make_world: MakeWorld) -> None:
        world = make_world(2, Link(corruption=0.3, checksum=False))
        world.add("a", "b")
        datagrams = [b"<%64d>" % number for number in range(5_000)]
        world.send("a", "b", *datagrams)
        world.network.run(1)
        garbled = sum(sent != got for sent, got in zip(datagrams, world.got("b"), strict=True))
        assert garbled == world.network.counters["corrupted"] == pytest.approx(1_500, rel=0.1)
        assert not any(truncated for *_, truncated in world["b"].rows)

    def test_truncated_datagrams_are_shorter_and_flagged(self, make_world: MakeWorld) -> None:
        world = make_world(3, Link(truncation=0.3), split=0.01)
        world.add("a", "b")
        datagrams = [b"<%8d>" % number for number in range(5_000)]
        world.send("a", "b", *datagrams)
        world.network.run(1)
        for sent, (_, got, _, truncated) in zip(datagrams, world["b"].rows, strict=True):
            assert truncated == (got != sent)
            assert sent.startswith(got)
        lengths = Counter(len(got) for _, got, _, truncated in world["b"].rows if truncated)
        assert set(lengths) == set(range(10))
        assert lengths.total() == world.network.counters["truncated"] == pytest.approx(1_500, rel=0.1)

    def test_an_empty_datagram_is_never_truncated(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(truncation=1.0))
        world.add("a", "b")
        world.send("a", "b", b"")
        world.network.run(1)
        assert [(got, truncated) for _, got, _, truncated in world["b"].rows] == [(b"", False)]
        assert world.network.counters["truncated"] == 0

    def test_datagrams_to_unknown_addresses_are_counted_as_drops(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(duplication=1.0))
        (a,) = world.add("a")
        world.network.send(a, Send([b"1", b"2"], (("10.9.9.9", 9),)))
        world.network.run(1)
        assert world.dropped() == {"nobody": 4}
        assert (world.network.counters["sent"], world.network.counters["duplicated"]) == (2, 2)


class TestBandwidth:
    def test_bandwidth_adds_a_time_per_byte_to_the_delay(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25, bandwidth=1_024.0))
        world.add("a", "b")
        world.send("a", "b", bytes(512), bytes(1_024))
        world.network.run(1)
        world.send("a", "b", bytes(256), bytes(0))  # While half a second of data is queued.
        world.network.run(10)
        world.send("a", "b", bytes(128))  # Long after the queue is empty.
        world.network.run(10)
        assert times(world, "b") == [0.75, 1.75, 2.0, 2.0, 11.375]

    def test_datagrams_beyond_the_queue_of_a_link_are_dropped(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25, bandwidth=1_024.0, queue=2_048))
        world.add("a", "b")
        world.send("a", "b", bytes(1_024), bytes(1_024), b"", b"x")
        world.network.run(0.5)  # 512 bytes have been sent.
        world.send("a", "b", bytes(513), bytes(512), b"x")
        world.network.run(10)
        assert [len(datagram) for datagram in world.got("b")] == [1_024, 1_024, 0, 512]
        assert times(world, "b") == [1.25, 2.25, 2.25, 2.75]
        assert world.dropped() == {"queue": 3}

    def test_lost_datagrams_use_no_bandwidth(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25, bandwidth=1_024.0, mtu=1_000, fragments=False))
        world.add("a", "b")
        world.send("a", "b", bytes(1_001), bytes(512))
        world.network.run(10)
        assert times(world, "b") == [0.75]

    def test_each_direction_of_each_pair_has_its_own_bandwidth(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25, bandwidth=1_024.0))
        world.add("a", "b", "c")
        for source, to in ("ab", "ba", "ac", "ca"):
            world.send(source, to, bytes(1_024))
        world.network.run(10)
        assert [times(world, name) for name in "abc"] == [[1.25, 1.25], [1.25], [1.25]]

    @pytest.mark.parametrize(
        ("bandwidth", "when"),
        # 4,096 bytes are queued when the bandwidth changes.
        [(None, 1.25), (4_096.0, 1.25 + 1.0 + 0.25), (512.0, 1.25 + 8.0 + 2.0)],
    )
    def test_a_removed_bottleneck_delays_nothing(
        self, make_world: MakeWorld, bandwidth: float | None, when: float
    ) -> None:
        world = make_world(link=Link(delay=0.25, bandwidth=1_024.0))
        world.add("a", "b")
        world.send("a", "b", bytes(5_120))
        world.network.run(1)
        world.network.override_links(None, None, bandwidth=bandwidth)
        world.send("a", "b", bytes(1_024))
        world.network.run(100)
        assert times(world, "b")[-1 if when > 5.25 else 0] == when
        assert world.dropped() == {}

    def test_a_bottleneck_keeps_its_queue_after_another_link_change(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.25, bandwidth=1_024.0))
        world.add("a", "b")
        world.send("a", "b", bytes(1_024))
        world.network.override_links(None, None, delay=1.0)
        world.send("a", "b", bytes(1_024))
        world.network.run(100)
        assert times(world, "b") == [1.25, 3.0]


ROUGH = Link(
    delay=0.1, loss=0.2, duplication=0.2, jitter=0.3, tail=0.05, reordering=0.2, corruption=0.1, truncation=0.1
)


class TestRandomNumbers:
    """Outcomes on a path depend only on the seed, its ends and its traffic."""

    def test_losses_of_a_path_do_not_depend_on_traffic_elsewhere(self, make_world: MakeWorld) -> None:
        rows = []
        for noise in (0, 7):
            here = make_world(3, ROUGH)
            here.add("a", "b", "c")
            for number in range(300):
                here.send("a", "b", b"%d" % number)
                for _ in range(noise):
                    here.send("a", "c", b"noise")
                    here.send("b", "a", b"noise")
                    here.send("c", "a", b"noise")
            here.network.run(10)
            rows.append(here["b"].rows)
        assert rows[0] == rows[1]
        assert len(rows[0]) > 200

    def test_losses_do_not_depend_on_how_sends_are_grouped(self, make_world: MakeWorld) -> None:
        rows = []
        for grouped in ("datagrams first", "peers first", "all at once"):
            here = make_world(3, ROUGH)
            (a, *_) = here.add("a", "b", "c", "d")
            peers, datagrams = [here.address(name) for name in "bcd"], numbered(200)
            if grouped == "datagrams first":
                sends = [Send([datagram], peers) for datagram in datagrams]
            elif grouped == "peers first":
                sends = [Send(datagrams, [peer]) for peer in reversed(peers)]
            else:
                sends = [Send(datagrams, peers)]
            for send in sends:
                here.network.send(a, send)
            here.network.run(10)
            rows.append([here[name].rows for name in "bcd"])
        assert rows[0] == rows[1] == rows[2]

    def test_every_direction_and_seed_has_its_own_random_numbers(self, make_world: MakeWorld) -> None:
        rows = []
        for seed in (3, 4):
            here = make_world(seed, ROUGH)
            here.add("a", "b", "c")
            for source, to in ("ab", "ba", "ac", "ca"):
                here.send(source, to, *numbered(100))
            here.network.run(10)
            rows += [[row[:2] for row in here["a"].rows if row[2] == here.address(name)] for name in "bc"]
            rows += [[row[:2] for row in here[name].rows] for name in "bc"]
        assert len({repr(row) for row in rows}) == 8


class TestLongest:
    def test_a_datagram_longer_than_udp_allows_is_dropped(self, make_world: MakeWorld) -> None:
        here = make_world()
        here.add("a", "b")
        here.send("a", "b", bytes(65_508), bytes(65_507))
        here.network.run(1)
        assert [len(datagram) for datagram in here.got("b")] == [65_507]
        assert here.dropped() == {"too long": 1}
        assert here.network.counters["sent"] == 2


class TestMemory:
    @pytest.mark.parametrize("changes", [{}, {"up": False, "loss": 0.5}, {"mtu": 3}, {"bandwidth": 1_000.0}])
    def test_a_path_without_randomness_has_no_generator(self, changes: dict[str, Any], make_world: MakeWorld) -> None:
        here = make_world(link=Link(**changes))
        a, *others = here.add("a", *(f"host-{number}" for number in range(100)))
        gc.collect()
        tracemalloc.start()
        for other in others:
            here.network.path(a, other.address).transmit(b"x")
        here.network.run(1)
        size = tracemalloc.get_traced_memory()[0] / len(others)
        tracemalloc.stop()
        assert size < 2_000  # Less than the size of one generator.

    def test_the_draws_of_a_path_do_not_depend_on_when_they_begin(self, make_world: MakeWorld) -> None:
        def got(calm: int) -> list[bytes]:
            here = make_world(seed=5)
            here.add("a", "b")
            here.send("a", "b", *[b"calm"] * calm)
            here.network.run(1)
            change = here.network.override_links(None, None, loss=0.5)
            here.send("a", "b", *numbered(50))
            here.network.remove_override(change)
            here.send("a", "b", *[b"calm"] * calm)
            here.network.override_links(None, None, duplication=0.5)
            here.send("a", "b", *numbered(50))
            here.network.run(1)
            return [datagram for datagram in here.got("b") if datagram != b"calm"]

        assert got(0) == got(1) == got(20)
        assert 40 < len(got(0)) < 140

    def test_a_link_change_does_not_restart_the_draws_of_a_path(self, make_world: MakeWorld) -> None:
        here = make_world()
        here.add("a", "b")
        for _ in range(2):
            here.network.override_links(None, None, loss=0.5)
            here.send("a", "b", *numbered(50))
            here.network.run(1)
        first, second = (batch for _, _, batch in here["b"].story)
        assert first != second
