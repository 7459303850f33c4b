from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.worlds import MakeWorld, World

from fyrehose_twisted import driver
from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Send
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.interfaces import ConcurrentPersist, Outputs
from fyrehose_twisted.sim import host as module
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut
from fyrehose_twisted.sim.host import MAX_TICKS_PER_MOMENT, RESTART_DELAY, Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import Observer
from fyrehose_twisted.sim.udp import datagram_socket
from fyrehose_twisted.sim.wallclock import CLOCK_GRAIN, WallClock

AT = 1_767_225_600.0
"""A realistic timestamp, where a second has some four million floats."""


def wants(*, persist: Any = None, effects: tuple[Send, ...] = (), events: tuple[Any, ...] = ()) -> Outputs:
    return Outputs(persist, list(effects), list(events))


class Watcher(Observer):
    """An observer that records the events of hosts in order."""

    def __init__(self) -> None:
        self.story: list[tuple[Any, ...]] = []

    def sent(self, packet: Any) -> None:
        self.story.append(("sent", packet.data))

    def persisted(self, host: Host, state: Any) -> None:
        self.story.append(("persisted", state, host.persisted))

    def event_emitted(self, host: Host, event: Any) -> None:
        self.story.append(("told", event))

    def started(self, host: Host) -> None:
        self.story.append(("started", host.name))

    def stopped(self, host: Host, description: str) -> None:
        self.story.append(("stopped", description, host.up))

    def paused(self, host: Host) -> None:
        self.story.append(("paused", host.name))

    def resumed(self, host: Host) -> None:
        self.story.append(("resumed", host.name))


def watched(world: World) -> list[tuple[Any, ...]]:
    watcher = Watcher()
    world.network.add_observer(watcher)
    return watcher.story


class TestClock:
    def test_a_new_wall_clock_reads_true_time(self) -> None:
        assert WallClock().read(123.0) == WallClock().true_time_at(123.0) == 123.0

    def test_a_wall_clock_can_be_set_forward_and_back(self) -> None:
        clock = WallClock()
        clock.set(100.0, offset=3.5)
        assert (clock.read(100.0), clock.read(110.0), clock.true_time_at(113.5)) == (103.5, 113.5, 110.0)
        clock.set(110.0, offset=-5.0)
        assert (clock.read(110.0), clock.true_time_at(113.5)) == (108.5, 115.0)

    def test_a_wall_clock_rate_applies_from_its_change_on(self) -> None:
        clock = WallClock()
        clock.set(100.0, rate=1.5)
        assert (clock.read(100.0), clock.read(110.0), clock.true_time_at(115.0)) == (100.0, 115.0, 110.0)
        clock.set(110.0, offset=1.0)
        assert (clock.read(110.0), clock.read(120.0)) == (116.0, 131.0)
        clock.set(120.0, rate=0.5)
        assert (clock.read(120.0), clock.read(130.0), clock.true_time_at(136.0)) == (131.0, 136.0, 130.0)
        clock.set(130.0, rate=1.0)
        assert (clock.read(130.0), clock.read(131.0)) == (136.0, 137.0)

    @pytest.mark.parametrize("rate", [0.0, -1.0, 0.0009, 1_001.0, nan])
    def test_a_wall_clock_rate_out_of_range_is_refused(self, rate: float) -> None:
        clock = WallClock()
        with pytest.raises(ValueError, match=r"give 0\.001 to 1000"):
            clock.set(AT, rate=rate)
        assert clock == WallClock()

    @given(
        st.lists(st.tuples(st.floats(0, 1e5), st.floats(-1e6, 1e6), st.none() | st.floats(0.001, 1_000.0)), max_size=8),
        st.floats(0, 1e5),
    )
    def test_the_true_time_of_a_clock_reading_is_its_inverse(
        self, sets: list[tuple[float, float, float | None]], later: float
    ) -> None:
        clock, now = WallClock(), AT
        for passed, by, rate in sets:
            now += passed
            before = clock.read(now)
            clock.set(now, offset=by, rate=rate)
            assert clock.read(now) == pytest.approx(before + by, abs=1e-5)
        now += later
        # The clock grain has to cover rounding errors.
        assert clock.true_time_at(clock.read(now)) == pytest.approx(now, abs=CLOCK_GRAIN / 2)

    def test_the_clock_grain_equals_the_resolution_of_the_driver(self) -> None:
        assert CLOCK_GRAIN == driver.CLOCK_RESOLUTION


