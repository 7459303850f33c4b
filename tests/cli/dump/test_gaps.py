from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.cli.dump.gaps import MAX_GAPS, MAX_STREAMS, GapTracker, NumberedStream, StreamKey


def notes(stream: NumberedStream, *numbers: int) -> list[str]:
    return [note for number in numbers for note in stream.add(number)]


def test_a_gap_is_noted_and_so_is_its_repair_once_it_is_complete() -> None:
    stream = NumberedStream()
    assert notes(stream, 38, 39, 81) == ["41 missing: 40 to 80"]
    assert notes(stream, 82, *range(40, 80)) == []
    assert notes(stream, 80) == ["41 repaired: 40 to 80"]
    assert not stream.missing


def test_repeats_and_older_numbers_are_not_noted() -> None:
    assert notes(NumberedStream(), 10, 11, 10, 3, 12) == []


def test_numbers_that_were_never_given_are_not_missing() -> None:
    stream = NumberedStream()
    assert notes(stream, 10) == []
    assert [*stream.skip(13, 99)] == ["2 missing: 11 to 12"]
    assert notes(stream, 100, 12, 11) == ["2 repaired: 11 to 12"]


def test_the_lowest_gaps_are_forgotten_beyond_the_limit() -> None:
    stream = NumberedStream()
    notes(stream, *range(0, 2 * MAX_GAPS + 10, 2))
    assert len(stream.missing) == MAX_GAPS
    assert stream.missing.first > 1


def test_streams_are_bounded_and_summed_up() -> None:
    tracker = GapTracker()
    for port in range(MAX_STREAMS + 1):
        notes(tracker.stream(StreamKey("s", ("192.0.2.1", port))), 1, 3)
    assert len([*tracker.summary()]) == MAX_STREAMS
    tracker = GapTracker()
    key = StreamKey("s", ("192.0.2.1", 1))
    notes(tracker.stream(key), *range(0, 40, 2))
    assert [*tracker.summary()] == [(key, "19 still missing: 1, 3, 5, 7, 9, 11, 13, 15 and 11 other gaps")]
    tracker.forget(key)
    assert [*tracker.summary()] == []


@given(st.lists(st.integers(0, 30), max_size=40))
def test_missing_are_those_between_the_numbers_that_were_seen(numbers: list[int]) -> None:
    stream = NumberedStream()
    notes(stream, *numbers)
    expected = set(range(numbers[0], max(numbers)) if numbers else ()) - set(numbers)
    assert {number for first, last in stream.missing for number in range(first, last + 1)} == expected
