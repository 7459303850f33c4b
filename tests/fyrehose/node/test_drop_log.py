from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import PacketDropped
from fyrehose_twisted.fyrehose.node.drop_log import SOURCES_REMEMBERED, DropLog
from fyrehose_twisted.report_limiter import INTERVAL

START = 1_700_000_000.0
ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)


def source(number: int) -> Address:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1


def test_drops_are_counted_by_reason() -> None:
    drops = DropLog()
    for reason in ("size", "size", "rate", "size"):
        drops.record(reason, ALICE, "detail", START)
    assert drops.counts == {"size": 3, "rate": 1}


def test_a_drop_report_has_reason_source_and_detail() -> None:
    assert DropLog().record("size", ALICE, "too short", START) == PacketDropped("size", ALICE, "too short")


def test_drops_are_reported_once_per_host_and_reason() -> None:
    drops = DropLog()
    assert drops.record("size", ALICE, "", START)
    assert drops.record("size", BOB, "", START)
    assert drops.record("rate", ALICE, "", START)
    assert drops.record("size", (ALICE[0], 9), "another port", START) is None
    assert drops.record("rate", ALICE, "", START + 59.999) is None


def test_a_source_of_drops_is_reported_again_after_a_minute() -> None:
    drops = DropLog()
    reported = [at for at in range(0, 200, 10) if drops.record("size", ALICE, "", START + at)]
    assert reported == [0, 60, 120, 180]


def test_the_report_interval_of_a_source_does_not_depend_on_other_sources() -> None:
    drops = DropLog()
    drops.record("size", ALICE, "", START)
    assert drops.record("size", BOB, "", START + 59)
    assert drops.record("size", ALICE, "", START + 60)
    assert drops.record("size", BOB, "", START + 61) is None


def test_drop_reports_of_many_sources_are_limited_while_all_drops_are_counted() -> None:
    drops = DropLog()
    flood = range(2 * SOURCES_REMEMBERED)
    assert sum(drops.record("size", source(number), "", START) is not None for number in flood) == SOURCES_REMEMBERED
    assert drops.counts["size"] == 2 * SOURCES_REMEMBERED
    later = START + INTERVAL
    assert sum(drops.record("size", source(number), "", later) is not None for number in flood) == SOURCES_REMEMBERED


def test_drops_are_reported_after_the_clock_was_set_back() -> None:
    drops = DropLog()
    drops.record("size", ALICE, "", START)
    assert drops.record("size", ALICE, "", START - 3_600)
    assert drops.record("size", ALICE, "", START - 3_590) is None


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(0, 3), st.sampled_from(["size", "rate"])), max_size=40))
def test_each_source_of_drops_is_reported_exactly_once_per_interval(
    drops_in_time: list[tuple[float, int, str]],
) -> None:
    drops, now = DropLog(), START
    last: dict[tuple[int, str], float] = {}
    for seconds, number, reason in drops_in_time:
        now += seconds
        due = now - last.get((number, reason), -1e9) >= INTERVAL
        assert (drops.record(reason, source(number), "", now) is not None) is due
        if due:
            last[number, reason] = now
    assert drops.counts.total() == len(drops_in_time)
