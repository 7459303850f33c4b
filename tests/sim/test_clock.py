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
    """Call something later that goes through ``body``, and then perhaps raises."""

    delay: float
    body: tuple[Command, ...]
    raises: bool


@dataclass(frozen=True)
class Change:
    """Do ``what`` to some of the calls scheduled so far: ``cancel``, or ``reset`` or ``delay`` by an amount of time."""

    what: str
    which: tuple[int, ...]
    amount: float


@dataclass(frozen=True)
class Pass:
    """Let time pass: ``advance`` by each amount, ``pump`` them, ``run`` for each, or ``rewind`` rightNow by each."""

    how: str
    amounts: tuple[float, ...]


@dataclass(frozen=True)
class Look:
    """Look at what is pending."""


Command = Schedule | Change | Pass | Look


def run(clock: AnyClock, seconds: float) -> None:
    """What HeapClock.run is meant to do, in terms of task.Clock."""
    if isinstance(clock, HeapClock):
        clock.run(seconds)
        return
    end = clock.seconds() + seconds
    clock.advance(0.0)
    while due := [when for call in clock.getDelayedCalls() if (when := call.getTime()) <= end]:
        clock.advance(max(0.0, min(due) - clock.seconds()))
    clock.advance(max(0.0, end - clock.seconds()))


class Played:
    """A program played on a clock, and the story of what happened."""

    def __init__(self, clock: AnyClock, program: tuple[Command, ...]) -> None:
        self.clock = clock
        self.calls: list[IDelayedCall] = []
        self.story: list[object] = []
        self.play(program)
        # What is left has to be called in the right order too; what raises ends an advance.
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
    """They are long: pytest takes minutes to compare them as a whole."""
    for ours, theirs in zip_longest(story, expected):
        assert ours == theirs


def eighths(low: int, high: int) -> st.SearchStrategy[float]:
    """Few different times, all exact: many calls fall together."""
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
def test_every_program_runs_as_on_the_clock_of_twisted(program: tuple[Command, ...]) -> None:
    assert_same(Played(HeapClock(), program).story, Played(Clock(), program).story)


def crowd(clock: AnyClock, seed: int) -> list[object]:
    """Many timers that schedule, move and cancel one another, and what came of it."""
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
def test_a_crowd_of_timers_runs_as_on_the_clock_of_twisted(seed: int) -> None:
    story = crowd(HeapClock(), seed)
    assert_same(story, crowd(Clock(), seed))
    assert len(story) > 1_000


class Recorded:
    """A clock, and which calls were made on it and when."""

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


def test_it_is_a_reactor_for_time() -> None:
    clock = HeapClock()
    assert verifyObject(IReactorTime, clock)
    assert verifyObject(IDelayedCall, clock.callLater(1.0, print))
    assert clock.seconds() == 0.0


def test_a_call_gets_its_arguments() -> None:
    clock = HeapClock()
    seen: list[object] = []
    clock.callLater(1.0, lambda *args, **kw: seen.append((args, kw)), 1, "two", three=3)
    clock.advance(1.0)
    assert seen == [((1, "two"), {"three": 3})]


def test_what_is_pending_is_a_copy() -> None:
    clock = HeapClock()
    pending = clock.getDelayedCalls()
    call = clock.callLater(1.0, print)
    assert list(pending) == []
    assert list(clock.getDelayedCalls()) == [call]


