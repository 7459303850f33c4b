from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from math import inf, nan
from random import Random
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Clock, LoopingCall
from zope.interface.verify import verifyObject

from fyrehose_twisted.sim.clock import HeapClock

AnyClock = Clock | HeapClock


class Boom(Exception):
    pass


@dataclass(frozen=True)
class Schedule:
    """Schedule a call that runs ``body`` and may raise."""

    delay: float
    body: tuple[Command, ...]
    raises: bool


@dataclass(frozen=True)
class Change:
    """Apply ``what`` to scheduled calls: ``cancel``, or ``reset`` or ``delay`` by a duration."""

    what: str
    which: tuple[int, ...]
    amount: float


@dataclass(frozen=True)
class Pass:
    """Move time: ``advance``, ``pump`` or ``run`` by each amount, or ``rewind`` rightNow."""

    how: str
    amounts: tuple[float, ...]


@dataclass(frozen=True)
class Look:
    """Inspect pending calls."""


Command = Schedule | Change | Pass | Look


def run(clock: AnyClock, seconds: float) -> None:
    """Reference implementation of HeapClock.run with task.Clock."""
    if isinstance(clock, HeapClock):
        clock.run(seconds)
        return
    end = clock.seconds() + seconds
    clock.advance(0.0)
    while due := [when for call in clock.getDelayedCalls() if (when := call.getTime()) <= end]:
        clock.advance(max(0.0, min(due) - clock.seconds()))
    clock.advance(max(0.0, end - clock.seconds()))


class Played:
    """A program run on a clock, with a record of its calls."""

    def __init__(self, clock: AnyClock, program: tuple[Command, ...]) -> None:
        self.clock = clock
        self.calls: list[IDelayedCall] = []
        self.story: list[object] = []
        self.play(program)
        # Remaining calls must run in order too; a raising call ends an advance.
        while pending := list(clock.getDelayedCalls()):
            self.attempt(lambda: clock.advance(100.0))
            assert not all(call.active() for call in pending), "the clock does not get on"

    def play(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            self.attempt(lambda command=command: self.obey(command))  # type: ignore[misc]

    def attempt(self, attempt: Callable[[], None]) -> None:
        try:
            attempt()
        except (Boom, AlreadyCalled, AlreadyCancelled) as error:
            self.story.append(("raised", type(error), error.args))
        self.story.append(("it is", self.clock.seconds(), self.clock.rightNow))

    def obey(self, command: Command) -> None:
        match command:
            case Schedule(delay, body, raises):
                name = len(self.calls)
                self.calls.append(self.clock.callLater(delay, self.called, name, body, raises=raises))
                self.story.append((name, "is due at", self.calls[name].getTime()))
            case Change(what, which, amount) if self.calls:
                for number in which:
                    call = self.calls[number % len(self.calls)]
                    if what == "cancel":
                        call.cancel()
                    else:
                        getattr(call, what)(amount)
            case Pass("advance", amounts):
                for amount in amounts:
                    self.clock.advance(amount)
            case Pass("pump", amounts):
                self.clock.pump(amounts)
            case Pass("run", amounts):
                for amount in amounts:
                    run(self.clock, abs(amount))
            case Pass("rewind", amounts):
                for amount in amounts:
                    self.clock.rightNow -= amount
            case Look():
                self.look()

    def called(self, name: int, body: tuple[Command, ...], raises: bool) -> None:
        self.story.append((name, "called at", self.clock.seconds(), "active", self.calls[name].active()))
        self.play(body)
        if raises:
            raise Boom(name)

    def look(self) -> None:
        pending = [self.calls.index(call) for call in self.clock.getDelayedCalls()]
        assert {name for name, call in enumerate(self.calls) if call.active()} == set(pending)
        self.story.append(("pending in this order", pending))
        self.story.append([(call.active(), call.getTime()) for call in self.calls])


def assert_same(story: list[object], expected: list[object]) -> None:
    """Compare long records entry by entry, since pytest takes minutes to diff them."""
    for ours, theirs in zip_longest(story, expected):
        assert ours == theirs


def eighths(low: int, high: int) -> st.SearchStrategy[float]:
    """Draw few exact times, so that many calls coincide."""
    return st.integers(low, high).map(lambda number: number / 8)


def programs(depth: int) -> st.SearchStrategy[tuple[Command, ...]]:
    body = programs(depth - 1) if depth else st.just(())
    command = st.one_of(
        st.builds(Schedule, eighths(-1, 6), body, st.sampled_from([False, False, False, True])),
        st.builds(Schedule, eighths(0, 3), st.just(()), st.just(False)),
        st.builds(
            Change,
            st.sampled_from(["reset", "delay", "reset", "delay", "cancel"]),
            st.lists(st.integers(0, 20), min_size=1, max_size=3).map(tuple),
            eighths(-4, 6),
        ),
        st.builds(
            Pass,
            st.sampled_from(["advance", "pump", "run", "rewind"]),
            st.lists(eighths(-1, 4), min_size=1, max_size=3).map(tuple),
        ),
        st.just(Look()),
    )
    return st.lists(command, max_size=20 if depth == 2 else 5).map(tuple)


@given(programs(2))
def test_every_program_of_calls_runs_as_on_twisteds_clock(program: tuple[Command, ...]) -> None:
    assert_same(Played(HeapClock(), program).story, Played(Clock(), program).story)


def crowd(clock: AnyClock, seed: int) -> list[object]:
    """Run many timers that schedule, reschedule and cancel one another; return the record."""
    random = Random(seed)
    story: list[object] = []
    calls: list[IDelayedCall] = []

    def called(name: int) -> None:
        story.append((name, clock.seconds()))
        for _ in range(random.randrange(3)):
            schedule()
        for _ in range(random.randrange(8)):
            call = random.choice(calls)
            if call.active():
                if random.random() < 0.3:
                    call.cancel()
                else:
                    random.choice([call.reset, call.delay])(random.randrange(-8, 64) / 8)

    def schedule() -> None:
        if len(calls) < 2_000:
            calls.append(clock.callLater(random.randrange(64) / 8, called, len(calls)))

    for _ in range(400):
        schedule()
    for _ in range(300):
        clock.advance(random.randrange(4) / 8)
        story.append([call.getTime() for call in clock.getDelayedCalls()])
    return story


@pytest.mark.parametrize("seed", range(5))
def test_many_timers_run_as_on_twisteds_clock(seed: int) -> None:
    story = crowd(HeapClock(), seed)
    assert_same(story, crowd(Clock(), seed))
    assert len(story) > 1_000


class Recorded:
    """A clock with a record of its calls and their times."""

    def __init__(self, now: float = 0.0) -> None:
        self.clock = HeapClock(now)
        self.seen: list[tuple[str, float]] = []

    def call(self, name: str, delay: float, then: Callable[[], object] = lambda: None) -> IDelayedCall:
        def called() -> None:
            self.seen.append((name, self.clock.seconds()))
            then()

        return self.clock.callLater(delay, called)

    def boom(self) -> None:
        raise Boom

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.seen)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded(10.0)


