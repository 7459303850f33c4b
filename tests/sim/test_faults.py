from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.worlds import MakeWorld, World

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.fault_generators import clock_faults
from fyrehose_twisted.sim.faults.faults import (
    ClockFault,
    CrashFault,
    Fault,
    LinkFault,
    PartitionFault,
    PauseFault,
    register_fault,
)
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import HOST_NAME_PATTERN, Network
from fyrehose_twisted.sim.schedule import MIN_SHRUNK_DURATION, FaultSchedule, shrink
from fyrehose_twisted.sim.wallclock import RATE_RANGE

# Any valid host names, preferably resembling fault syntax.
names = st.text(alphabet="a*->x=+.:for19é", min_size=1, max_size=4).filter(
    lambda name: bool(re.fullmatch(HOST_NAME_PATTERN, name))
)
some_names = st.lists(names | st.just("*"), min_size=1, max_size=4).map(tuple)
seconds = st.floats(0.0, 1e300)
probabilities = st.floats(0.0, 1.0)
link_values: dict[str, st.SearchStrategy[Any]] = {
    "up": st.booleans(),
    "loss": probabilities,
    "duplication": probabilities,
    "reordering": probabilities,
    "delay": seconds,
    "jitter": seconds,
    "tail": seconds,
    "corruption": probabilities,
    "truncation": probabilities,
    "checksum": st.booleans(),
    "mtu": st.none() | st.integers(1, 10**30),
    "fragments": st.booleans(),
    "bandwidth": st.none() | st.floats(5e-324, 1e300),
    "queue": st.integers(0, 10**30),
}
changes = st.fixed_dictionaries({}, optional=link_values).filter(bool).map(lambda found: tuple(found.items()))
faults: dict[type[Fault], st.SearchStrategy[Any]] = {
    CrashFault: st.builds(CrashFault, seconds, seconds, names, st.sampled_from(CrashMode), st.booleans()),
    PauseFault: st.builds(PauseFault, seconds, seconds, names),
    ClockFault: st.builds(ClockFault, seconds, seconds, names, st.floats(-1e300, 1e300), st.floats(*RATE_RANGE)).filter(
        lambda fault: fault.offset != 0.0 or fault.rate != 1.0
    ),
    LinkFault: st.builds(LinkFault, seconds, seconds, some_names, some_names, st.booleans(), changes),
    PartitionFault: st.builds(PartitionFault, seconds, seconds, some_names, some_names, st.booleans()),
}


def test_the_strategy_covers_every_property_of_a_link() -> None:
    assert set(link_values) == set(Link.__dataclass_fields__)


