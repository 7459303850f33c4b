"""Detection of repeats from any start in a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.journal import repeat_marking
from fyrehose_twisted.journal.format import segment
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.repeat_marking import RepeatMarker, run_to_end
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.payloads import envelope_finder
from fyrehose_twisted.record import Record
from fyrehose_twisted.repeats import WINDOW

STREAM = "fyrehose://ticks"

Open = Callable[[dict[int, int]], JournalReader]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Open]:
    """Return a journal of records with given envelope counters, all other numbers lost."""
    readers: list[JournalReader] = []

    def make(counters: dict[int, int]) -> JournalReader:
        with closing(open_journal(tmp_path, STREAM)) as journal:
            before = 0
            for number, counter in counters.items():
                if number > before + 1:
                    journal.lose(0, before + 1, number - 1)
                journal.append([Record(STREAM, 0, number, 5, wrap(b"someones", counter, b"x" * 100))])
                before = number
            journal.commit()
        readers.append(open_reader(tmp_path / "fyrehose-ticks"))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def repeats(reader: JournalReader, marker: RepeatMarker, first: int, last: int) -> list[int]:
    found: list[int] = []
    for block in reader.read(0, first, last):
        marks = run_to_end(marker.marks(block))
        if marks is not None:
            found += block.positions[marks].tolist()
    return found


@pytest.mark.parametrize("read_on", [0, 100])
@pytest.mark.parametrize("step", [0, 4_096])
def test_records_read_as_context_are_marked_by_their_own_context(
    make: Open, monkeypatch: pytest.MonkeyPatch, read_on: int, step: int
) -> None:
    monkeypatch.setattr(repeat_marking, "READ_ON", read_on)
    monkeypatch.setattr(repeat_marking, "STEP_RECORDS", max(1, step))
    reader = make({1: 7, 1_000: 7, WINDOW + 500: 8, WINDOW + 501: 7, 2 * WINDOW + 502: 7})
    marker = RepeatMarker(reader, envelope_finder(STREAM))
    assert repeats(reader, marker, WINDOW + 500, 3 * WINDOW) == [WINDOW + 501]
    assert repeats(reader, marker, 1_000, 1_000) == [1_000]
    assert repeats(reader, marker, 1, 3 * WINDOW) == [1_000, WINDOW + 501]


def test_dropped_results_are_computed_again(make: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat_marking, "MAX_RANGES", 3)
    reader = make({number: number // 2 for number in range(1, 40)})
    marker = RepeatMarker(reader, envelope_finder(STREAM))
    for first in (30, 1, 20, 1):
        assert repeats(reader, marker, first, 39) == [one for one in range(3, 40, 2) if one >= first]


def test_only_the_heads_of_long_records_are_read(make: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = make({number: number % 10 for number in range(1, 31)})
    monkeypatch.setattr(segment, "LONG_RECORDS", 16)
    (heads,) = list(reader.read(0, 1, 10, projection=segment.Projection.HEADS))[:1]
    assert {len(payload) for payload in heads.payloads()} == {segment.HEAD_BYTES}
    assert repeats(reader, RepeatMarker(reader, envelope_finder(STREAM)), 25, 30) == list(range(25, 31))


def test_streams_without_envelopes_have_no_repeats(make: Open) -> None:
    reader = make({1: 1, 2: 1})
    assert repeats(reader, RepeatMarker(reader, None), 1, 2) == []