class TestTies:
    def test_calls_of_equal_time_are_made_in_the_order_in_which_they_were_scheduled(self, recorded: Recorded) -> None:
        for name in "abcdef":
            recorded.call(name, 1.0)
        recorded.clock.advance(1.0)
        assert recorded.names == "abcdef"

    def test_a_call_from_an_earlier_time_comes_first(self, recorded: Recorded) -> None:
        call = recorded.call("a", 1.0)
        recorded.call("b", 2.0)
        call.reset(2.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "ab"

    def test_a_call_from_a_later_time_comes_last(self, recorded: Recorded) -> None:
        call = recorded.call("a", 3.0)
        recorded.call("b", 2.0)
        call.delay(-1.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "ba"

    def test_calls_that_are_moved_together_keep_their_order(self, recorded: Recorded) -> None:
        calls = [recorded.call(name, delay) for name, delay in [("a", 1.0), ("b", 1.5), ("d", 3.0), ("e", 3.0)]]
        recorded.call("c", 2.0)
        for call in reversed(calls):
            call.reset(2.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "abcde"

    def test_of_calls_that_are_moved_apart_the_last_is_the_outermost(self, recorded: Recorded) -> None:
        calls = [recorded.call(name, delay) for name, delay in [("b", 1.0), ("a", 1.5), ("d", 3.0), ("e", 3.0)]]
        recorded.call("c", 2.0)
        for call in calls:
            call.reset(2.0)
            recorded.clock.advance(0.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "abcde"

    def test_a_call_that_is_moved_back_in_time_has_not_moved(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0)
        call = recorded.call("b", 1.0)
        recorded.call("c", 1.0)
        before = list(recorded.clock.getDelayedCalls())
        call.reset(5.0)
        assert list(recorded.clock.getDelayedCalls()) == before
        call.reset(1.0)
        recorded.clock.advance(1.0)
        assert recorded.names == "abc"

    def test_a_newcomer_comes_after_those_that_were_moved_there(self, recorded: Recorded) -> None:
        call = recorded.call("a", 3.0)
        call.reset(2.0)
        recorded.call("b", 2.0)
        recorded.clock.advance(2.0)
        assert recorded.names == "ab"

    def test_a_call_that_raises_does_not_come_between(self, recorded: Recorded) -> None:
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

    def test_what_a_call_schedules_within_the_span_belongs_to_it(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0, lambda: (recorded.call("b", 0.0), recorded.call("c", 1.0), recorded.call("d", -1.0)))
        recorded.clock.advance(2.0)
        assert recorded.seen == [("a", 12.0), ("d", 12.0), ("b", 12.0)]

    def test_a_call_that_raises_leaves_the_others_pending(self, recorded: Recorded) -> None:
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

    def test_a_call_may_set_the_clock_back(self, recorded: Recorded) -> None:
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
    def test_the_clock_stands_at_the_time_of_each_call(self, recorded: Recorded) -> None:
        recorded.call("b", 2.0, lambda: recorded.call("d", 0.5))
        recorded.call("a", 1.0, lambda: recorded.call("c", 1.25))
        recorded.call("e", 3.0)
        recorded.call("late", 3.125)
        recorded.clock.run(3.0)
        assert recorded.seen == [("a", 11.0), ("b", 12.0), ("c", 12.25), ("d", 12.5), ("e", 13.0)]
        assert recorded.clock.seconds() == 13.0

    def test_the_end_may_be_given_as_a_time(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0)
        recorded.call("late", 1.125)
        recorded.clock.run_until(11.0)
        assert recorded.seen == [("a", 11.0)]
        assert recorded.clock.seconds() == 11.0

    def test_what_a_call_schedules_for_now_is_called_now(self, recorded: Recorded) -> None:
        recorded.call("a", 1.0, lambda: recorded.call("c", 0.0))
        recorded.call("b", 1.0)
        recorded.clock.run(1.0)
        assert recorded.seen == [("a", 11.0), ("b", 11.0), ("c", 11.0)]

    def test_what_is_overdue_is_called_first_and_now(self, recorded: Recorded) -> None:
        recorded.call("b", 0.0)
        recorded.call("a", -5.0)
        recorded.clock.run(0.0)
        assert recorded.seen == [("a", 10.0), ("b", 10.0)]

    def test_a_call_may_move_others(self, recorded: Recorded) -> None:
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

    def test_a_call_that_raises_stops_the_clock_there(self, recorded: Recorded) -> None:
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
    def test_time_can_only_pass_up_to_a_moment_to_come(self, recorded: Recorded, when: float) -> None:
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
    """A call goes when the last reference to it goes, so those that still exist are those that the clock keeps."""

    @pytest.fixture
    def alive(self) -> WeakSet[IDelayedCall]:
        return WeakSet()

    def test_cancelled_calls_go(self, alive: WeakSet[IDelayedCall]) -> None:
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

    def test_cancelled_calls_go_when_those_that_outnumbered_them_were_made(self, alive: WeakSet[IDelayedCall]) -> None:
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

    def test_calls_that_were_made_go(self, alive: WeakSet[IDelayedCall]) -> None:
        clock = HeapClock()
        for moved_to in [2.0, 0.5]:
            call = clock.callLater(1.0, lambda: None)
            alive.add(call)
            call.reset(moved_to)
            del call
        clock.run(2.0)
        assert len(alive) == 0

    def test_a_call_that_is_moved_often_takes_no_more_room(self) -> None:
        clock = HeapClock()
        call = clock.callLater(1.0, print)
        references = sys.getrefcount(call)
        for number in range(1_000):
            call.reset(1 + number % 10)
            clock.advance(0.0)
            # Every entry in the heap refers to its call.
            assert sys.getrefcount(call) <= references + 1