class TestFlush:
    def test_a_host_persists_then_sends_then_emits_events(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, _ = world.add("a", "b")
        story = watched(world)
        a.on_event = lambda event: story.append(("application", event))
        effects = Send([b"1", b"2"], (world.address("b"),)), Send([b"3"], (world.address("b"),))
        world["a"].wanted.append(wants(persist="mark", effects=effects, events=("event",)))
        a.flush()
        assert story == [
            ("persisted", "mark", "mark"),
            ("sent", b"1"),
            ("sent", b"2"),
            ("sent", b"3"),
            ("told", "event"),
            ("application", "event"),
        ]
        world.network.run(1)
        assert world.got("b") == [b"1", b"2", b"3"]

    def test_a_host_drains_its_node_until_no_events_remain(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        story = watched(world)
        node = world["a"]
        drains = node.drains
        node.wanted += [wants(events=(1,)), wants(events=(2, 3)), wants(), wants(events=("next time",))]
        a.flush()
        assert story == [("told", 1), ("told", 2), ("told", 3)]
        assert node.drains - drains == 3

    def test_commands_from_an_event_handler_run_after_the_events_at_hand(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, _ = world.add("a", "b")
        story, node = watched(world), world["a"]

        def command(node: Any, now: float) -> None:
            effect = Send([b"answer"], (world.address("b"),))
            node.wanted.append(wants(effects=(effect,), events=("done",)))

        def told(event: str) -> None:
            if event == "first":
                assert a.perform(command)

        a.on_event = told
        node.wanted.append(wants(events=("first", "second")))
        a.flush()
        assert story == [("told", "first"), ("told", "second"), ("sent", b"answer"), ("told", "done")]

    def test_commands_from_an_observer_are_performed(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b")
        order: list[bytes] = []

        class Answering(Observer):
            def sent(self, packet: Any) -> None:
                order.append(packet.data)
                if packet.data == b"question":
                    a.perform(lambda node, now: node.wanted.append(wants(effects=(Send([b"answer"], (b.address,)),))))

        world.network.add_observer(Answering())
        world["a"].wanted.append(wants(effects=(Send([b"question", b"more"], (b.address,)),)))
        a.flush()
        assert order == [b"question", b"more", b"answer"]

    def test_views_of_a_batch_are_copied_before_the_node_is_fed_again(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.add("a", "b", "c")

        def pass_on(batch: Batch, now: float) -> None:
            views = [datagram for datagram, _, _ in batch]
            world["b"].wanted.append(wants(effects=(Send(views, (world.address("c"),)),)))
            world["b"].on_tick = lambda now: batch.buffer.__setitem__(slice(None), b"?" * len(batch.buffer))
            world["b"].deadline = now + 0.125

        world["b"].on_batch = pass_on
        world.send("a", "b", b"one", b"two")
        world.network.run(1)
        assert world["b"].ticks
        assert world.got("c") == [b"one", b"two"]

    def test_endless_events_are_an_error(self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_DRAINS_PER_FLUSH", 1_000)
        world = make_world()
        (a,) = world.add("a")
        world["a"].drain = lambda: wants(events=(1,))
        with pytest.raises(RuntimeError, match="Recorder on a has events each time it is drained, without end"):
            a.flush()

    def test_very_many_events_are_no_error(self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_DRAINS_PER_FLUSH", 1_000)
        world = make_world()
        (a,) = world.add("a")
        for _ in range(3):
            world["a"].wanted += [wants(events=(1,))] * 999
            a.flush()
        assert not world["a"].wanted

    def test_a_host_can_be_flushed_again_after_an_error(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        story = watched(world)
        a.on_event = lambda event: [][event]
        world["a"].wanted += [wants(events=(1,)), wants(events=(2,))]
        for _ in range(2):
            with pytest.raises(IndexError):
                a.flush()
        assert story == [("told", 1), ("told", 2)]


class TestTicks:
    def test_a_host_ticks_its_node_at_its_deadline(self, make_world: MakeWorld) -> None:
        world = make_world(start=100.0)
        world.add("a", prepare=lambda node: setattr(node, "deadline", 101.5))
        world.network.run(1.4)
        assert world["a"].ticks == []
        world.network.run(10)
        assert world["a"].ticks == [101.5]

    def test_a_deadline_in_the_past_ticks_now(self, make_world: MakeWorld) -> None:
        world = make_world(start=100.0)
        world.add("a", prepare=lambda node: setattr(node, "deadline", 50.0))
        world.network.run(1)
        assert world["a"].ticks == [100.0]

    def test_a_host_ticks_periodically_without_drift(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.add("a", prepare=lambda node: vars(node).update(deadline=1.0, interval=0.25))
        world.network.run(10)
        assert world["a"].ticks == [1.0 + number * 0.25 for number in range(37)]

    def test_an_earlier_deadline_replaces_a_later_one(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 5.0))
        world["a"].deadline = 2.0
        a.flush()
        world.network.run(10)
        assert world["a"].ticks == [2.0]

    def test_a_later_deadline_costs_an_idle_tick_as_with_the_driver(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 2.0))
        world["a"].deadline = 2.5
        a.flush()
        world.network.run(10)
        assert world["a"].ticks == [2.0, 2.5]

    def test_a_node_without_a_deadline_is_not_ticked(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 2.0))
        world["a"].deadline = None
        a.flush()
        world.network.run(10)
        assert world["a"].ticks == []

    def test_a_deadline_moved_by_every_packet_does_not_grow_the_heap(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.add("a", "b", prepare=lambda node: setattr(node, "deadline", 1e6))

        def sooner(batch: Batch, now: float) -> None:
            world["b"].deadline -= 1.0

        world["b"].on_batch = sooner
        for _ in range(2_000):
            world.send("a", "b", b"")
            world.network.run(0.25)
        assert len(world["b"].story) == 2_000
        assert len(world.network.scheduler) == 2
        assert len(world.network.scheduler._heap) <= 6
        world.network.run(1e6)
        assert world["b"].ticks == [1e6 - 2_000]

    def test_a_clock_set_repeatedly_does_not_grow_the_heap(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 1e6))
        for number in range(2_000):
            a.set_clock(offset=1.0 if number % 2 else -1.0)
            if number % 100 == 0:
                a.pause()
                a.resume()
        assert len(world.network.scheduler._heap) <= 3

    def test_rounding_neither_loses_nor_adds_ticks(self, make_world: MakeWorld) -> None:
        # A host clock finer than true time, so that no true time is exactly its deadline.
        world = make_world(start=AT)
        (a,) = world.add("a")
        a.set_clock(offset=-AT + 1 / 3)
        world["a"].deadline = world["a"].interval = 0.7
        a.flush()
        world.network.run(1_000)
        ticks = world["a"].ticks
        assert len(ticks) in (1_427, 1_428, 1_429)
        assert all(later - sooner >= 0.7 - 1e-9 for sooner, later in pairwise(ticks))

    @pytest.mark.parametrize("by", [3.5, 1e9, -3.5, -1e9, -AT])
    def test_a_host_ticks_by_its_own_clock(self, make_world: MakeWorld, by: float) -> None:
        world = make_world(start=AT)
        (a,) = world.add("a")
        a.set_clock(offset=by)
        assert a.now == AT + by
        world["a"].deadline = a.now + 2.0
        a.flush()
        world.network.run(1.999)
        assert world["a"].ticks == []
        world.network.run(0.002)
        assert world["a"].ticks == [AT + by + 2.0]

    def test_a_clock_set_past_the_deadline_ticks_at_once(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: vars(node).update(deadline=10.0, interval=10.0))
        world.network.call_in(1.0, lambda: a.set_clock(offset=15.0))
        world.network.run(9.0)
        assert world["a"].ticks == [16.0]
        world.network.run(100.0)
        assert world["a"].ticks == [16.0 + 10.0 * number for number in range(11)]

    def test_a_clock_set_back_delays_the_tick(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 10.0))
        world.network.call_in(1.0, lambda: a.set_clock(offset=-5.0))
        world.network.run(14.5)
        assert world["a"].ticks == []
        world.network.run(1.0)
        assert world["a"].ticks == [10.0]

    def test_a_clock_that_runs_fast_ticks_early(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: vars(node).update(deadline=10.0, interval=10.0))
        a.set_clock(rate=2.0)
        world.network.run(20.5)
        assert world["a"].ticks == [10.0, 20.0, 30.0, 40.0]
        a.set_clock(rate=0.5)
        world.network.run(20.0)
        assert world["a"].ticks == [10.0, 20.0, 30.0, 40.0, 50.0]

    @given(
        st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(-20.0, 20.0), st.none() | st.floats(0.5, 2.0)), max_size=10)
    )
    def test_clock_changes_make_no_tick_early_lost_or_repeated(
        self, make_world: MakeWorld, sets: list[tuple[float, float, float | None]]
    ) -> None:
        world = make_world(start=AT)
        (a,) = world.add("a", prepare=lambda node: vars(node).update(deadline=AT + 0.25, interval=0.25))
        early: list[float] = []
        node = world["a"]
        tick = node.tick

        def checked(now: float) -> None:
            if now < node.deadline:
                early.append(now)
            tick(now)

        node.tick = checked
        passed = 0.0
        for after, by, rate in sets:
            world.network.run(after)
            a.set_clock(offset=by, rate=rate)
            passed += max(by, 0.0)
        world.network.run(1.0)
        assert early == []
        assert a.now < node.deadline + 1e-5  # No tick is overdue.
        elapsed = world.network.elapsed * 2.0
        assert len(node.ticks) <= elapsed / 0.25 + len(sets) + 1

    def test_endless_ticks_are_an_error_with_a_reproducible_text(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.add("a", prepare=lambda node: vars(node).update(deadline=5.0, interval=0.0))
        with pytest.raises(RuntimeError, match=r"^Recorder on a ticks at 5\.0 without end; it wants 5\.0$"):
            world.network.run(10)
        assert world.network.now == 5.0

    def test_many_ticks_at_one_time_are_no_error(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.add("a", prepare=lambda node: vars(node).update(deadline=5.0, interval=0.0))
        node = world["a"]

        def enough(now: float) -> None:
            if len(node.ticks) % MAX_TICKS_PER_MOMENT == 0:
                node.deadline = now + 1.0

        node.on_tick = enough
        world.network.run(4.5 + 3.0)
        assert len(node.ticks) == 3 * MAX_TICKS_PER_MOMENT

    def test_many_ticks_with_a_cause_at_one_time_are_no_error(self, make_world: MakeWorld) -> None:
        world = make_world(link=Link(delay=0.0))
        world.add("a", "b")
        a, b = (world.network.host(name) for name in "ab")
        node = world["b"]

        def answered(batch: Batch, now: float) -> None:
            node.deadline = now

        def asks(now: float) -> None:
            if len(node.ticks) < 3 * MAX_TICKS_PER_MOMENT:
                world.send("a", "b", b"again")

        node.on_batch, node.on_tick = answered, asks
        world.send("a", "b", b"first")
        world.network.run(1)
        assert len(node.ticks) == 3 * MAX_TICKS_PER_MOMENT
        node.on_tick = lambda now: None

        def command(node: Any, now: float) -> None:
            node.deadline = now

        for _ in range(2 * MAX_TICKS_PER_MOMENT):
            world.network.call_in(0.0, lambda: b.perform(command))
            world.network.run(0.0)
        assert len(node.ticks) == 5 * MAX_TICKS_PER_MOMENT
        assert a.running


class TestDo:
    def test_perform_calls_with_the_host_time_and_flushes_the_node(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, _ = world.add("a", "b")
        a.set_clock(offset=5.0)
        seen: list[Any] = []

        def command(node: Any, now: float) -> None:
            seen.append((node, now))
            node.wanted.append(wants(effects=(Send([b"x"], (world.address("b"),)),)))
            node.deadline = now + 1.0

        assert a.perform(command)
        world.network.run(2.0)
        assert seen == [(world["a"], 5.0)]
        assert world.got("b") == [b"x"]
        assert world["a"].ticks == [6.0]

    def test_perform_on_a_host_that_is_down_returns_false(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        a.stop()
        seen: list[Any] = []
        assert not a.perform(lambda node, now: seen.append(node))
        a.start()
        world.network.run(1)
        assert seen == []


class TestStanding:
    def test_arrivals_at_a_paused_host_wait_for_its_resume(self, make_world: MakeWorld) -> None:
        world = make_world()
        _, b = world.add("a", "b")
        assert b.pause()
        assert (b.up, b.running, b.paused) == (True, False, True)
        for number in range(3):
            world.send("a", "b", b"%d" % number)
            world.network.run(1.0)
        assert world.got("b") == []
        b.resume()
        assert world["b"].story == [("batch", 3.0, [b"0", b"1", b"2"])]
        assert world.network.counters["arrived"] == 3
        assert b.running

    def test_a_resumed_host_ticks_once_before_it_reads_waiting_datagrams(self, make_world: MakeWorld) -> None:
        world = make_world()
        _, b = world.add("a", "b", prepare=lambda node: vars(node).update(deadline=1.0, interval=10.0))
        node = world["b"]
        story = watched(world)
        node.on_tick = lambda now: node.wanted.append(wants(persist="on tick", events=("tick",)))
        node.on_batch = lambda batch, now: node.wanted.append(wants(persist="on batch", events=("batch",)))
        b.pause()
        world.send("a", "b", b"x")
        world.network.run(5.0)
        assert node.story == []
        story.clear()
        b.resume()
        assert node.story == [("tick", 5.0), ("batch", 5.0, [b"x"])]
        assert story == [
            ("resumed", "b"),
            ("persisted", "on tick", "on tick"),
            ("told", "tick"),
            ("persisted", "on batch", "on batch"),
            ("told", "batch"),
        ]
        world.network.run(10.0)
        assert node.ticks == [5.0, 15.0]

    def test_a_deadline_after_the_resume_is_ticked_at_its_time(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 3.0))
        a.pause()
        world.network.run(2.0)
        a.resume()
        assert world["a"].ticks == []
        world.network.run(2.0)
        assert world["a"].ticks == [3.0]

    def test_a_resumed_host_checks_deadlines_by_its_own_clock(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a", prepare=lambda node: setattr(node, "deadline", 3.0))
        a.pause()
        a.set_clock(offset=-2.0)
        world.network.run(4.0)
        a.resume()
        assert world["a"].ticks == []
        a.pause()
        a.set_clock(offset=1.0)
        world.network.run(0.5)
        assert world["a"].ticks == []
        a.resume()
        assert world["a"].ticks == [3.5]

    def test_a_paused_node_does_nothing(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, _ = world.add("a", "b", prepare=lambda node: vars(node).update(deadline=1.0, interval=0.5))
        story = watched(world)
        a.pause()
        node = world["a"]
        drains = node.drains
        node.wanted.append(wants(persist=1, effects=(Send([b"x"], (world.address("b"),)),), events=(1,)))
        a.flush()
        a.start()
        world.network.run(5.0)
        assert (node.story, node.drains, story) == ([], drains, [("paused", "a")])
        a.resume()
        assert story[1:] == [("resumed", "a"), ("persisted", 1, 1), ("sent", b"x"), ("told", 1)]

    def test_commands_to_a_paused_host_run_in_order_after_waiting_datagrams(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b")
        node = world["b"]
        b.pause()
        for name in ("first", "second"):
            assert b.perform(lambda node, now, name=name: node.story.append((name, now)))
        world.send("a", "b", b"x")
        world.network.run(2.0)
        assert node.story == []
        b.resume()
        assert node.story == [("batch", 2.0, [b"x"]), ("first", 2.0), ("second", 2.0)]
        assert a.running
        b.pause()
        b.resume()
        assert len(node.story) == 3

    def test_a_command_that_pauses_again_leaves_later_commands_waiting(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        seen: list[str] = []
        a.pause()
        a.perform(lambda node, now: a.pause())
        a.perform(lambda node, now: seen.append("second"))
        a.resume()
        assert seen == []
        a.resume()
        assert seen == ["second"]

    def test_arrivals_at_a_paused_host_are_limited_by_the_receive_buffer(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(datagram_socket, "RECEIVE_BUFFER", 10)
        world = make_world()
        _, b = world.add("a", "b")
        for expected in ([b"123456", b"7890", b""], [b"1234567890"]):
            b.pause()
            world.send("a", "b", *expected, b"x", b"yz")
            world.network.run(1.0)
            b.resume()
            assert world["b"].story.pop()[2] == expected
        assert world.dropped() == {"buffer": 4}
        world.send("a", "b", b"much more than the buffer holds")
        world.network.run(1.0)
        assert world.dropped() == {"buffer": 4}

    def test_a_paused_host_can_be_stopped(self, make_world: MakeWorld) -> None:
        world = make_world()
        _, b = world.add("a", "b", prepare=lambda node: vars(node).update(deadline=0.5))
        story = watched(world)
        seen: list[str] = []
        b.pause()
        b.perform(lambda node, now: seen.append("command"))
        world.send("a", "b", b"waits", b"too")
        world.network.run(1.0)
        assert b.stop()
        assert world.dropped() == {"down": 2}
        assert (b.up, b.paused, b.running) == (False, False, False)
        b.resume()
        world.network.run(1.0)
        b.start()
        assert b.running
        world.network.run(1.0)
        b.pause()
        b.resume()
        assert seen == []
        assert [node.story for node in world.lives["b"]] == [[], [("tick", 2.0)]]
        assert [entry[0] for entry in story] == ["paused", "sent", "sent", "stopped", "started", "paused", "resumed"]
        assert world.dropped() == {"down": 2}

    def test_only_a_running_host_pauses_and_only_a_paused_one_resumes(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        story = watched(world)
        a.resume()
        assert a.pause()
        assert not a.pause()
        a.resume()
        a.resume()
        a.stop()
        assert not a.pause()
        a.resume()
        assert [entry[0] for entry in story] == ["paused", "resumed", "stopped"]

    def test_a_host_paused_by_an_event_handles_the_rest_on_resume(self, make_world: MakeWorld) -> None:
        world = make_world(split=1.0)
        _, b = world.add("a", "b")
        node = world["b"]
        node.on_batch = lambda batch, now: node.wanted.append(wants(events=(bytes(next(iter(batch))[0]),)))
        told: list[bytes] = []

        def on_event(event: bytes) -> None:
            told.append(event)
            if event == b"2":
                b.pause()

        b.on_event = on_event
        world.send("a", "b", b"1", b"2", b"3")
        world.network.run(1.0)
        assert told == [b"1", b"2"]
        b.resume()
        assert told == [b"1", b"2", b"3"]
        assert world.dropped() == {}


class TestCrashes:
    @pytest.mark.parametrize(
        ("crash", "left"), [(CrashMode.KILLED, "mark"), (CrashMode.POWER, "mark"), (CrashMode.DISK, None)]
    )
    def test_a_restarted_node_gets_the_state_that_the_crash_left(
        self, make_world: MakeWorld, crash: CrashMode, left: str | None
    ) -> None:
        world = make_world(start=100.0)
        (a,) = world.add("a")
        assert world["a"].boot == Boot(100.0, None, None)
        world["a"].wanted.append(wants(persist="mark"))
        a.flush()
        assert a.stop(crash)
        world.network.run(1)
        a.set_clock(offset=5.0)
        a.start()
        assert world["a"].boot == Boot(106.0, left, crash)
        assert len(world.lives["a"]) == a.boots == 2
        assert a.node is world["a"]

    def test_durable_state_survives_crashes_except_a_disk_loss(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        boots = []
        for mark, crash in [
            (1, CrashMode.KILLED),
            (None, CrashMode.POWER),
            (None, CrashMode.DISK),
            (None, CrashMode.KILLED),
            (2, None),
        ]:
            world["a"].wanted.append(wants(persist=mark))
            a.flush()
            if crash is not None:
                a.stop(crash)
                a.start()
            boots.append(world["a"].boot.persisted)
        assert boots == [1, 1, None, None, None]
        assert a.persisted == 2

    def test_a_host_that_is_down_neither_receives_nor_sends_nor_ticks(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, b = world.add("a", "b", prepare=lambda node: setattr(node, "deadline", 1.0))
        story = watched(world)
        node = world["b"]
        world.send("a", "b", b"under way")
        b.stop()
        node.wanted.append(wants(persist=1, effects=(Send([b"x"], (a.address,)),), events=(1,)))
        b.flush()
        world.send("a", "b", b"1", b"2")
        world.network.run(5.0)
        b.set_clock(offset=100.0)
        world.network.run(5.0)
        assert (node.story, len(node.wanted), b.persisted) == ([], 1, None)
        assert world.got("a") == []
        assert world.dropped() == {"down": 3}
        assert [entry[0] for entry in story] == ["sent", "stopped", "sent", "sent"]

    def test_datagrams_arriving_after_a_restart_reach_the_new_node(self, make_world: MakeWorld) -> None:
        world = make_world()
        _, b = world.add("a", "b", prepare=lambda node: setattr(node, "deadline", 3.0))
        world.send("a", "b", b"under way")
        b.stop()
        world.network.run(0.125)
        b.start()
        world.network.run(5.0)
        old, new = world.lives["b"]
        assert old.story == []
        assert new.story == [("batch", 0.25, [b"under way"]), ("tick", 3.0)]

    def test_a_second_crash_or_start_has_no_effect(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        story = watched(world)
        a.start()
        assert a.stop(CrashMode.KILLED)
        assert not a.stop(CrashMode.DISK)
        a.start()
        a.start()
        assert world["a"].boot.last_crash is CrashMode.KILLED
        assert story == [("stopped", "killed", False), ("started", "a")]
        assert len(world.lives["a"]) == 2

    def test_a_crash_can_strike_between_persisting_and_sending(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, _ = world.add("a", "b")
        story, node = watched(world), world["a"]
        effect = Send([b"x"], (world.address("b"),))
        a.crash_after_persist(CrashMode.POWER, 2.0)
        node.wanted.append(wants(effects=(effect,), events=(1,)))
        a.flush()
        assert a.up
        world.network.run(1.0)
        node.wanted += [wants(persist="mark", effects=(effect,), events=(2,)), wants(events=(3,))]
        a.flush()
        assert story == [("sent", b"x"), ("told", 1), ("persisted", "mark", "mark"), ("stopped", "power lost", False)]
        world.network.run(1.5)
        assert not a.up
        world.network.run(1.0)
        assert world["a"].boot == Boot(3.0, "mark", CrashMode.POWER)
        world["a"].wanted.append(wants(persist="next"))
        a.flush()
        assert a.up

    @pytest.mark.parametrize(("mode", "persisted"), [(CrashMode.POWER, None), (CrashMode.KILLED, "mark")])
    def test_the_power_can_fail_while_state_is_persisted_that_has_concurrent_effects(
        self, make_world: MakeWorld, mode: CrashMode, persisted: str | None
    ) -> None:
        world = make_world()
        a, _ = world.add("a", "b")
        story = watched(world)
        first, then = (Send([data], (world.address("b"),)) for data in (b"first", b"then"))
        world["a"].wanted.append(wants(persist=ConcurrentPersist([first], "early"), effects=(then,)))
        a.flush()
        assert story == [("sent", b"first"), ("persisted", "early", "early"), ("sent", b"then")]
        a.persisted = None
        a.crash_after_persist(mode, 2.0)
        world["a"].wanted.append(wants(persist=ConcurrentPersist([first], "mark"), effects=(then,)))
        a.flush()
        assert not a.up
        assert a.persisted == persisted
        assert story.count(("sent", b"first")) == 2
        assert story.count(("sent", b"then")) == 1
        world.network.run(3.0)
        assert world["a"].boot == Boot(2.0, persisted, mode)

    @pytest.mark.parametrize(("when", "up"), [(1.9, False), (2.1, True)])
    def test_a_crash_on_persist_expires_without_a_persist(self, make_world: MakeWorld, when: float, up: bool) -> None:
        world = make_world()
        (a,) = world.add("a")
        a.crash_after_persist(CrashMode.KILLED, 2.0)
        world.network.run(when)
        world["a"].wanted.append(wants(persist="mark"))
        a.flush()
        assert a.up is up

    def test_an_earlier_crash_cancels_a_crash_on_persist(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")
        a.crash_after_persist(CrashMode.DISK, 2.0)
        a.stop(CrashMode.KILLED)
        a.start()
        world["a"].wanted.append(wants(persist="mark"))
        a.flush()
        assert a.up

    def test_a_crash_on_persist_does_not_depend_on_batch_boundaries(self, make_world: MakeWorld) -> None:
        for split in (0.0, 1.0):
            here = make_world(split=split)
            _, b = here.add("a", "b")
            node = here["b"]
            node.on_batch = lambda batch, now, node=node: node.wanted.append(wants(persist=len(node.rows)))
            b.crash_after_persist(CrashMode.KILLED, 1.0)
            here.send("a", "b", b"1", b"2", b"3")
            here.network.run(1.0)
            assert (b.persisted, here.got("b"), here.dropped()) == (3, [b"1", b"2", b"3"], {})

    @pytest.mark.parametrize("starts", [False, True])
    def test_a_host_can_crash_in_an_event_handler(self, make_world: MakeWorld, starts: bool) -> None:
        world = make_world(split=1.0)
        _, b = world.add("a", "b")
        first = world["b"]
        told: list[Any] = []

        def on_event(event: Any) -> None:
            told.append(event)
            if event == "crash":
                b.stop()
                if starts:
                    b.start()
                    world["b"].wanted.append(wants(events=("new",)))
                    world["b"].deadline = 5.0

        b.on_event = on_event
        first.on_batch = lambda batch, now: first.wanted.append(wants(events=("crash", "not told")))
        first.deadline = 3.0
        world.send("a", "b", b"1", b"2")
        world.network.run(10.0)
        assert first.story == [("batch", 0.25, [b"1"])]
        if starts:
            assert told == ["crash", "new"]
            assert world["b"].story == [("batch", 0.25, [b"2"]), ("tick", 5.0)]
        else:
            assert told == ["crash"]
            assert world.dropped() == {"down": 1}

    def test_an_exception_at_the_start_of_a_node_propagates(self, make_world: MakeWorld) -> None:
        def prepare(node: Any) -> None:
            raise OSError("no disk")

        with pytest.raises(OSError, match="no disk"):
            make_world().add("a", prepare=prepare)


class TestNobody:
    def test_a_datagram_for_a_stream_node_is_dropped(self, make_world: MakeWorld) -> None:
        class Deaf:
            def next_deadline(self) -> None:
                return None

            def drain(self) -> Outputs:
                return wants()

        here = make_world()
        here.add("a")
        deaf = here.network.add("deaf", ("10.0.0.9", 9), lambda boot: Deaf())
        deaf.start()
        arrived: list[Any] = []
        here.network.observers.arrived.append(lambda packet, host: arrived.append(packet))
        here.send("a", "deaf", b"1", b"2")
        here.network.run(1)
        assert deaf.pause()
        here.send("a", "deaf", b"3")
        here.network.run(1)
        deaf.resume()
        assert here.dropped() == {"nobody": 3}
        assert not arrived
        assert not here.network.counters["arrived"]
        assert not here.network.counters["batches"]


class TestActing:
    """Attribution of exceptions to hosts."""

    def active_host(self, world: World, break_it: Callable[[Host, Any], object]) -> str | None:
        a, _ = world.add("a", "b")
        assert world.network.active_host is None

        def fail(*_: object) -> None:
            raise LookupError("mine")

        with pytest.raises(LookupError):  # noqa: PT012  # It breaks in one of several places.
            break_it(a, fail)
            world.network.run(5.0)
        acting: Host | None = world.network.active_host
        return None if acting is None else acting.name

    def test_the_active_host_is_that_of_a_raising_node(self, make_world: MakeWorld) -> None:
        def on_batch(a: Host, fail: Any) -> None:
            a.node.on_batch = fail
            a.network.send(a, Send([b"x"], (a.address, ("10.0.0.2", 2))))

        def on_tick(a: Host, fail: Any) -> None:
            a.node.on_tick = fail
            a.node.deadline = 1.0
            a.flush()

        def on_command(a: Host, fail: Any) -> None:
            a.perform(fail)

        def on_command_that_waited(a: Host, fail: Any) -> None:
            a.pause()
            a.perform(fail)
            a.network.call_in(1.0, a.resume)

        def on_drain(a: Host, fail: Any) -> None:
            a.node.drain = fail
            a.flush()

        def on_event(a: Host, fail: Any) -> None:
            a.on_event = fail
            a.node.wanted.append(wants(events=(1,)))
            a.flush()

        def on_deadline(a: Host, fail: Any) -> None:
            a.node.next_deadline = fail
            a.flush()

        def on_start(a: Host, fail: Any) -> None:
            a.stop()
            a._start = fail
            a.start()

        ways = (on_batch, on_tick, on_command, on_command_that_waited, on_drain, on_event, on_deadline, on_start)
        assert {way.__name__: self.active_host(make_world(), way) for way in ways} == {
            way.__name__: "a" for way in ways
        }

    def test_the_active_host_is_restored_after_a_nested_command(self, make_world: MakeWorld) -> None:
        def on_event(a: Host, fail: Any) -> None:
            a.on_event = lambda event: a.network.host("b").perform(lambda node, now: None)
            a.node.wanted.append(wants(events=(1,)))
            a.node.next_deadline = lambda: None if a.node.wanted else fail()
            a.flush()

        assert self.active_host(make_world(), on_event) == "a"

    def test_there_is_no_active_host_outside_of_nodes(self, make_world: MakeWorld) -> None:
        def elsewhere(a: Host, fail: Any) -> None:
            a.perform(lambda node, now: None)
            a.network.send(a, Send([b"x"], (a.address,)))
            a.pause()
            a.resume()
            a.network.call_in(1.0, fail)

        assert self.active_host(make_world(), elsewhere) is None


def with_disk(world: World, name: str = "a", **files: bytes) -> Host:
    """Add a host with a disk with durable files, not started yet."""
    host: Host = world.add(name)[0]
    host.stop()
    host.disk = Disk(Random(1))
    for file, content in files.items():
        host.disk.open(file, create=True).write(0, content)
        host.disk.open(file).sync()
    host.disk.sync()
    return host


def appends(host: Host) -> Callable[[Any], None]:
    """Return a function that appends to the file "log" on the disk of a host and syncs it."""

    def on_persist(what: bytes) -> None:
        assert host.disk is not None
        with_log = host.disk.open("log", writable=True)
        with_log.write(with_log.size(), what)
        with_log.sync()

    return on_persist


class TestDisk:
    def test_a_simulated_disk_is_told_of_every_crash(self, make_world: MakeWorld) -> None:
        world = make_world()
        a = with_disk(world, log=b"")
        disk = a.disk
        assert disk is not None
        left = []
        for crash in CrashMode:
            a.start()
            if disk.names():
                disk.open("log", writable=True).write(0, b"x")
            lock = disk.lock()
            a.stop(crash)
            left.append((disk.names(), disk.crash_count))
            disk.lock().close()
            lock.close()
            assert not a.stop(CrashMode.DISK)
        assert left == [(["log"], 1), (["log"], 2), ([], 3)]

    def test_state_is_persisted_to_disk_before_any_other_effect(self, make_world: MakeWorld) -> None:
        world = make_world()
        a, story = with_disk(world), watched(world)
        a.start()
        story.clear()
        a.on_persist = lambda what: story.append(("on persist", what, a.persisted))
        effect = Send([b"x"], (a.address,))
        world["a"].wanted += [wants(persist="mark", effects=(effect,), events=(1,)), wants(events=(2,))]
        a.flush()
        assert story == [
            ("on persist", "mark", None),
            ("persisted", "mark", "mark"),
            ("sent", b"x"),
            ("told", 1),
            ("told", 2),
        ]

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (OSError(5, "a sync failed"), "OSError: [Errno 5] a sync failed"),
            (StateFileError("it is in use"), "StateFileError: it is in use"),
        ],
    )
    @pytest.mark.parametrize("disk", [True, False])
    def test_a_process_that_cannot_persist_is_stopped_and_restarted(
        self, make_world: MakeWorld, error: Exception, text: str, disk: bool
    ) -> None:
        world = make_world()
        a = with_disk(world) if disk else world.add("a")[0]
        a.start()
        story = watched(world)
        world["a"].wanted.append(wants(persist="first"))
        a.flush()
        story.clear()

        def fail(what: Any) -> None:
            raise error

        a.on_persist = fail
        world["a"].wanted += [wants(persist="mark", effects=(Send([b"x"], (a.address,)),), events=(1,))] * 2
        a.flush()
        assert story == [("stopped", f"could not persist: {text}", False)]
        assert not a.powered_off
        world.network.run(RESTART_DELAY - 0.01)
        assert not a.up
        world.network.run(0.02)
        assert a.up
        assert world["a"].boot == Boot(RESTART_DELAY, "first", CrashMode.KILLED)
        assert len(world["a"].wanted) == 0

    def test_an_unexpected_error_while_persisting_propagates(self, make_world: MakeWorld) -> None:
        (a,) = make_world().add("a")
        a.on_persist = lambda what: [][what]
        a.node.wanted.append(wants(persist=1))
        with pytest.raises(IndexError):
            a.flush()

    def test_a_process_stopped_while_persisting_does_nothing_more(self, make_world: MakeWorld) -> None:
        world = make_world()
        (a,) = world.add("a")

        def stop(what: Any) -> None:
            a.stop()
            raise OSError("too late")

        for on_persist in (stop, lambda what: a.stop()):
            a.start()
            story = watched(world)
            a.on_persist = on_persist
            world["a"].wanted.append(wants(persist=1, events=(1,)))
            a.flush()
            world.network.run(10.0)
            assert story == [("stopped", "killed", False)]
            assert (a.up, a.persisted) == (False, None)

    def test_a_failed_process_started_by_a_fault_is_not_started_again(self, make_world: MakeWorld) -> None:
        world = make_world()
        a = with_disk(world)
        a.start()
        a.node.wanted.append(wants(persist=b"x"))
        a.on_persist = appends(a)
        a.flush()
        assert not a.up
        world.network.call_in(1.0, a.start)
        world.network.call_in(1.5, a.stop)
        world.network.run(10.0)
        assert not a.up

    @pytest.mark.parametrize("fuse", range(5))
    def test_power_can_be_cut_while_a_node_persists(self, make_world: MakeWorld, fuse: int) -> None:
        world = make_world()
        a = with_disk(world, log=b"1")
        assert a.disk is not None
        a.start()
        a.on_persist = appends(a)
        a.disk.power_cut_after = fuse
        story = watched(world)
        world["a"].wanted.append(wants(persist=b"234", effects=(Send([b"x"], (a.address,)),)))
        a.flush()
        if fuse == 4:
            assert [what for what, *_ in story] == ["persisted", "sent"]
            return
        assert story == [("stopped", "power lost while the disk was busy", False)]
        assert a.powered_off
        assert a.disk.open("log").read(0, 9) in (b"1" + b"234"[:fuse], b"1", b"1" + bytes(fuse))
        world.network.run(RESTART_DELAY)
        assert (a.up, a.powered_off) == (True, False)
        assert world["a"].boot == Boot(RESTART_DELAY, None, CrashMode.POWER)

    def test_power_can_be_cut_wherever_a_node_uses_the_disk(self, make_world: MakeWorld) -> None:
        def on_batch(a: Host, cut: Any) -> None:
            a.node.on_batch = cut
            a.network.send(a, Send([b"x"], (a.address,)))

        def on_tick(a: Host, cut: Any) -> None:
            a.node.on_tick = cut
            a.node.deadline = 0.5
            a.flush()

        def on_command(a: Host, cut: Any) -> None:
            a.perform(cut)

        def on_event(a: Host, cut: Any) -> None:
            a.on_event = cut
            a.node.wanted.append(wants(events=(1,)))
            a.flush()

        def on_drain(a: Host, cut: Any) -> None:
            a.node.drain = cut
            a.flush()

        def on_command_of_another(a: Host, cut: Any) -> None:
            b = a.network.host("b")
            b.on_event = lambda event: a.perform(cut)
            b.node.wanted.append(wants(events=(1, 2)))
            b.flush()
            assert b.up

        def cut(*_: Any) -> None:
            raise PowerCut("now")

        for way in (on_batch, on_tick, on_command, on_event, on_drain, on_command_of_another):
            here = make_world()
            a = with_disk(here)
            here.add("b")
            a.start()
            story = watched(here)
            way(a, cut)
            here.network.run(1.0)
            assert [row for row in story if row[0] == "stopped"] == [
                ("stopped", "power lost while the disk was busy", False)
            ]
            assert here.network.active_host is None
            here.network.run(RESTART_DELAY)
            assert a.boots == 3

    def test_a_process_that_cannot_start_is_retried(self, make_world: MakeWorld) -> None:
        world = make_world()
        a = with_disk(world, log=b"")
        disk, start = a.disk, a._start
        assert disk is not None

        def read_first(boot: Boot) -> Any:
            disk.lock()
            disk.open("log").read(0, 1)
            return start(boot)

        a._start = read_first
        a.start()
        story = watched(world)
        disk.fail_reads()
        a.stop(CrashMode.POWER)
        assert a.powered_off
        a.start()
        assert not a.up
        assert not a.powered_off
        assert world.network.active_host is None
        world.network.run(RESTART_DELAY * 1.5)
        disk.clear_impairment()
        world.network.run(RESTART_DELAY)
        assert a.up
        assert world["a"].boot == Boot(RESTART_DELAY * 2, None, CrashMode.POWER)
        failed = ("stopped", "could not start: OSError: [Errno 5] a read failed: 'log'", False)
        assert story == [("stopped", "power lost", False), failed, failed, ("started", "a")]

    def test_start_attempts_of_repeated_crashes_do_not_accumulate(self, make_world: MakeWorld) -> None:
        world = make_world()
        a = with_disk(world)

        def fail(boot: Boot) -> Any:
            raise StateFileError("broken")

        a._start = fail
        story = watched(world)
        for _ in range(3):
            a.start()
        world.network.run(RESTART_DELAY * 2.5)
        assert len(story) == 3 + 2

    def test_power_can_be_cut_while_a_node_starts(self, make_world: MakeWorld) -> None:
        world = make_world()
        a = with_disk(world, log=b"")
        disk, start = a.disk, a._start
        assert disk is not None

        def write_first(boot: Boot) -> Any:
            disk.open("log", writable=True).write(0, b"12345")
            return start(boot)

        a._start = write_first
        disk.power_cut_after = 3
        story = watched(world)
        a.start()
        assert (a.up, a.powered_off) == (False, True)
        world.network.run(RESTART_DELAY)
        assert story == [("stopped", "power lost while the disk was busy", False), ("started", "a")]
        assert world["a"].boot.last_crash is CrashMode.POWER
        assert disk.open("log").read(0, 9) == b"12345"

    @pytest.mark.parametrize("crash", [CrashMode.POWER, CrashMode.DISK])
    def test_an_earlier_crash_cancels_a_pending_power_cut(self, make_world: MakeWorld, crash: CrashMode) -> None:
        world = make_world()
        a = with_disk(world, log=b"")
        assert a.disk is not None
        a.start()
        a.cut_power_after(3, 9.0)
        a.stop(crash)
        a.start()
        a.disk.power_cut_after = 0
        world.network.run(9.5)
        assert a.disk.power_cut_after == 0
        a.on_persist = lambda what: a.disk.sync()  # type: ignore[union-attr]
        world["a"].wanted.append(wants(persist=1))
        a.flush()
        assert not a.up
        world.network.run(RESTART_DELAY)
        assert a.up

    def test_a_power_cut_needs_a_host_with_a_disk(self, make_world: MakeWorld) -> None:
        (a,) = make_world().add("a")
        with pytest.raises(ValueError, match="a has no disk"):
            a.cut_power_after(1, 1.0)
