from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.format.frame_index import FrameIndex
from fyrehose_twisted.journal.format.frames import FrameHeader, FrameKind
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import SegmentHeader
from fyrehose_twisted.journal.retention import Retention, expired_segments, parse_retention
from fyrehose_twisted.ranges import RangeSet

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds", "size"),
    [
        ("90s", 90.0, None),
        ("5m", 300.0, None),
        ("2h", 7_200.0, None),
        ("7d", 604_800.0, None),
        ("1w", 604_800.0, None),
        ("0.5d", 43_200.0, None),
        ("50GB", None, 50 * 10**9),
        ("1.5kB", None, 1_500),
        ("3mb", None, 3 * 10**6),
        ("1TB", None, 10**12),
        ("2KiB", None, 2_048),
        ("1MiB", None, 2**20),
        ("1 GiB", None, 2**30),
        ("1tib", None, 2**40),
        ("7d,50GB", 604_800.0, 50 * 10**9),
        (" 50 gb , 1h ", 3_600.0, 50 * 10**9),
    ],
)
def test_parse_retention_accepts_age_and_size(text: str, seconds: float | None, size: int | None) -> None:
    assert parse_retention(text) == Retention(seconds, size)


@pytest.mark.parametrize("text", ["", "7", "d", "7y", "-7d", "7d,8d", "1GB,2GB", "7d;1GB", "7d,", "1e3d", "7 d d"])
def test_parse_retention_rejects_invalid_text(text: str) -> None:
    with pytest.raises(ConfigurationError, match="use 7d, 50GB or 7d,50GB"):
        parse_retention(text)


@pytest.mark.parametrize("text", ["0s", "0GB", "0.0d", "0.0001kB"])
def test_retention_of_zero_is_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must be above 0"):
        parse_retention(text)


@pytest.mark.parametrize("limits", [(float("nan"), None), (-1.0, None), (None, -1)])
def test_retention_limits_must_be_positive(limits: tuple[float | None, int | None]) -> None:
    with pytest.raises(ConfigurationError):
        Retention(*limits)


def test_segment_is_rolled_after_a_fourth_of_the_retention_time() -> None:
    retention = Retention(100.0)
    assert not retention.should_roll(SECOND, 26 * SECOND)
    assert retention.should_roll(SECOND, 26 * SECOND + 1)
    assert not Retention(size=5).should_roll(0, 10**18)


LATER = 10**18
"""Time in UTC microseconds after all records of these tests."""


def segment(number: int, *, last: tuple[int, int] | None, end: int = 100, newest: int = 0, **options: Any) -> Segment:
    one = Segment(None, SegmentHeader(number, "fyrehose://test", 0, LATER, 0, 64), ".seg", **options)  # type: ignore[arg-type]
    one.end, one.newest = end, newest * SECOND
    if last is not None:
        epoch, position = last
        header = FrameHeader(FrameKind.RECORDS, 1, 1, 8, position, epoch, 0, number, 64, newest, 0, 0)
        one.frame_indexes[epoch] = FrameIndex()
        one.frame_indexes[epoch].restore([header], RangeSet([(position, position)]))
    return one


def active(end: int) -> Segment:
    return segment(1_000, last=(9, 9), end=end)


def gone(segments: list[Segment], retention: Retention, *, beside: int = 0, now: int = 0) -> list[int]:
    return [one.number for one in expired_segments(segments, active(beside), retention, now * SECOND)]


def test_no_segment_expires_without_limits() -> None:
    assert gone([segment(1, last=(0, 5))], Retention(), now=10**9) == []


def test_lowest_segments_expire_until_the_size_fits() -> None:
    segments = [segment(number, last=(0, 10 * number)) for number in range(1, 6)]
    assert gone(segments, Retention(size=300)) == [1, 2]
    assert gone(segments, Retention(size=500)) == []
    assert gone(segments, Retention(size=499)) == [1]
    assert gone(segments, Retention(size=300), beside=1) == [1, 2, 3]
    assert gone(segments, Retention(size=1)) == [1, 2, 3, 4, 5]


def test_segment_expires_when_all_its_records_are_old() -> None:
    segments = [segment(number, last=(0, 10 * number), newest=10 * number) for number in range(1, 6)]
    assert gone(segments, Retention(5.0), now=25) == [1]
    assert gone(segments, Retention(5.0), now=26) == [1, 2]


def test_lower_numbers_expire_first_regardless_of_receive_time() -> None:
    segments = [segment(1, last=(0, 30)), segment(2, last=(0, 10)), segment(3, last=(0, 20))]
    assert gone(segments, Retention(size=100)) == [2, 3]


def test_earlier_epochs_expire_first() -> None:
    segments = [segment(1, last=(1, 5)), segment(2, last=(0, 900)), segment(3, last=None)]
    assert gone(segments, Retention(size=100)) == [3, 2]


def test_segment_is_kept_while_lower_numbers_are_kept() -> None:
    segments = [segment(1, last=(0, 10), newest=50), segment(2, last=(0, 20), newest=1)]
    assert gone(segments, Retention(10.0), now=55) == []


def test_future_receive_time_is_capped_by_the_next_segment() -> None:
    segments = [segment(number, last=(0, number), newest=newest) for number, newest in ((1, 10), (2, 9_999), (3, 30))]
    segments[2].header = segments[2].header._replace(created_at=25 * SECOND)
    assert gone(segments, Retention(10.0), now=30) == [1]
    assert gone(segments, Retention(10.0), now=36) == [1, 2]
    assert gone(segments, Retention(10.0), now=41) == [1, 2, 3]


def test_empty_segment_expires_under_any_limit() -> None:
    assert gone([segment(1, last=None), segment(2, last=(0, 1), newest=50)], Retention(10.0), now=50) == [1]
    assert gone([segment(1, last=None)], Retention()) == []


def test_age_or_size_alone_expires_a_segment() -> None:
    segments = [segment(number, last=(0, 10 * number), newest=newest) for number, newest in ((1, 1), (2, 90), (3, 91))]
    assert gone(segments, Retention(10.0, 10**6), now=95) == [1]
    assert gone(segments, Retention(10.0, 100), now=95) == [1, 2]
