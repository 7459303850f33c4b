from __future__ import annotations

import pytest

from fyrehose_twisted.sim import scheduler as module
from fyrehose_twisted.sim.scheduler import Scheduler


def test_calls_come_in_order_of_time_and_then_of_scheduling() -> None:
    scheduler = Scheduler(10.0)
    seen: list[tuple[str, float]] = []
    for name, when in [("c", 12.0), ("a", 11.0), ("d", 12.0), ("b", 11.5), ("late", 14.0)]:
        scheduler.call_at(when, lambda name=name: seen.append((name, scheduler.now)))  # type: ignore[misc]
    scheduler.run_until(13.0)
    assert seen == [("a", 11.0), ("b", 11.5), ("c", 12.0), ("d", 12.0)]
    assert scheduler.now == 13.0
    scheduler.run_until(14.0)
    assert seen[-1] == ("late", 14.0)


def test_what_is_scheduled_for_the_past_is_the_next_thing() -> None:
    scheduler = Scheduler(10.0)
    seen: list[float] = []
    scheduler.call_at(3.0, lambda: seen.append(scheduler.now))
    scheduler.run_until(10.0)
    assert seen == [10.0]


def test_a_call_may_schedule_another_for_the_same_moment() -> None:
    scheduler = Scheduler()
    seen: list[int] = []
    scheduler.call_at(1.0, lambda: scheduler.call_at(1.0, lambda: seen.append(1)))
    scheduler.run_until(1.0)
    assert seen == [1]


def test_time_never_goes_back() -> None:
    scheduler = Scheduler(10.0)
    scheduler.run_until(5.0)
    assert scheduler.now == 10.0


def test_calls_without_end_at_one_moment_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALLS_AT_ONE_MOMENT", 1_000)
    scheduler = Scheduler()

    def again() -> None:
        scheduler.call_at(1.0, again)

    again()
    with pytest.raises(RuntimeError, match=r"1,000 calls at 1\.0"):
        scheduler.run_until(2.0)
