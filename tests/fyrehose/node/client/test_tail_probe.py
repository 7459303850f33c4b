from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.tail_probe import MIN_PROBE_INTERVAL, SPACINGS, TailProbe

CONFIG = ClientConfig()


def after_messages(distance: float, count: int = 100) -> tuple[TailProbe, float]:
    """Return a probe after messages at equal distances, and the time of the last one."""
    probe = TailProbe(CONFIG, Random(1), 0.0)
    for number in range(1, count + 1):
        probe.message_received(number * distance)
    return probe, count * distance


@pytest.mark.parametrize(
    ("distance", "wait"),
    [
        (0.0001, MIN_PROBE_INTERVAL),
        (0.01, SPACINGS * 0.01),
        (0.1, CONFIG.keepalive_interval),
        (10.0, CONFIG.keepalive_interval),
    ],
)
def test_the_first_probe_comes_the_sooner_the_faster_messages_came(distance: float, wait: float) -> None:
    probe, now = after_messages(distance)
    assert probe.due_at - now == pytest.approx(wait, rel=0.01)


def test_further_probes_are_rarer_and_those_of_different_clients_are_spread() -> None:
    first, second = TailProbe(CONFIG, Random(1), 0.0), TailProbe(CONFIG, Random(2), 0.0)
    for probe in (first, second):
        for number in range(1, 101):
            probe.message_received(number / 1_000)
        waits = []
        now = probe.due_at
        for _ in range(5):
            assert probe.next_range(7, now) == (8, 1_031)
            waits.append(probe.due_at - now)
            now = probe.due_at
        assert sum(waits) < 5
        assert all(later > earlier for earlier, later in pairwise(waits))
        probe.message_received(now)
        probe.message_received(now)
    assert first.due_at != second.due_at


def test_messages_that_arrive_at_once_count_as_one() -> None:
    probe, now = after_messages(0.02)
    due_at = probe.due_at
    for _ in range(1_000):
        probe.message_received(now)
    assert probe.due_at == due_at
