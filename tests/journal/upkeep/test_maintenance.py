from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from suite.thread_pool import PoolReactor
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.journal.errors import JournalBroken, JournalError, JournalFull
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.upkeep.maintenance import INTERVAL, REST, Maintenance
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"


class Kept:
    """A journal of small segments with its maintenance."""

    def __init__(self, path: Path, retention: Retention | None = None, **options: Any) -> None:
        self.path = path
        self.reactor = PoolReactor()
        config = JournalConfig(segment_bytes=1_000, retention=retention or Retention())
        self.journal = Journal(LocalDirectory(path), STREAM, config=config, clock=self.reactor.seconds)
        self.errors: list[Exception] = []
        self.upkeep = Maintenance(self.journal, self.reactor, on_failure=self.errors.append, **options)

    def write(self, first: int, last: int, *, sync: bool = True) -> None:
        """Write each record in its own frame, highest first, so that segments are unordered."""
        self.journal.begin(0, 1)
        for number in range(last, first - 1, -1):
            self.journal.append([Record(STREAM, 0, number, int(self.reactor.seconds() * 1e6), b"message %4d" % number)])
            self.journal.commit(sync)

    def look(self) -> None:
        self.reactor.advance(INTERVAL)

    @property
    def ordered(self) -> list[bool]:
        return [segment.ordered for segment in self.journal.catalog.segments.values()]

    def numbers(self, on_damage: Callable[..., object] | None = None) -> list[int]:
        bounds = self.journal.bounds(0)
        assert bounds is not None
        blocks = self.journal.read(0, bounds.first, bounds.last, on_damage)
        return [number for block in blocks for number in block.positions.tolist()]


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def making(**options: Any) -> Kept:
        made.append(Kept(tmp_path, **options))
        made[-1].upkeep.start()
        return made[-1]

    yield making
    for kept in made:
        kept.upkeep.stop()
        while kept.reactor.pool:
            kept.reactor.pool.work()
        kept.journal.close()


Keep = Callable[..., Kept]


def test_full_segments_are_compacted_one_at_a_time(keep: Keep) -> None:
    kept = keep()
    kept.write(1, 60)
    full = len(kept.journal.sealed_segments())
    assert full > 2
    for done in range(full):
        kept.look()
        kept.look()
        assert len(kept.reactor.pool) == 1, "one at a time"
        assert len(kept.journal.sealed_segments()) == full - done
        kept.reactor.pool.work()
        assert len(kept.journal.sealed_segments()) == full - done - 1
    kept.look()
    assert not kept.reactor.pool
    assert kept.ordered == [True] * full + [False]
    assert kept.numbers() == list(range(1, 61))
    assert kept.errors == []


def test_records_written_during_a_compaction_are_kept(keep: Keep) -> None:
    kept = keep()
    kept.write(1, 30)
    kept.look()
    kept.write(31, 60)
    kept.reactor.pool.work()
    assert kept.numbers() == list(range(1, 61))
    reader = open_reader(kept.path)
    assert reader.bounds(0) == kept.journal.bounds(0)
    reader.close()


def test_retention_is_applied_and_logged(keep: Keep) -> None:
    kept = keep(retention=Retention(size=3_000))
    with capturedLogs() as logged:
        kept.write(1, 30)
        kept.write(31, 120)
        kept.look()
    bounds = kept.journal.bounds(0)
    assert bounds is not None
    assert 31 <= bounds.first <= 121
    assert sum(segment.end for segment in kept.journal.catalog.segments.values()) <= 3_000
    said = [event for event in logged if "dropped" in event["log_format"]]
    assert len(said) == 1
    assert said[0]["freed"] > 2_000


def test_start_applies_retention_before_any_write(tmp_path: Path) -> None:
    before = Kept(tmp_path)
    before.journal.config = JournalConfig()
    before.write(1, 30)
    before.write(31, 90)
    before.journal.close()
    after = Kept(tmp_path, retention=Retention(size=1_000))
    assert after.journal.bounds(0) == (1, 91, 90)
    after.upkeep.start()
    assert after.journal.bounds(0) == (91, 91, 90)
    after.upkeep.stop()
    after.journal.close()