def test_heap_clock_provides_ireactortime() -> None:
    clock = HeapClock()
    assert verifyObject(IReactorTime, clock)
    assert verifyObject(IDelayedCall, clock.callLater(1.0, print))
    assert clock.seconds() == 0.0


def test_a_delayed_call_gets_its_arguments() -> None:
    clock = HeapClock()
    seen: list[object] = []
    clock.callLater(1.0, lambda *args, **kw: seen.append((args, kw)), 1, "two", three=3)
    clock.advance(1.0)
    assert seen == [((1, "two"), {"three": 3})]


def test_get_delayed_calls_returns_a_copy() -> None:
    clock = HeapClock()
    pending = clock.getDelayedCalls()
    call = clock.callLater(1.0, print)
    assert list(pending) == []
    assert list(clock.getDelayedCalls()) == [call]


class TestTies:
    def test_calls_of_equal_time_run_in_scheduling_order(self, recorded: Recorded) -> None:
        for name in "abcdef":
            recorded.call(name, 1.0)
        recorded.clock.advance(1.0)
        assert recorded.names == "abcdef"

    def test_a_call_scheduled_at_an_earlier_time_comes_first(self, recorded: Recorded) -> None:
        call = recorded.call("a", 1.0)
        recorded.call("b", 2.0)
        call.reset(2.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "ab"

    def test_a_call_scheduled_at_a_later_time_comes_last(self, recorded: Recorded) -> None:
        call = recorded.call("a", 3.0)
        recorded.call("b", 2.0)
        call.delay(-1.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "ba"

    def test_calls_rescheduled_together_keep_their_order(self, recorded: Recorded) -> None:
        calls = [recorded.call(name, delay) for name, delay in [("a", 1.0), ("b", 1.5), ("d", 3.0), ("e", 3.0)]]
        recorded.call("c", 2.0)
        for call in reversed(calls):
            call.reset(2.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "abcde"

    def test_the_last_of_calls_rescheduled_separately_runs_outermost(self, recorded: Recorded) -> None:
        calls = [recorded.call(name, delay) for name, delay in [("b", 1.0), ("a", 1.5), ("d", 3.0), ("e", 3.0)]]
        recorded.call("c", 2.0)
        for call in calls:
            call.reset(2.0)
            recorded.clock.advance(0.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "abcde"

    def test_a_call_rescheduled_to_an_earlier_time_keeps_its_place(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0)
        call = recorded.call("b", 1.0)
        recorded.call("c", 1.0)
        before = list(recorded.clock.getDelayedCalls())
        call.reset(5.0)
        assert list(recorded.clock.getDelayedCalls()) == before
        call.reset(1.0)
        recorded.clock.advance(1.0)
        assert recorded.names == "abc"

    def test_a_new_call_comes_after_calls_rescheduled_to_its_time(self, recorded: Recorded) -> None:
        call = recorded.call("a", 3.0)
        call.reset(2.0)
        recorded.call("b", 2.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "ab"

    def test_a_raising_call_does_not_change_the_order_of_others(self, recorded: Recorded) -> None:
        def move() -> None:
            call.reset(5.0)
            raise Boom

        recorded.call("a", 0.5, move)
        call = recorded.call("b", 1.0)
        recorded.call("c", 1.0)
        with pytest.raises(Boom):
            recorded.clock.advance(0.5)
        call.reset(0.5)
        recorded.clock.advance(0.5)
        assert recorded.names == "abc"


class TestAdvance:
    def test_the_time_during_a_call_is_the_end_of_the_advance(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0)
        recorded.clock.advance(5.0)
        assert recorded.seen == [("a", 15.0)]

    def test_calls_scheduled_within_the_advanced_span_run_in_it(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0, lambda: (recorded.call("b", 0.0), recorded.call("c", 1.0), recorded.call("d", -1.0)))
        recorded.clock.advance(2.0)
        assert recorded.seen == [("a", 12.0), ("d", 12.0), ("b", 12.0)]

    def test_a_raising_call_leaves_later_calls_pending(self, recorded: Recorded) -> None:
        bad = recorded.call("a", 1.0, recorded.boom)
        good = recorded.call("b", 1.0)
        with pytest.raises(Boom):
            recorded.clock.advance(2.0)
        assert not bad.active()
        assert good.active()
        assert recorded.clock.seconds() == 12.0
        recorded.clock.advance(0.0)
        assert recorded.names == "ab"

    @pytest.mark.parametrize("how", ["advance", "run"])
    def test_a_call_is_no_longer_pending_while_it_is_made(self, recorded: Recorded, how: str) -> None:
        call = recorded.call("a", 1.0, lambda: call.cancel())
        with pytest.raises(AlreadyCalled):
            getattr(recorded.clock, how)(1.0)
        assert list(recorded.clock.getDelayedCalls()) == []

    def test_a_call_may_move_the_clock_back(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0, lambda: recorded.clock.advance(-3.0))
        recorded.call("b", 3.0)
        recorded.clock.advance(5.0)
        assert recorded.seen == [("a", 15.0)]
        recorded.clock.advance(1.0)
        assert recorded.seen == [("a", 15.0), ("b", 13.0)]

    def test_a_cancelled_call_is_never_made(self, recorded: Recorded) -> None:
        call = recorded.call("a", 1.0)
        call.reset(3.0)
        call.cancel()
        recorded.clock.advance(5.0)
        assert recorded.seen == []
        with pytest.raises(AlreadyCancelled):
            call.cancel()


class TestRun:
    def test_advance_to_sets_the_clock_to_the_time_of_each_call(self, recorded: Recorded) -> None:
        recorded.call("b", 2.0, lambda: recorded.call("d", 0.5))
        recorded.call("a", 1.0, lambda: recorded.call("c", 1.25))
        recorded.call("e", 3.0)
        recorded.call("late", 3.125)
        recorded.clock.run(3.0)
        assert recorded.seen == [("a", 11.0), ("b", 12.0), ("c", 12.25), ("d", 12.5), ("e", 13.0)]
        assert recorded.clock.seconds() == 13.0

    def test_advance_to_accepts_an_absolute_time(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0)
        recorded.call("late", 1.125)
        recorded.clock.run_until(11.0)
        assert recorded.seen == [("a", 11.0)]
        assert recorded.clock.seconds() == 11.0

    def test_a_call_scheduled_for_now_by_a_call_runs_now(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0, lambda: recorded.call("c", 0.0))
        recorded.call("b", 1.0)
        recorded.clock.run(1.0)
        assert recorded.seen == [("a", 11.0), ("b", 11.0), ("c", 11.0)]

    def test_overdue_calls_run_first_at_the_current_time(self, recorded: Recorded) -> None:
        recorded.call("b", 0.0)
        recorded.call("a", -5.0)
        recorded.clock.run(0.0)
        assert recorded.seen == [("a", 10.0), ("b", 10.0)]

    def test_a_call_may_reschedule_others(self, recorded: Recorded) -> None:
        later = recorded.call("c", 2.0)
        sooner = recorded.call("b", 9.0)
        never = recorded.call("x", 2.0)

        def move() -> None:
            later.delay(2.0)
            sooner.reset(0.5)
            never.cancel()

        recorded.call("a", 1.0, move)
        recorded.clock.run(5.0)
        assert recorded.seen == [("a", 11.0), ("b", 11.5), ("c", 14.0)]

    def test_a_raising_call_stops_the_clock_at_its_time(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0, recorded.boom)
        recorded.call("b", 1.0)
        recorded.call("c", 2.0)
        with pytest.raises(Boom):
            recorded.clock.run(5.0)
        assert recorded.clock.seconds() == 11.0
        recorded.clock.run(5.0)
        assert recorded.seen == [("a", 11.0), ("b", 11.0), ("c", 12.0)]
        assert recorded.clock.seconds() == 16.0

    def test_a_call_may_advance_the_clock_beyond_the_end(self, recorded: Recorded) -> None:
        def advance() -> None:
            recorded.clock.advance(5.0)
            recorded.call("b", 0.0)

        recorded.call("a", 1.0, advance)
        recorded.clock.run(2.0)
        assert recorded.seen == [("a", 11.0), ("b", 16.0)]
        assert recorded.clock.seconds() == 16.0

    @pytest.mark.parametrize("when", [9.875, -inf, inf, nan])
    def test_advancing_to_a_past_time_is_an_error(self, recorded: Recorded, when: float) -> None:
        recorded.call("a", -5.0)
        with pytest.raises(ValueError, match=r"cannot advance from 10\.0"):
            recorded.clock.run_until(when)
        with pytest.raises(ValueError, match=r"cannot advance from 10\.0"):
            recorded.clock.run(when - 10.0)
        assert recorded.seen == []
        assert recorded.clock.seconds() == 10.0

    def test_a_looping_call_keeps_its_interval(self) -> None:
        clock = HeapClock()
        seen: list[float] = []

        def tick() -> None:
            seen.append(clock.seconds())
            if len(seen) == 4:
                loop.stop()

        loop = LoopingCall(tick)
        loop.clock = clock
        loop.start(0.5, now=False)
        clock.run(9.0)
        assert seen == [0.5, 1.0, 1.5, 2.0]


class TestMemory:
    """Count existing call objects, which are those that the clock still refers to."""

    @pytest.fixture
    def alive(self) -> WeakSet[IDelayedCall]:
        return WeakSet()

    def test_cancelled_calls_are_removed_from_the_heap(self, alive: WeakSet[IDelayedCall]) -> None:
        clock = HeapClock()
        kept: list[IDelayedCall] = []
        for number in range(20_000):
            call = clock.callLater(number % 7, print)
            alive.add(call)
            if number % 200 == 0:
                kept.append(call)
            else:
                call.cancel()
            del call
            assert len(alive) <= 2 * len(kept) + 1
        assert list(clock.getDelayedCalls()) == sorted(kept, key=lambda call: call.getTime())

    def test_cancelled_calls_are_removed_once_they_outnumber_pending_ones(self, alive: WeakSet[IDelayedCall]) -> None:
        clock = HeapClock()
        for _ in range(100):
            clock.callLater(1.0, lambda: None)
            call = clock.callLater(50.0, print)
            alive.add(call)
            call.cancel()
            del call
        assert len(alive) > 0
        clock.advance(2.0)
        assert len(alive) == 0

    def test_made_calls_are_removed_from_the_heap(self, alive: WeakSet[IDelayedCall]) -> None:
        clock = HeapClock()
        for moved_to in [2.0, 0.5]:
            call = clock.callLater(1.0, lambda: None)
            alive.add(call)
            call.reset(moved_to)
            del call
        clock.run(2.0)
        assert len(alive) == 0

    def test_a_call_rescheduled_often_uses_no_more_memory(self) -> None:
        clock = HeapClock()
        call = clock.callLater(1.0, print)
        references = sys.getrefcount(call)
        for number in range(1_000):
            call.reset(1 + number % 10)
            clock.advance(0.0)
            # Every entry in the heap refers to its call.
            assert sys.getrefcount(call) <= references + 1
