"""Fair scheduling of clients on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from fyrehose_twisted.query.records.turns import SLICE_STEPS, TURN_STEPS, FairScheduler, SchedulerStopped


class Work:
    """Tasks of several clients with steps of given durations, and the order of their steps."""

    def __init__(self) -> None:
        self.reactor = Clock()
        self.now = 0.0
        self.taken: list[str] = []
        self.ended: list[str] = []
        self.turns = FairScheduler(self.reactor, lambda: self.now)

    def start(self, client: str, seconds: float, steps: int, name: str = "") -> None:
        def work() -> Iterator[None]:
            for _ in range(steps):
                self.now += seconds
                self.taken.append(name or client)
                yield

        self.turns.start(client, work(), lambda failure: self.ended.append(name or client))

    def turn(self) -> None:
        """Run one call of the reactor."""
        (call,) = self.reactor.calls
        self.reactor.calls.remove(call)
        call.called = 1
        call.func()


@pytest.fixture
def work() -> Work:
    return Work()


def test_client_with_many_tasks_gets_no_larger_share_than_one_with_a_single_task(work: Work) -> None:
    for number in range(8):
        work.start("greedy", 0.001, 1_000, f"greedy {number}")
    work.start("modest", 0.001, 100)
    while "modest" not in work.ended:
        work.turn()
    greedy = sum(name != "modest" for name in work.taken)
    assert 90 <= greedy <= 110
    assert {name for name in work.taken if name != "modest"} == {f"greedy {number}" for number in range(8)}


def test_shares_are_measured_in_time_and_not_in_steps(work: Work) -> None:
    work.start("slow", 0.010, 100)
    work.start("quick", 0.0001, 1_000)
    while not work.ended:
        work.turn()
    assert work.ended == ["quick"]
    assert 9 <= work.taken.count("slow") <= 12


def test_idle_client_earns_no_credit(work: Work) -> None:
    work.start("early", 0.001, 1_000)
    for _ in range(20):
        work.turn()
    before = len(work.taken)
    work.start("late", 0.001, 1_000)
    for _ in range(20):
        work.turn()
    since = work.taken[before:]
    assert abs(since.count("early") - since.count("late")) <= 4


def test_reactor_gets_its_turn_when_the_clock_stands_still(work: Work) -> None:
    for client in "ab":
        work.start(client, 0.0, 10 * TURN_STEPS)
    work.turn()
    assert TURN_STEPS <= len(work.taken) < TURN_STEPS + SLICE_STEPS


def test_short_task_does_not_wait_for_long_ones_of_its_client(work: Work) -> None:
    for number in range(8):
        work.start("one", 0.001, 1_000, f"long {number}")
    work.start("one", 0.001, 3, "short")
    while not work.ended:
        work.turn()
    assert work.ended == ["short"]
    assert len(work.taken) <= 9 * 4


def test_failing_task_ends_alone_and_reports_its_error(work: Work) -> None:
    told: list[Failure | None] = []
    work.turns.start("a", (1 // number for number in (1, 0, 1)), told.append)
    work.start("a", 0.001, 5)
    work.reactor.advance(0)
    assert work.ended == ["a"]
    (failure,) = told
    assert failure is not None
    assert failure.check(ZeroDivisionError)


def test_stopped_task_takes_no_more_steps(work: Work) -> None:
    told: list[Failure | None] = []
    endless = iter(int, 1)
    work.turns.start("a", endless, told.append).stop()
    work.turns.start("b", endless, told.append)
    work.turn()
    work.turns.stop()
    (failure,) = told
    assert failure is not None
    assert failure.check(SchedulerStopped)
    assert work.reactor.calls == []