def test_unsynced_commits_are_synced_at_the_interval(keep: Keep) -> None:
    synced: list[object] = []
    kept: Kept = keep(sync_interval=0.25, on_synced=lambda: synced.append(kept.journal.bounds(0)))
    kept.write(1, 3, sync=False)
    assert kept.journal.bounds(0) == (1, 1, 3)
    kept.reactor.advance(0.24)
    assert kept.journal.bounds(0) == (1, 1, 3)
    kept.reactor.advance(0.01)
    assert kept.journal.bounds(0) == (1, 4, 3)
    kept.write(4, 4, sync=False)
    kept.reactor.advance(0.25)
    assert kept.journal.bounds(0) == (1, 5, 4)
    kept.upkeep.stop()
    kept.write(5, 5, sync=False)
    kept.reactor.advance(10)
    assert kept.journal.bounds(0) == (1, 5, 5)
    assert synced == [(1, 4, 3), (1, 5, 4)]


def test_nothing_is_synced_without_an_interval(keep: Keep) -> None:
    kept = keep()
    kept.write(1, 3, sync=False)
    kept.reactor.advance(100)
    assert kept.journal.bounds(0) == (1, 1, 3)


def test_stop_waits_for_the_compaction_thread(keep: Keep) -> None:
    kept = keep()
    kept.write(1, 30)
    kept.look()
    stopped = kept.upkeep.stop()
    assert not stopped.called
    kept.reactor.pool.work()
    assert stopped.called
    assert kept.ordered[0]
    kept.reactor.advance(10)
    assert not kept.reactor.pool
    assert kept.upkeep.stop().called
    assert [call for call in kept.reactor.getDelayedCalls() if call.active()] == []


@pytest.mark.parametrize("why", [OSError(28, "No space left on device"), ValueError("a bug")])
def test_failed_compaction_is_retried_and_loses_nothing(
    why: Exception, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep()
    kept.write(1, 30)

    def failing(*arguments: object) -> None:
        raise why

    with monkeypatch.context() as patch, capturedLogs() as logged:
        patch.setattr("fyrehose_twisted.journal.upkeep.maintenance.compact", failing)
        for _ in range(2):
            kept.look()
            kept.reactor.pool.work()
            for _ in range(REST - 1):
                kept.look()
        stopped = kept.upkeep.stop()
    assert stopped.called
    assert [event["why"] for event in logged if event["log_level"] is LogLevel.error] == [why, why]
    assert kept.errors == []
    assert kept.numbers() == list(range(1, 31))
    kept.upkeep.start()
    kept.look()
    kept.reactor.pool.work()
    assert kept.ordered[0]


@pytest.mark.parametrize("what", ["trim", "commit"])
def test_exception_does_not_end_the_maintenance(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    method = getattr(Journal, what)

    def fail_once(journal: Journal, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise TypeError("a bug")
        return method(journal, *arguments)

    monkeypatch.setattr(Journal, what, fail_once)
    kept = Kept(tmp_path, sync_interval=INTERVAL)
    with capturedLogs() as logged:
        kept.upkeep.start()
        kept.look()
        kept.look()
    assert calls >= 2
    kept.upkeep.stop()
    kept.journal.close()
    assert kept.errors == []
    assert [str(event["log_failure"].value) for event in logged if "log_failure" in event] == ["a bug"]


def test_damaged_segment_is_reported_once_and_not_compacted(keep: Keep) -> None:
    kept = keep()
    kept.write(1, 30)
    full = kept.journal.sealed_segments()[0]
    file = kept.path / full.name
    data = bytearray(file.read_bytes())
    data[data.index(b"message   30")] ^= 1
    file.write_bytes(data)
    with capturedLogs() as logged:
        for _ in range(3):
            kept.look()
            if kept.reactor.pool:
                kept.reactor.pool.work()
    said = [event for event in logged if event["log_level"] is LogLevel.error]
    assert len(said) == 1
    assert "not compacted, as it is damaged" in said[0]["log_format"]
    assert (said[0]["damage"].first, said[0]["damage"].name) == (30, full.name)
    assert file.read_bytes() == bytes(data)
    assert list(kept.path.glob("*.tmp")) == []
    damages: list[Any] = []
    assert kept.numbers(damages.append) == [number for number in range(1, 31) if number != 30]
    assert len(damages) == 1


@pytest.mark.parametrize("what", ["trim", "commit", "install_compacted"])
def test_journal_errors_are_reported_to_the_service(what: str, keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    error: JournalError = (JournalFull if what == "trim" else JournalBroken)("it cannot")

    def failing(*arguments: object) -> None:
        raise error

    kept = keep()
    kept.write(1, 30)
    with monkeypatch.context() as patch:
        patch.setattr(kept.journal, what, failing)
        syncing = Maintenance(kept.journal, kept.reactor, sync_interval=0.5, on_failure=kept.errors.append)
        if what == "commit":
            syncing.start()
        kept.look()
        if kept.reactor.pool:
            kept.reactor.pool.work()
        syncing.stop()
    assert kept.errors
    assert set(kept.errors) == {error}