class TestText:
    @pytest.mark.parametrize("kind", faults, ids=lambda kind: kind.keyword)
    def test_the_example_of_each_fault_kind_can_be_parsed(self, kind: type[Fault]) -> None:
        (fault,) = FaultSchedule.parse(f"3.5 {kind.example}")
        assert type(fault) is kind
        assert fault.duration > 0
        assert str(fault) == f"3.5 {kind.example}"

    @given(st.lists(st.one_of(*faults.values()), max_size=5))
    def test_fault_schedules_round_trip_as_text(self, drawn: list[Fault]) -> None:
        schedule = FaultSchedule(drawn)
        text = str(schedule)
        assert FaultSchedule.parse(text) == schedule
        assert str(FaultSchedule.parse(text)) == text
        assert text.count("\n") == len(drawn)

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("1.0 crash b killed for 0.0", CrashFault(1.0, 0.0, "b")),
            ("0.0 crash b disk lost for 2.5", CrashFault(0.0, 2.5, "b", CrashMode.DISK)),
            (
                "1e-05 crash b power lost once durable for 2.5",
                CrashFault(1e-5, 2.5, "b", CrashMode.POWER, after_persist=True),
            ),
            ("2.0 pause sub-1 for 8.0", PauseFault(2.0, 8.0, "sub-1")),
            ("2.0 clock sub-1 +3.5", ClockFault(2.0, 0.0, "sub-1", offset=3.5)),
            ("2.0 clock sub-1 -1e-300 x1.0002 for 60.0", ClockFault(2.0, 60.0, "sub-1", offset=-1e-300, rate=1.0002)),
            ("2.0 clock sub-1 x0.5 for 60.0", ClockFault(2.0, 60.0, "sub-1", rate=0.5)),
            ("2.0 cut a <-> b, c for 3.0", PartitionFault(2.0, 3.0, ("a",), ("b", "c"), both_ways=True)),
            (
                "2.0 link a, b -> * mtu=None up=False queue=5 loss=0.25 for 3.0",
                LinkFault(
                    2.0,
                    3.0,
                    ("a", "b"),
                    ("*",),
                    changes=(("mtu", None), ("up", False), ("queue", 5), ("loss", 0.25)),
                ),
            ),
        ],
    )
    def test_faults_have_their_documented_text(self, text: str, fault: Fault) -> None:
        assert str(fault) == text
        assert FaultSchedule.parse(text).faults == (fault,)

    def test_parsing_faults_skips_comments_and_sorts_by_time(self) -> None:
        schedule = FaultSchedule.parse("# all of them\n\n 3.0 pause b for 1.0  # the second\n1.0 pause a for 1.0\n \n")
        assert [fault.host_names() for fault in schedule] == [("a",), ("b",)]
        assert len(schedule) == 2
        assert FaultSchedule.parse("") == FaultSchedule() != schedule

    @pytest.mark.parametrize("kind", faults, ids=lambda kind: kind.keyword)
    def test_a_fault_of_minimal_duration_round_trips_as_text(self, kind: type[Fault]) -> None:
        (example,) = FaultSchedule.parse(f"3.5 {kind.example}")
        schedule = FaultSchedule([replace(example, duration=0.0)])
        assert FaultSchedule.parse(str(schedule)) == schedule

    def test_faults_of_equal_time_keep_their_order(self) -> None:
        text = "1.0 pause b for 1.0\n1.0 pause a for 1.0\n1.0 pause c for 1.0\n"
        assert str(FaultSchedule.parse(text)) == text

    def test_fault_schedules_are_equal_by_their_faults(self) -> None:
        one, same, other = (FaultSchedule.parse(f"1.0 pause {name} for 1.0") for name in "aab")
        assert one == same != other
        assert len({one, same, other}) == 2
        assert one != one.faults

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("crash", r"a fault needs a time, a keyword and its details, such as: 12\.5 pause sub-1 for 8\.0"),
            ("1.0", "a fault needs a time, a keyword"),
            ("soon pause a for 1.0", "'soon' is not a number"),
            ("nan pause a for 1.0", "'nan' is out of range"),
            ("1.0 pause a for inf", "'inf' is out of range"),
            ("-1.0 pause a for 1.0", "time and duration must not be negative"),
            ("1.0 pause a for -1.0", "time and duration must not be negative"),
            ("1.0 pause a for ever", "'ever' is not a number"),
            ("1.0 explode a", "unknown fault 'explode'; the faults are .*clock, .*pause"),
            (
                "1.0 crash a burnt",
                r"'a burnt' does not fit crash, such as: 1\.0 crash backbone power lost",
            ),
            ("1.0 pause a b for 1.0", r"such as: 1\.0 pause sub-1 for 8\.0"),
            ("1.0 clock a 3.5", r"such as: 1\.0 clock sub-1 \+3\.5 x1\.0002 for 60\.0"),
            ("1.0 clock a +x", r"'\+x' is not a number"),
            ("1.0 clock a x0.0 for 5.0", r"a clock cannot count 0\.0 s in one; give 0\.001 to 1000"),
            ("1.0 clock a x1e9 for 5.0", "a clock cannot count"),
            ("1.0 cut a, b for 1.0", r"such as: 1\.0 cut sub-1 <-> \* for 3\.0"),
            ("1.0 cut a -> b loss=0.5 for 1.0", "'a -> b loss=0.5' does not fit cut"),
            ("1.0 link a - b loss=0.5 for 1.0", r"such as: 1\.0 link sub-1 -> backbone, pub-1 loss=0\.3 jitter=0\.2"),
            ("1.0 link a -> b los=0.5 for 1.0", "links have no 'los'; they have up, loss, duplication, reordering"),
            ("1.0 link a -> b loss=much for 1.0", "loss: 'much' is not a number"),
            ("1.0 link a -> b loss=3.0 for 1.0", r"loss=3\.0; a probability goes from 0 to 1"),
            ("1.0 link a -> b mtu=1.5 for 1.0", r"mtu: '1\.5' is not a whole number"),
            ("1.0 link a -> b mtu=0 for 1.0", "mtu=0; give 1 byte or more"),
            ("1.0 link a -> b queue=None for 1.0", "queue: 'None' is not a whole number"),
            ("1.0 link a -> b up=no for 1.0", "up: 'no' is neither True nor False"),
            ("1.0 link a -> b delay=inf for 1.0", "delay: 'inf' is out of range"),
            ("1.0 link a -> b loss=0.1=0.2 for 1.0", "does not fit link"),
            ("1.0 link a -> b for 1.0", r"the link does not change; add a change such as loss=0\.3"),
            ("1.0 link a -> b loss=0.5", r"the duration is missing; add it: 1\.0 link a -> b loss=0\.5 for 3\.0"),
            ("1.0 cut a -> b", r"the duration is missing; add it: 1\.0 cut a -> b for 3\.0"),
            ("1.0 pause a", r"the duration is missing; add it: 1\.0 pause a for 3\.0"),
            ("1.0 crash a killed", r"the duration is missing; add it: 1\.0 crash a killed for 3\.0"),
            ("1.0 refuse a", r"the duration is missing; add it: 1\.0 refuse a for 3\.0"),
            ("1.0 slow a 5.0 from b", r"the duration is missing; add it: 1\.0 slow a 5\.0 from b for 3\.0"),
            ("1.0 clock a x0.5", r"the duration is missing; add it: 1\.0 clock a x0\.5 for 3\.0"),
            ("1.0 clock a", r"the clock does not change; add a step such as \+3\.5, or a rate such as x1\.5 for"),
            ("1.0 clock a +0 x1 for 3.0", "the clock does not change; add a step"),
            ("1.0 cut a,b -> c for 1.0", r'such as: 1\.0 cut sub-1 <-> \* for 3\.0; names are separated by ", "$'),
            ("1.0 link a -> b ,c loss=0.5 for 1.0", 'names are separated by ", "$'),
        ],
    )
    def test_a_fault_parse_error_names_the_line_and_the_syntax(self, line: str, says: str) -> None:
        with pytest.raises(ConfigurationError, match=says) as caught:
            FaultSchedule.parse(f"# comment\n1.0 pause a for 1.0\n  {line}  # why\n1.0 pause b for 1.0")
        assert str(caught.value).startswith(f"line 3 of the faults, {line!r}: ")

    @given(st.text(alphabet="0123.- abcrashkilledlinkpauseclockcut->x=+#\n", max_size=60))
    def test_any_text_is_parsed_as_faults_or_refused(self, text: str) -> None:
        try:
            schedule = FaultSchedule.parse(text)
        except ConfigurationError as error:
            assert str(error).startswith("line ")  # noqa: PT017  # Either is fine.
        else:
            assert FaultSchedule.parse(str(schedule)) == schedule

    def test_a_custom_fault_kind_is_parsed_by_its_keyword(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from fyrehose_twisted.sim.faults import faults as module

        monkeypatch.setattr(module, "_WORDS", dict(module._WORDS))

        @register_fault
        class Flood(PauseFault):
            keyword = "flood"

        schedule = FaultSchedule([Flood(1.0, 2.0, "a")])
        assert str(schedule) == "1.0 flood a for 2.0\n"
        assert [type(fault) for fault in FaultSchedule.parse(str(schedule))] == [Flood]


Log = Callable[[], list[float]]


def going(world: World, *names: str, until: float = 30.0) -> dict[str, list[float]]:
    """Run hosts that tick four times a second; return the true times of their ticks."""
    ticks: dict[str, list[float]] = {}
    for name in names:
        seen = ticks[name] = []

        def prepare(node: Any, seen: list[float] = seen) -> None:
            node.deadline, node.interval = node.boot.now, 0.25
            node.on_tick = lambda now: seen.append(world.network.now)

        world.add(name, prepare=prepare)
    return ticks


def silences(ticks: list[float]) -> list[tuple[float, float]]:
    """Return the intervals without ticks."""
    return [(sooner + 0.25, later) for sooner, later in pairwise(ticks) if later - sooner > 0.25]


def arrange(world: World, *lines: str) -> None:
    FaultSchedule.parse("\n".join(lines)).schedule_on(world.network)


class TestWhatHappens:
    def test_faults_are_scheduled_from_now_and_counted_by_the_network(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a")
        world.network.run(10.0)
        arrange(world, "1.0 pause a for 2.0", "5.0 pause a for 1.0")
        assert FaultSchedule.parse("1.0 pause a for 2.0\n2.0 pause a for 0.5").ends_at == 3.0
        assert FaultSchedule().ends_at == 0.0
        world.network.run(4.5)
        assert world.network.counters["faults"] == 1
        world.network.run(4.5)
        assert world.network.counters["faults"] == 2
        assert silences(ticks["a"]) == [(11.0, 13.0), (15.0, 16.0)]

    def test_a_fault_of_an_unknown_host_is_an_error_at_scheduling(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.add("a")
        for what in (
            "pause b for 1.0",
            "crash b killed for 1.0",
            "clock b +1.0",
            "cut a -> b for 1.0",
            "link b -> * up=True for 1.0",
        ):
            with pytest.raises(ConfigurationError) as caught:
                arrange(world, "1.0 pause a for 1.0", f"9.0 {what}")
            assert str(caught.value) == f"the fault '9.0 {what}': no host 'b'; there are a"
        assert len(world.network.scheduler) == 0
        arrange(world, "9.0 cut * -> a for 1.0", "9.0 cut * <-> * for 1.0")

    def test_an_unknown_host_error_lists_a_few_hosts_and_the_closest_match(self) -> None:
        network = Network(1)
        with pytest.raises(KeyError, match="no host 'sub-7'; there are none"):
            network.host("sub-7")
        for number in range(12):
            network.add(f"host-{number}", ("10.0.0.1", number), lambda boot: None)  # type: ignore[arg-type,return-value]
        few = "host-0, host-1, host-2, host-3, host-4, host-5, host-6, host-7, host-8, host-9 and 2 more"
        with pytest.raises(KeyError) as caught:
            network.host("hots-11")
        assert caught.value.args == (f"no host 'hots-11'; did you mean host-11? There are {few}",)
        with pytest.raises(KeyError) as caught:
            network.host("zzz")
        assert caught.value.args == (f"no host 'zzz'; there are {few}",)

    def test_a_crash_fault_stops_and_restarts_a_host(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a", "b")
        arrange(world, "2.0 crash a disk lost for 3.0")
        world.network.run(10.0)
        assert silences(ticks["a"]) == [(2.0, 5.0)]
        assert silences(ticks["b"]) == []
        assert [node.boot for node in world.lives["a"]] == [Boot(0.0, None, None), Boot(5.0, None, CrashMode.DISK)]

    def test_a_crash_fault_can_wait_for_the_next_persist(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a")
        arrange(world, "2.0 crash a power lost once durable for 3.0")
        world.network.call_in(4.0, lambda: world["a"].wanted.append(Outputs("mark", [], [])))
        world.network.run(10.0)
        assert silences(ticks["a"]) == [(4.25, 7.0)]
        assert world["a"].boot == Boot(7.0, "mark", CrashMode.POWER)

    def test_a_crash_of_a_host_that_is_down_changes_nothing(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a")
        arrange(
            world,
            "2.0 crash a killed for 4.0",
            "3.0 crash a disk lost for 1.0",
            "3.0 crash a disk lost once durable for 1.0",
            "3.5 pause a for 20.0",
        )
        world.network.run(10.0)
        assert silences(ticks["a"]) == [(2.0, 6.0)]
        assert world["a"].boot.last_crash is CrashMode.KILLED
        assert world.network.counters["faults"] == 4

    def test_the_end_of_a_crash_does_not_start_a_host_crashed_again(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a")
        arrange(world, "2.0 crash a killed for 6.0", "4.0 crash a killed for 9.0")
        world.network.call_in(3.0, world.network.host("a").start)
        world.network.run(20.0)
        assert silences(ticks["a"]) == [(2.0, 3.0), (4.0, 13.0)]

    def test_a_crash_ends_a_pause_whose_end_does_not_end_a_later_pause(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a")
        arrange(world, "2.0 pause a for 6.0", "3.0 crash a killed for 1.0", "5.0 pause a for 9.0")
        world.network.run(20.0)
        assert silences(ticks["a"]) == [(2.0, 4.0), (5.0, 14.0)]

    def test_a_nested_pause_ends_with_the_outer_one(self, make_world: MakeWorld) -> None:
        world = make_world()
        ticks = going(world, "a")
        arrange(world, "2.0 pause a for 4.0", "3.0 pause a for 1.0", "5.0 pause a for 9.0")
        world.network.run(20.0)
        assert silences(ticks["a"]) == [(2.0, 6.0)]

    def test_a_clock_fault_sets_the_clock(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b")
        arrange(world, "2.0 clock a +3.5", "4.0 clock a -5.0")
        readings = []
        for _ in range(5):
            world.network.run(1.0)
            readings.append(a.now - world.network.now)
        assert readings == [0.0, 3.5, 3.5, -1.5, -1.5]
        assert b.now == world.network.now

    def test_a_clock_rate_fault_ends_but_keeps_its_offset(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        arrange(world, "2.0 clock a +1.0 x1.5 for 4.0", "3.0 clock a -10.0")
        world.network.run(4.0)
        assert a.now == 4.0 + 1.0 - 10.0 + 1.0
        world.network.run(6.0)
        assert a.now == 10.0 + 1.0 - 10.0 + 2.0

    def test_the_latest_clock_rate_fault_applies(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        arrange(world, "2.0 clock a x1.5 for 4.0", "4.0 clock a x0.5 for 4.0")
        world.network.run(7.0)
        assert a.clock.rate == 0.5
        world.network.run(3.0)
        assert a.now == 10.0 + 1.0 - 2.0

    @pytest.mark.parametrize(
        ("line", "gone"),
        [
            ("1.0 cut a -> b for 2.0", {"ab"}),
            ("1.0 cut a <-> b for 2.0", {"ab", "ba"}),
            ("1.0 cut a, b <-> c for 2.0", {"ac", "bc", "ca", "cb"}),
            ("1.0 cut * -> c for 2.0", {"ac", "bc"}),
            ("1.0 cut a -> * for 2.0", {"ab", "ac"}),
            ("1.0 cut a <-> * for 2.0", {"ab", "ac", "ba", "ca"}),
            ("1.0 cut *, a -> b for 2.0", {"ab", "cb"}),
            ("1.0 link a, b -> c up=False for 2.0", {"ac", "bc"}),
            ("1.0 link a <-> c loss=1.0 for 2.0", {"ac", "ca"}),
        ],
    )
    def test_a_link_fault_ends_after_its_duration(self, make_world: MakeWorld, line: str, gone: set[str]) -> None:
        world = make_world()
        world.add("a", "b", "c")
        arrange(world, line)
        pairs = {"ab", "ac", "ba", "bc", "ca", "cb"}
        for after, expected in ((0.5, pairs), (2.0, pairs - gone), (3.5, pairs)):
            world.network.run(after - world.network.now)
            for source, to in pairs:
                world.send(source, to, f"{source}{to}{after}".encode())
            world.network.run(0.25)
            got = {datagram.decode() for name in "abc" for datagram in world[name].datagrams}
            assert {text[:2] for text in got if text.endswith(str(after))} == expected

    def test_overlapping_link_faults_end_independently(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b")
        arrange(world, "1.0 link a -> b loss=0.5 delay=1.0 for 4.0", "3.0 link * -> * loss=0.25 for 4.0")
        seen = []
        for _ in range(4):
            world.network.run(2.0)
            link = world.network.path(a, b.address).link
            seen.append((link.loss, link.delay))
        assert seen == [(0.5, 1.0), (0.25, 1.0), (0.25, 0.25), (0.0, 0.25)]

    def test_faults_name_their_hosts(self) -> None:
        lines = (
            "1.0 crash a killed for 1.0",
            "1.0 pause a for 1.0",
            "1.0 clock a +1.0",
            "1.0 cut a, b -> c, a for 1.0",
            "1.0 cut * -> b for 1.0",
        )
        assert [fault.host_names() for line in lines for fault in FaultSchedule.parse(line)] == [
            ("a",),
            ("a",),
            ("a",),
            ("a", "b", "c"),
            ("b",),
        ]


class TestMishaps:
    @given(st.integers(0, 10**6))
    def test_generated_clock_faults_always_change_the_clock(self, seed: int) -> None:
        # So small that many round to no change.
        for make in (
            clock_faults("ab", max_drift=1e-6, max_offset=1e-3),
            clock_faults("ab", max_drift=0.0),
            clock_faults("ab", max_offset=0.0),
        ):
            schedule = FaultSchedule.draw(Random(seed), 5, until=60.0, kinds=[(1.0, make)])
            assert FaultSchedule.parse(str(schedule)) == schedule


class TestDraw:
    def draw(self, seed: int, count: int = 50) -> FaultSchedule:
        def pause(rng: Random, at: float) -> Fault:
            return PauseFault(at, rng.random(), rng.choice("abc"))

        def crash(rng: Random, at: float) -> Fault:
            return CrashFault(at, rng.random(), rng.choice("abc"))

        return FaultSchedule.draw(Random(seed), count, until=10.0, kinds=[(3.0, pause), (1.0, crash)])

    def test_equal_seeds_draw_equal_fault_schedules(self) -> None:
        assert self.draw(1) == self.draw(1) != self.draw(2)

    def test_drawn_faults_match_the_requested_count_span_and_mix(self) -> None:
        schedule = self.draw(1, 1_000)
        begins = [fault.at for fault in schedule]
        assert len(schedule) == 1_000
        assert begins == sorted(begins)
        assert 0.0 <= begins[0] < 0.1
        assert 9.9 < begins[-1] <= 10.0
        assert sum(isinstance(fault, PauseFault) for fault in schedule) == pytest.approx(750, rel=0.1)
        assert FaultSchedule.parse(str(schedule)) == schedule

    def test_drawing_zero_faults_gives_an_empty_schedule(self) -> None:
        assert self.draw(1, 0) == FaultSchedule()


class Runs:
    """A predicate of failing schedules that counts its calls."""

    def __init__(self, fails: Callable[[list[str]], bool]) -> None:
        self._fails = fails
        self.count = 0

    def __call__(self, schedule: FaultSchedule) -> bool:
        self.count += 1
        assert self.count < 1_000, "shrinking does not terminate"
        return self._fails([fault.host_names()[0] for fault in schedule])


def pauses(count: int, lasts: float = 0.0) -> FaultSchedule:
    return FaultSchedule(PauseFault(float(number), lasts, f"n{number}") for number in range(count))


class TestShrink:
    @pytest.mark.parametrize("guilty", [0, 1, 29, 30, 31, 58, 59])
    def test_shrinking_finds_one_fault_of_sixty_in_few_runs(self, guilty: int) -> None:
        runs = Runs(lambda names: f"n{guilty}" in names)
        assert [str(fault) for fault in shrink(pauses(60), runs)] == [f"{float(guilty)} pause n{guilty} for 0.0"]
        assert runs.count <= 20

    @pytest.mark.parametrize("guilty", [("n0", "n59"), ("n7", "n8"), ("n29", "n30"), ("n1", "n40")])
    def test_shrinking_finds_two_faults_needed_together(self, guilty: tuple[str, ...]) -> None:
        runs = Runs(lambda names: set(guilty) <= set(names))
        assert [fault.host_names()[0] for fault in shrink(pauses(60), runs)] == list(guilty)
        assert runs.count <= 40

    def test_shrinking_removes_all_faults_if_none_is_needed(self) -> None:
        runs = Runs(lambda names: True)
        assert len(shrink(pauses(60), runs)) == 0
        assert runs.count <= 4

    def test_shrinking_keeps_all_faults_if_all_are_needed(self) -> None:
        runs = Runs(lambda names: len(names) == 20)
        assert shrink(pauses(20), runs) == pauses(20)
        assert runs.count <= 2 * 20 + 20

    def test_shrinking_retries_faults_after_removing_others(self) -> None:
        runs = Runs(lambda names: "n2" in names and ("n1" not in names or "n0" in names))
        assert [fault.host_names()[0] for fault in shrink(pauses(3), runs)] == ["n2"]

    def test_shrinking_an_empty_schedule_returns_it(self) -> None:
        assert shrink(FaultSchedule(), lambda schedule: True) == FaultSchedule()

    @given(st.sets(st.integers(0, 19), min_size=1, max_size=4), st.integers(1, 20))
    def test_a_shrunk_schedule_fails_and_is_minimal(self, guilty: set[int], enough: int) -> None:
        """Fail with all the guilty faults, or with enough faults of any kind."""

        def fails(schedule: FaultSchedule) -> bool:
            return guilty <= {int(fault.at) for fault in schedule} or len(schedule) > enough + 4

        left = shrink(pauses(20, 1.0), fails)
        assert fails(left)
        for index in range(len(left)):
            assert not fails(FaultSchedule(left.faults[:index] + left.faults[index + 1 :]))

    def test_shrinking_shortens_faults_while_the_run_fails(self) -> None:
        def fails(schedule: FaultSchedule) -> bool:
            return any(fault.duration >= 1.3 for fault in schedule)

        (left,) = shrink(pauses(30, 12.0), fails)
        assert left.duration == 1.5

    def test_shrinking_keeps_a_minimum_duration(self) -> None:
        (left,) = shrink(pauses(1, 12.0), Runs(lambda names: len(names) == 1))
        assert MIN_SHRUNK_DURATION <= left.duration < 2 * MIN_SHRUNK_DURATION
        assert [fault.duration for fault in shrink(pauses(1, 0.3), Runs(lambda names: len(names) == 1))] == [0.075]
        unchanged = FaultSchedule.parse("1.0 clock a -3.5")
        assert shrink(unchanged, Runs(lambda names: len(names) == 1)) == unchanged
        both = shrink(pauses(2, 12.0), Runs(lambda names: len(names) == 2))
        assert [fault.duration for fault in both] == [left.duration] * 2
