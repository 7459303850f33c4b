from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.sim import scheduler as module
from fyrehose_twisted.sim.scheduler import Scheduler


def test_scheduled_calls_run_in_order_of_time_then_scheduling() -> None:
    scheduler = Scheduler(10.0)
    seen: list[tuple[str, float]] = []
    for name, when in [("c", 12.0), ("a", 11.0), ("d", 12.0), ("b", 11.5), ("late", 14.0)]:
        scheduler.call_at(when, lambda name=name: seen.append((name, scheduler.now)))  # type: ignore[misc]
    scheduler.run_until(13.0)
    assert seen == [("a", 11.0), ("b", 11.5), ("c", 12.0), ("d", 12.0)]
    assert scheduler.now == 13.0
    scheduler.run_until(14.0)
    assert seen[-1] == ("late", 14.0)


def test_the_scheduler_counts_made_and_pending_calls() -> None:
    scheduler = Scheduler()
    for when in (1.0, 2.0, 2.0, 3.0):
        scheduler.call_at(when, lambda: None)
    assert (scheduler.calls, len(scheduler)) == (0, 4)
    scheduler.run_until(2.0)
    assert (scheduler.calls, len(scheduler)) == (3, 1)


def test_a_call_scheduled_in_the_past_runs_next_at_the_current_time() -> None:
    scheduler = Scheduler(10.0)
    seen: list[tuple[str, float]] = []
    scheduler.call_at(10.0, lambda: seen.append(("first", scheduler.now)))
    scheduler.call_at(3.0, lambda: seen.append(("late", scheduler.now)))
    scheduler.run_until(10.0)
    assert seen == [("first", 10.0), ("late", 10.0)]


def test_a_scheduled_call_may_schedule_another_for_now_or_the_past() -> None:
    scheduler = Scheduler()
    seen: list[float] = []
    scheduler.call_at(1.0, lambda: scheduler.call_at(1.0, lambda: seen.append(scheduler.now)))
    scheduler.call_at(1.0, lambda: scheduler.call_at(0.5, lambda: seen.append(scheduler.now)))
    scheduler.run_until(1.0)
    assert seen == [1.0, 1.0]


def test_the_time_of_the_scheduler_never_goes_back() -> None:
    scheduler = Scheduler(10.0)
    scheduler.run_until(5.0)
    assert scheduler.now == 10.0


def test_an_exception_of_a_call_stops_the_scheduler_and_keeps_later_calls() -> None:
    scheduler = Scheduler()
    seen: list[int] = []
    scheduler.call_at(1.0, lambda: [][0])
    scheduler.call_at(2.0, lambda: seen.append(2))
    with pytest.raises(IndexError):
        scheduler.run_until(5.0)
    assert (scheduler.now, len(scheduler), seen) == (1.0, 1, [])
    scheduler.run_until(5.0)
    assert seen == [2]


class TestWithoutEnd:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "CALLS_AT_ONE_MOMENT", 1_000)

    def test_endless_calls_at_one_time_are_an_error_naming_the_callback(self) -> None:
        scheduler = Scheduler()

        def again() -> None:
            scheduler.call_at(1.0, again)

        again()
        with pytest.raises(RuntimeError, match=r"^1,000 calls at 1\.0, without end; the last was .*again$"):
            scheduler.run_until(2.0)

    def test_an_endless_callback_without_a_name_is_named_by_its_type(self) -> None:
        scheduler = Scheduler()

        def again(number: int) -> None:
            scheduler.call_at(1.0, partial(again, number))

        again(1)
        with pytest.raises(RuntimeError, match=r"the last was partial$"):
            scheduler.run_until(2.0)

    def test_very_many_calls_over_time_are_no_error(self) -> None:
        scheduler = Scheduler()
        for when in (1.0, 2.0, 3.0):
            for _ in range(1_000):
                scheduler.call_at(when, lambda: None)
        scheduler.run_until(3.0)
        for _ in range(3):
            scheduler.run_until(scheduler.now + 1.0)
            for _ in range(1_000):
                scheduler.call_at(0.0, lambda: None)
            scheduler.run_until(scheduler.now)
        assert scheduler.calls == 6_000

    def test_very_many_calls_scheduled_beforehand_are_no_error(self) -> None:
        scheduler = Scheduler()
        for _ in range(1_001):
            scheduler.call_at(1.0, lambda: None)
            scheduler.call_at(0.0, lambda: None)
        scheduler.run_until(2.0)
        assert scheduler.calls == 2_002

    def test_calls_scheduled_beforehand_do_not_hide_an_endless_loop(self) -> None:
        scheduler = Scheduler()

        def again() -> None:
            scheduler.call_at(scheduler.now, again)

        for _ in range(2_000):
            scheduler.call_at(1.0, lambda: None)
        scheduler.call_at(1.0, again)
        with pytest.raises(RuntimeError, match=r"again$"):
            scheduler.run_until(2.0)
        assert scheduler.calls == 3_001


