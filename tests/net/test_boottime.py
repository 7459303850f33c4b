"""Reactor on CLOCK_BOOTTIME: on a fake reactor, and on the real one with timerfd."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorPluggableNameResolver, IReactorTime
from twisted.internet.task import Clock, deferLater
from twisted.logger import capturedLogs
from zope.interface import alsoProvides, providedBy
from zope.interface.verify import verifyObject

from fyrehose_twisted.net import boottime
from fyrehose_twisted.net.boottime import POLL_INTERVAL, BoottimeReactor, TimerFd, boottime_seconds

reactor: Any = installed_reactor


class Machine:
    """A fake reactor on the time of day, with a separate boot time."""

    def __init__(self) -> None:
        self.reactor = Clock()
        self.uptime = 500.0
        self.clock = BoottimeReactor(self.reactor, lambda: self.uptime)

    def run(self, seconds: float, step: float = 0.01) -> None:
        for _ in range(round(seconds / step)):
            self.uptime += step
            self.reactor.advance(step)


def test_a_boottime_reactor_provides_the_reactor_interfaces() -> None:
    clock = BoottimeReactor(reactor)
    assert verifyObject(IReactorTime, clock)
    assert IReactorPluggableNameResolver.providedBy(clock)
    assert clock.addReader == reactor.addReader
    call = clock.callLater(60, print)
    assert verifyObject(IDelayedCall, call)
    assert clock.getDelayedCalls() == [call]
    call.cancel()
    assert not clock.getDelayedCalls()
    with pytest.raises(AttributeError):
        clock.no_such_thing  # noqa: B018


def test_a_boottime_reactor_reads_clock_boottime() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boottime_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    clock = BoottimeReactor(reactor)
    before = clock.seconds()
    call = clock.callLater(30, print)
    assert before + 30 <= call.getTime() <= clock.seconds() + 30
    call.cancel()


def test_boottime_calls_run_in_order_of_time() -> None:
    machine, made = Machine(), []
    for delay in (3.0, 1.0, 0.0, 2.0, 0.0):
        machine.clock.callLater(delay, lambda *words, **named: made.append((words, named)), delay, named=delay)
    machine.run(5)
    assert made == [((delay,), {"named": delay}) for delay in (0.0, 0.0, 1.0, 2.0, 3.0)]
    assert not machine.reactor.getDelayedCalls()


def test_boottime_calls_can_be_rescheduled_and_cancelled() -> None:
    machine, made = Machine(), []
    call = machine.clock.callLater(10, made.append, 1)
    machine.run(1)
    call.reset(2)
    assert call.getTime() == pytest.approx(503)
    call.delay(1)
    assert call.getTime() == pytest.approx(504)
    machine.run(2.9)
    assert (made, call.active()) == ([], True)
    machine.run(0.2)
    assert (made, call.active()) == ([1], False)
    for change in (call.cancel, lambda: call.reset(1), lambda: call.delay(1)):
        with pytest.raises(AlreadyCalled):
            change()
    call = machine.clock.callLater(10, made.append, 2)
    call.cancel()
    with pytest.raises(AlreadyCancelled):
        call.cancel()
    machine.run(20, step=1)
    assert made == [1]


def test_a_boottime_call_for_now_from_a_call_runs_in_the_next_turn() -> None:
    machine, made = Machine(), []

    def again() -> None:
        made.append(machine.uptime)
        machine.clock.callLater(0, again)

    machine.clock.callLater(0, again)
    for turn in range(1, 4):
        (soon,) = machine.reactor.getDelayedCalls()
        machine.reactor.calls.remove(soon)
        soon.func()
        assert len(made) == turn


def test_a_raising_boottime_call_is_logged_and_others_run() -> None:
    machine, made = Machine(), []
    machine.clock.callLater(1, lambda: 1 / 0)
    machine.clock.callLater(1, made.append, 1)
    with capturedLogs() as logged:
        machine.run(2)
    assert made == [1]
    assert [type(event["log_failure"].value) for event in logged if "log_failure" in event] == [ZeroDivisionError]


def test_without_timerfd_a_suspend_is_noticed_within_the_poll_interval() -> None:
    machine, made = Machine(), []
    machine.clock.callLater(3_600, lambda: made.append(machine.uptime))
    machine.run(1, step=0.1)
    machine.uptime += 7_200
    woke = machine.uptime
    machine.run(POLL_INTERVAL + 0.2, step=0.1)
    assert len(made) == 1
    assert made[0] - woke <= POLL_INTERVAL + 0.1


@given(st.integers())
def test_the_memory_of_boottime_calls_is_proportional_to_pending_calls(seed: int) -> None:
    rng, machine = Random(seed), Machine()
    made: dict[int, float] = {}
    calls: dict[int, Any] = {}
    cancelled = set()
    for number in range(200):
        calls[number] = machine.clock.callLater(
            rng.uniform(0, 10), lambda number=number: made.setdefault(number, machine.uptime)
        )
        for _ in range(2):
            chosen = rng.randrange(number + 1)
            if calls[chosen].active():
                if rng.random() < 0.3:
                    calls[chosen].cancel()
                    cancelled.add(chosen)
                else:
                    calls[chosen].reset(rng.uniform(0, 10))
        if rng.random() < 0.2:
            machine.run(0.1, step=0.05)
        waiting = sum(call.active() for call in calls.values())
        assert len(machine.clock._heap) <= 2 * waiting + 2
        assert len(machine.reactor.getDelayedCalls()) <= 2
    machine.run(12, step=0.05)
    assert made.keys() == calls.keys() - cancelled
    assert all(-1e-6 < made[number] - calls[number].getTime() <= 0.051 for number in made)
    assert not machine.reactor.getDelayedCalls()


class ClockSetBack:
    """A proxy of the reactor whose delayed calls are far off, as after the time of day was set back."""

    def __init__(self) -> None:
        alsoProvides(self, *providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)

    def callLater(self, delay: float, *rest: object) -> None:
        raise AssertionError(f"nobody may wait for the time of day, not even {delay} s")


@pytest_twisted.inlineCallbacks
def test_timerfd_wakes_the_reactor_despite_time_of_day_changes() -> Any:
    if boottime._load_timerfd_library() is None:
        pytest.skip("no timers of the kernel here")
    clock = BoottimeReactor(ClockSetBack())
    made: list[float] = []
    waits: list[Deferred[None]] = []

    def note(wait: Deferred[None], when: float) -> None:
        made.append(clock.seconds() - when)
        wait.callback(None)

    for delay in (0.2, 0.05, 0.1, 0.01):
        waits.append(Deferred())
        clock.callLater(delay, note, waits[-1], clock.seconds() + delay)
    yield gatherResults(waits)
    yield deferLater(reactor, 0)  # Until the reactor turn has ended.
    assert len(made) == 4
    assert min(made) >= 0
    assert clock._timer is None
    assert not [reader for reader in reactor.getReaders() if isinstance(reader, TimerFd)]


@pytest_twisted.inlineCallbacks
def test_a_boottime_reactor_polls_where_timerfd_is_refused(monkeypatch: pytest.MonkeyPatch) -> Any:
    def refuse(*arguments: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(boottime, "TimerFd", refuse)
    clock = BoottimeReactor(reactor)
    made: Deferred[None] = Deferred()
    clock.callLater(0.02, made.callback, None)
    clock.callLater(60, made.callback, None).cancel()
    yield made
    assert not clock.getDelayedCalls()
