from __future__ import annotations

from math import inf

from fyrehose_twisted.fyrehose.node.backbone.backpressure import STEP_INTERVAL, Backpressure

START = 1_700_000_000.0
SIZE = 1_000


def publish(pressure: Backpressure, start: float, seconds: float, rate: float, *, behind: bool = False) -> int:
    """Offer messages at ``rate`` bytes a second; return the bytes numbered."""
    numbered = 0
    for step in range(int(seconds * rate / SIZE)):
        now = start + step * SIZE / rate
        if behind:
            pressure.fell_behind(now)
        if pressure.allowance(now) > 0:
            pressure.published(SIZE, now)
            numbered += SIZE
    return numbered


def test_the_push_rate_is_unlimited_while_repairs_keep_up() -> None:
    pressure = Backpressure(10_000, START)
    assert publish(pressure, START, 2, 1e6) == 2_000_000
    assert (pressure.rate, pressure.allowance(START + 2)) == (None, inf)


def test_the_push_rate_falls_to_the_minimum_while_a_subscriber_lags() -> None:
    pressure = Backpressure(100_000, START)
    publish(pressure, START, 1, 1e6)
    publish(pressure, START + 1, 2, 1e6, behind=True)
    assert pressure.rate == 100_000
    numbered = publish(pressure, START + 3, 2, 1e6, behind=True)
    assert 0.9 * 200_000 < numbered < 1.2 * 200_000


def test_the_push_rate_recovers_once_no_subscriber_lags() -> None:
    pressure = Backpressure(10_000, START)
    publish(pressure, START, 1, 1e6)
    publish(pressure, START + 1, 0.5, 1e6, behind=True)
    assert pressure.rate is not None
    slowed = publish(pressure, START + 1.5, 0.5, 1e6)
    later = publish(pressure, START + 2, 2, 1e6)
    assert slowed / 0.5 < later / 2
    publish(pressure, START + 4, 2, 1e4)
    assert pressure.rate is None


def test_the_push_rate_changes_once_per_step_for_any_number_of_lagging_subscribers() -> None:
    pressure = Backpressure(1, START)
    publish(pressure, START, 1, 1e6)
    for _ in range(100):
        pressure.fell_behind(START + 1)
    rate = pressure.rate
    assert rate is not None
    assert rate > 0.5e6
    pressure.allowance(START + 1 + 1.5 * STEP_INTERVAL)
    assert pressure.rate is not None
    assert rate > pressure.rate > 0.6 * rate


def test_without_a_minimum_publishers_are_never_slowed_down() -> None:
    pressure = Backpressure(None, START)
    assert publish(pressure, START, 2, 1e6, behind=True) == 2_000_000
    pressure.min_rate = 10_000
    publish(pressure, START + 2, 1, 1e6, behind=True)
    assert pressure.rate is not None
    pressure.min_rate = None
    assert pressure.allowance(START + 4) == inf