class TestCancel:
    def test_a_cancelled_call_is_neither_made_nor_counted(self) -> None:
        scheduler = Scheduler()
        seen: list[str] = []
        for name in "abcdef":
            scheduler.call_at(1.0, partial(seen.append, name))
        scheduler.cancel(scheduler.call_at(1.5, lambda: seen.append("cancelled")))
        scheduler.call_at(2.0, lambda: [][0])
        assert len(scheduler) == 7
        with pytest.raises(IndexError):
            scheduler.run_until(3.0)
        assert ("".join(seen), scheduler.calls) == ("abcdef", 7)

    def test_a_call_may_cancel_another_of_the_same_time(self) -> None:
        scheduler = Scheduler()
        seen: list[str] = []
        numbers: list[int] = []
        scheduler.call_at(1.0, lambda: scheduler.cancel(numbers[0]))
        numbers.append(scheduler.call_at(1.0, lambda: seen.append("cancelled")))
        scheduler.call_at(1.0, lambda: seen.append("other"))
        scheduler.run_until(1.0)
        assert seen == ["other"]

    def test_cancelling_calls_keeps_the_order_of_the_others(self) -> None:
        rng, scheduler = Random(1), Scheduler()
        seen: list[float] = []
        whens = [float(rng.randrange(1_000)) for _ in range(500)]
        numbers = [scheduler.call_at(when, partial(seen.append, when)) for when in whens]
        for index in rng.sample(range(500), 400):
            scheduler.cancel(numbers[index])
            whens[index] = -1.0
        scheduler.run_until(1_000.0)
        assert seen == sorted(when for when in whens if when >= 0.0)

    def test_the_memory_of_the_scheduler_is_proportional_to_pending_calls(self) -> None:
        scheduler = Scheduler()
        scheduler.call_at(1e9, lambda: None)
        for number in range(10_000):
            scheduler.cancel(scheduler.call_at(1e6 - number, lambda: None))
            assert len(scheduler) == 1
            assert len(scheduler._heap) + len(scheduler._cancelled) <= 4


Step = tuple[str, float]


@given(
    st.lists(st.tuples(st.sampled_from(["call", "nested", "cancel", "run"]), st.integers(0, 8).map(float)), max_size=40)
)
def test_the_scheduler_behaves_like_a_sorted_list(steps: list[Step]) -> None:
    scheduler = Scheduler()
    seen: list[tuple[int, float]] = []
    expected: list[tuple[int, float]] = []
    waiting: list[tuple[float, int, float | None]] = []
    handles: dict[int, int] = {}
    now, names = 0.0, 0

    def called(name: int, then: float | None) -> Callable[[], None]:
        def call() -> None:
            seen.append((name, scheduler.now))
            if then is not None:
                scheduler.call_at(then, called(-name, None))

        return call

    for what, value in steps:
        if what in ("call", "nested"):
            names += 1
            then = value / 2 if what == "nested" else None
            handles[names] = scheduler.call_at(value, called(names, then))
            waiting.append((max(now, value), names, then))
        elif what == "cancel" and handles:
            name = list(handles)[int(value) % len(handles)]
            scheduler.cancel(handles.pop(name))
            waiting = [entry for entry in waiting if entry[1] != name]
        elif what == "run":
            scheduler.run_until(value)
            # Stable: calls of equal time keep their scheduling order.
            while due := sorted((entry for entry in waiting if entry[0] <= value), key=lambda entry: entry[0]):
                when, name, then = due[0]
                waiting.remove(due[0])
                now = max(now, when)
                expected.append((name, now))
                handles.pop(name, None)
                if then is not None:
                    waiting.append((max(now, then), -name, None))
            now = max(now, value)
        assert (scheduler.now, seen, len(scheduler)) == (now, expected, len(waiting))
