from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.repeats import COUNTERS_PER_PAGE, SPARE_RANGES, WINDOW, EnvelopeRun, RepeatDetector

HIGHEST = 2**64 - 1

counters = (
    st.integers(0, 12)
    | st.integers(COUNTERS_PER_PAGE - 4, COUNTERS_PER_PAGE + 4)
    | st.integers(HIGHEST - 40, HIGHEST - 30)
)
streams = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), counters, st.integers(1, 30)), max_size=30)
"""Runs as skipped numbers, publisher, counter and length."""


def by_definition(runs: list[EnvelopeRun], window: int) -> set[int]:
    """Find repeats by comparing each message with all earlier ones."""
    seen: dict[tuple[int, int], int] = {}
    found = set()
    for run in runs:
        for row in range(run.length):
            envelope, number = (run.publisher, run.counter + row), run.number + row
            if envelope in seen and number - seen[envelope] <= window:
                found.add(number)
            seen[envelope] = number
    return found


def numbered(stream: list[tuple[int, int, int, int]]) -> list[EnvelopeRun]:
    runs, number = [], 1
    for gap, publisher, counter, length in stream:
        number += gap
        runs.append(EnvelopeRun(number, publisher, counter, length))
        number += length
    return runs


def marked(repeats: RepeatDetector, runs: list[EnvelopeRun]) -> set[int]:
    return {run.number + row for run in runs for begin, end in repeats.add(run) for row in range(begin, end)}


@given(streams, st.sampled_from([1, 3, 10, 40]))
def test_repeats_in_runs_match_the_definition(stream: list[tuple[int, int, int, int]], window: int) -> None:
    runs = numbered(stream)
    repeats = RepeatDetector(window)
    assert marked(repeats, runs) == by_definition(runs, window)
    assert len(repeats) <= window + 1


@given(streams, st.sampled_from([3, 10, 40]))
def test_repeats_of_single_messages_equal_those_of_runs(stream: list[tuple[int, int, int, int]], window: int) -> None:
    runs = numbered(stream)
    singles = [
        EnvelopeRun(run.number + row, run.publisher, run.counter + row, 1) for run in runs for row in range(run.length)
    ]
    assert marked(RepeatDetector(window), singles) == marked(RepeatDetector(window), runs)


@given(streams, streams, st.sampled_from([3, 10, 40]))
def test_the_state_of_a_repeat_detector_can_be_transferred(
    stream: list[tuple[int, int, int, int]], later: list[tuple[int, int, int, int]], window: int
) -> None:
    runs = numbered(stream + later)
    first, second = runs[: len(stream)], runs[len(stream) :]
    repeats, other = RepeatDetector(window), RepeatDetector(window)
    marked(repeats, first)
    marked(other, repeats.runs())
    assert marked(other, second) == marked(repeats, second)


@pytest.mark.parametrize(("distance", "is_repeat"), [(1, True), (WINDOW, True), (WINDOW + 1, False)])
def test_the_repeat_window_is_counted_in_sequence_numbers(distance: int, is_repeat: bool) -> None:
    repeats = RepeatDetector()
    assert repeats.add(EnvelopeRun(7, 1, 5, 1)) == []
    assert bool(repeats.add(EnvelopeRun(7 + distance, 1, 5, 1))) == is_repeat


def test_a_forged_counter_marks_no_other_message_as_a_repeat() -> None:
    repeats = RepeatDetector()
    repeats.add(EnvelopeRun(1, 1, 0, 1))
    repeats.add(EnvelopeRun(2, 1, HIGHEST - 1, 2))
    assert repeats.add(EnvelopeRun(4, 1, 1, 100)) == []
    assert repeats.add(EnvelopeRun(104, 1, 99, 10)) == [(0, 2)]


def test_a_repeat_detector_keeps_only_its_window() -> None:
    repeats = RepeatDetector(100)
    for number in range(1, 5_000):
        repeats.add(EnvelopeRun(number, number, number * 7_919, 1))
    assert len(repeats) == len(repeats._pages) == 100
    for number in range(5_000, 50_000):
        repeats.add(EnvelopeRun(number, 1, number * 7_919 % 1_000, 1))
    assert len(repeats) == 100
    assert all(len(page.firsts) <= SPARE_RANGES + 200 for page in repeats._pages.values())
