"""Prometheus metrics of journals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fyrehose_twisted.journal.metrics import JournalCollector
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"


def record(sequence: int, payload: bytes = b"x", *, stream: str = STREAM, epoch: int = 0) -> Record:
    return Record(stream, epoch, sequence, 1_500_000_000_500_000, payload)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = open_journal(tmp_path, STREAM)
    yield opened
    opened.close()


def values(*collectors: JournalCollector, stream: str = STREAM) -> dict[str, float]:
    """Return the samples of a stream by the last part of the name."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return {
        sample.name.removeprefix("fyrehose_journal_").removesuffix("_total"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.labels == {"stream": stream}
    }


def test_empty_journal_has_no_number_metrics(journal: Journal) -> None:
    told = values(JournalCollector([journal]))
    assert {"first", "next", "last", "epoch", "newest_timestamp_seconds"}.isdisjoint(told)
    assert (told["held"], told["lost"], told["segments"], told["commits"]) == (0, 0, 1, 0)
    assert told["free_bytes"] > 0


def test_metrics_of_held_lost_and_missing_numbers(journal: Journal, tmp_path: Path) -> None:
    journal.append([record(sequence) for sequence in (5, 6, 7, 10)])
    journal.lose(0, 8, 8)
    before = values(JournalCollector([journal]))
    assert (before["first"], before["next"], before["taken"], before["held"]) == (5, 5, 4, 0)
    journal.commit()
    journal.commit()
    told = values(JournalCollector([journal]))
    assert (told["epoch"], told["first"], told["next"], told["last"]) == (0, 5, 9, 10)
    assert (told["taken"], told["held"], told["lost"], told["commits"]) == (4, 4, 1, 1)
    assert told["newest_timestamp_seconds"] == 1_500_000_000.5
    files = (tmp_path / "fyrehose-test").glob("*.log")
    assert told["bytes"] == sum(file.stat().st_size for file in files)


def test_number_metrics_describe_the_last_epoch(journal: Journal) -> None:
    journal.append([record(7, epoch=1), record(100, epoch=3)])
    journal.commit()
    told = values(JournalCollector([journal]))
    assert (told["epoch"], told["first"], told["next"], told["held"]) == (3, 100, 101, 2)


def test_metrics_of_refused_records(journal: Journal) -> None:
    journal.append([record(5), record(6)])
    journal.lose(0, 7, 7)
    journal.commit()
    journal.append([record(5), record(6, b"y"), record(7), record(4)])
    told = values(JournalCollector([journal]))
    assert (told["duplicates"], told["conflicts"], told["late"], told["replaced"]) == (1, 1, 2, 0)


def test_counter_never_decreases_when_a_record_is_dropped(journal: Journal) -> None:
    collector = JournalCollector([journal])
    journal.append([record(5), record(7)])
    journal.commit()
    journal.append([record(7, b"y")])
    assert (values(collector)["taken"], values(collector)["replaced"]) == (3, 1)
    journal.sync()
    journal.append([record(6)])
    journal.counters.taken -= 1  # Happens when the watermark passes a record that was to be replaced.
    told = values(collector)
    assert told["taken"] == journal.counters.taken == 3
    journal.counters.taken -= 1
    assert values(collector)["taken"] == 3


def test_retention_advances_the_first_number_metric(tmp_path: Path) -> None:
    config = JournalConfig(segment_bytes=256, retention=Retention(size=512))
    journal = open_journal(tmp_path, STREAM, config=config)
    for sequence in range(1, 21):
        journal.append([record(sequence, b"x" * 100)])
        journal.commit()
    many = values(JournalCollector([journal]))
    assert journal.trim() > 0
    few = values(JournalCollector([journal]))
    assert few["first"] > many["first"] == 1
    assert (few["segments"], few["bytes"], few["held"]) < (many["segments"], many["bytes"], many["held"])
    assert few["next"] == many["next"] == 21
    journal.close()


def test_metrics_include_journals_added_later(journal: Journal, tmp_path: Path) -> None:
    journals = [journal]
    collector = JournalCollector(journals)
    other = "fyrehose://other"
    assert values(collector, stream=other) == {}
    journals.append(open_journal(tmp_path, other))
    journals[1].append([record(1, stream=other)])
    journals[1].commit()
    assert values(collector)["held"] == 0
    assert values(collector, stream=other)["held"] == 1
    journals[1].close()
