from __future__ import annotations

from fyrehose_twisted.report_limiter import INTERVAL, ReportLimiter


def test_a_report_key_is_due_once_per_interval() -> None:
    limiter = ReportLimiter()
    assert limiter.is_due("a", 0.0)
    assert not limiter.is_due("a", INTERVAL - 1.0)
    assert limiter.is_due("b", INTERVAL - 1.0)
    assert limiter.is_due("a", INTERVAL)
    assert len(limiter) == 2


def test_report_keys_beyond_the_limit_are_not_due_until_one_expires() -> None:
    limiter = ReportLimiter()
    assert [limiter.is_due(number, float(number), limit=2) for number in range(3)] == [True, True, False]
    assert limiter.is_due(3, INTERVAL, limit=2)
    assert len(limiter) == 2


def test_reports_are_due_after_the_clock_was_set_back() -> None:
    limiter = ReportLimiter()
    assert limiter.is_due("a", 1_000.0)
    assert limiter.is_due("a", 10.0)
