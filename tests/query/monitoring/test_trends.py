"""Bounded history of counters and gauges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.query.monitoring import trends as module
from fyrehose_twisted.query.monitoring.trends import STEP, STEPS, Trend, Trends

START = 1_700_000_000.0


def grown(seconds: int, rate: float, *, every: int = 2, counter: bool = True) -> Trend:
    trend = Trend(counter=counter)
    for second in range(0, seconds + 1, every):
        trend.add(START + second, 1_000 + rate * second)
    return trend


def test_current_rate_covers_the_last_seconds() -> None:
    trend = grown(60, 5.0)
    for second in range(62, 80, 2):
        trend.add(START + second, 1_300 + 100 * (second - 60))
    assert trend.rate(START + 78) == 100.0


def test_rate_requires_two_recent_samples() -> None:
    trend = Trend(counter=True)
    trend.add(START, 7)
    assert trend.rate(START) is None
    trend.add(START + 2, 9)
    assert trend.rate(START + 2) == 1.0
    assert trend.rate(START + 2 + 2 * STEP + 1) is None


def test_history_is_limited_to_one_hour() -> None:
    trend = grown(3 * STEP * STEPS, 5.0)
    found = trend.history(START + 3 * STEP * STEPS)
    assert len(found) == STEPS
    assert found == [5.0] * STEPS
    assert len(trend._times) == len(trend._totals) == STEPS + 1


def test_short_history_is_aligned_at_its_end() -> None:
    trend = grown(30, 5.0)
    found = trend.history(START + 30)
    assert found[-3:] == [5.0] * 3
    assert set(found[:-4]) == {None}


def test_history_is_unknown_while_samples_are_missing() -> None:
    trend = grown(60, 5.0)
    trend.add(START + 600, 90_000)
    trend.add(START + 610, 90_050)
    found = trend.history(START + 610)
    assert found[-1] == 5.0
    assert set(found[-54:-1]) == {None}


@pytest.mark.parametrize(("counter", "expected"), [(True, 40.0), (False, 0.0)])
def test_reset_counter_has_grown_by_its_new_value(counter: bool, expected: float) -> None:
    trend = Trend(counter=counter)
    trend.add(START, 1_000)
    trend.add(START + 10, 40)
    assert trend.increase(START + 10, 300) == expected


def test_increase_counts_only_the_given_period() -> None:
    trend = Trend(counter=True)
    trend.add(START, 0)
    trend.add(START + 10, 500)
    for second in range(20, 420, 10):
        trend.add(START + second, 500)
        assert trend.increase(START + second, 300) == (500 if second < 310 else 0)


def test_increase_before_the_first_sample_is_uncertain_for_an_hour() -> None:
    trend = Trend(counter=True)
    trend.add(START, 6_609)
    assert trend.uncertain_increase(START + 60) == 6_609
    trend.add(START + 1_800, 6_610)
    assert trend.uncertain_increase(START + 1_800) == 6_610
    assert trend.uncertain_increase(START + STEP * STEPS) == 1
    trend.add(START + 2 * STEP * STEPS, 6_610)
    assert trend.uncertain_increase(START + 2 * STEP * STEPS) == 0


def test_sample_that_is_not_newer_is_ignored() -> None:
    trend = grown(10, 5.0)
    trend.add(START + 10, 99_999)
    trend.add(START + 4, 99_999)
    assert trend.total == 50


def test_history_starts_over_after_the_clock_was_set_back() -> None:
    trend = grown(60, 5.0)
    for second in range(-3_600, -3_570, 2):
        trend.add(START + second, 2_000 + 7.0 * second)
    assert trend.rate(START - 3_572) == 7.0
    assert trend.history(START - 3_572)[-1] == 7.0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), max_size=60), st.booleans())
def test_arbitrary_samples_never_decrease_the_total(samples: list[tuple[float, int]], counter: bool) -> None:
    trend, now = Trend(counter=counter), START
    for pause, value in samples:
        now += pause
        before = trend.total
        trend.add(now, value)
        assert trend.total >= before
        assert len(trend.history(now)) == STEPS
        assert all(rate is None or rate >= 0 for rate in trend.history(now))
        assert 0 <= trend.increase(now, 300) <= trend.total


def test_number_of_trends_is_limited_and_unused_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRENDS", 2)
    trends = Trends()
    assert trends.add("a", START, START, 1, counter=True)
    assert trends.add("b", START, START, 1, counter=True)
    assert trends.add("c", START, START, 1, counter=True) is None
    assert (len(trends), trends.refused) == (2, 1)
    later = START + STEP * STEPS + 1
    trends.add("b", later, later, 1, counter=True)
    trends.forget(later)
    assert (trends.get("a") is None, len(trends)) == (True, 1)
