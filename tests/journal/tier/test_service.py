"""Moving and fetching of segments while a service runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from suite.object_storage import MemoryObjects
from suite.thread_pool import PoolReactor

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.node.client.journal_store import JournalStore
from fyrehose_twisted.journal.errors import NotFetched, TierError
from fyrehose_twisted.journal.format.disk import TIER_LOCK_NAME, LocalDirectory
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.tier.config import TierConfig
from fyrehose_twisted.journal.tier.directory import TieredDirectory
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.journal.upkeep.fetching import BlockFetcher
from fyrehose_twisted.journal.upkeep.maintenance import Maintenance
from fyrehose_twisted.journal.upkeep.tiering import INTERVAL, LONGEST_REST, Tiering
from fyrehose_twisted.record import Record

STREAM, TIER = "fyrehose://test", "s3://bucket/journals"
COUNT = 60


class Kept:
    """A journal of small compacted segments, open for writing."""

    def __init__(self, path: Path, tier: TierConfig | None = None) -> None:
        self.path = path
        self.reactor = PoolReactor()
        self.objects = MemoryObjects()
        config = JournalConfig(segment_bytes=600, frame_records=4, tier=tier)
        directory = TieredDirectory(LocalDirectory(path), self.objects)
        self.journal = Journal(directory, STREAM, config=config, clock=lambda: 50.0)
        for number in range(1, COUNT + 1):
            self.journal.append([Record(STREAM, 0, number, 50_000_000, b"%d" % number * 9)])
            self.journal.commit()
        self.journal.compact()

    def segments(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir() if entry.suffix == ".seg")

    def tiering(self, after: float = 100.0) -> Tiering:
        config = TierConfig(TIER, after)
        return Tiering(self.journal, config, self.path, self.objects, self.reactor, clock=self.reactor.seconds)


def test_segments_move_when_they_are_old_enough_and_in_a_thread(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    local = kept.segments()
    tiering = kept.tiering()
    tiering.start()
    kept.reactor.pool.work()
    assert kept.segments() == local  # At time 0, nothing is old enough.
    kept.reactor.pump([INTERVAL] * 3)
    assert len(kept.reactor.pool) == 1  # One at a time.
    assert kept.segments() == local  # All of it is the work of the thread.
    kept.reactor.pool.work()
    assert not kept.segments()
    assert kept.journal.tier_counters.moved == len(local)
    assert kept.journal.tier_counters.moved_bytes == sum(map(len, kept.objects.content.values()))
    assert kept.journal.get(0, 1) is not None
    kept.journal.close()


def test_failures_are_counted_and_the_next_attempt_waits_longer_each_time(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    local = kept.segments()

    def fail(operation: str, url: str) -> None:
        raise TierError("unreachable")

    kept.objects.fail = fail
    tiering = kept.tiering(0.0)
    kept.reactor.advance(100.0)
    tiering.start()
    attempts = []
    while len(attempts) < 9:
        if kept.reactor.pool:
            attempts.append(kept.reactor.seconds())
            kept.reactor.pool.work()
        kept.reactor.advance(INTERVAL)
    rests = [later - earlier for earlier, later in pairwise(attempts)]
    assert rests == [60.0, 120.0, 240.0, 480.0, 960.0, 1_920.0, LONGEST_REST, LONGEST_REST]
    assert kept.journal.tier_counters.failures == 9
    assert kept.segments() == local
    kept.objects.fail = lambda operation, url: None
    kept.reactor.advance(LONGEST_REST)
    kept.reactor.pool.work()
    assert not kept.segments()
    kept.journal.close()


def test_another_process_that_moves_segments_is_left_alone(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    lock = LocalDirectory(tmp_path).lock(TIER_LOCK_NAME)
    kept.reactor.advance(100.0)
    tiering = kept.tiering(0.0)
    tiering.start()
    kept.reactor.pool.work()
    lock.close()
    assert kept.journal.tier_counters.failures == 1
    assert kept.segments()
    kept.journal.close()


def test_stopping_waits_for_the_segment_that_is_being_moved_and_no_other(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.reactor.advance(100.0)
    tiering = kept.tiering(0.0)
    tiering.start()
    stopped: list[None] = []
    count = len(kept.segments())

    def stop(operation: str, url: str) -> None:
        if not stopped and operation == "written" and not tiering._stopping:
            tiering.stop().addCallback(stopped.append)

    kept.objects.fail = stop
    kept.reactor.pool.work()
    assert stopped == [None]
    assert len(kept.segments()) == count - 1
    kept.journal.close()


def test_maintenance_moves_segments_as_the_configuration_says(tmp_path: Path) -> None:
    kept = Kept(tmp_path, TierConfig(TIER, 0.0))
    upkeep = Maintenance(kept.journal, kept.reactor, on_failure=pytest.fail)
    upkeep.start()
    kept.reactor.pool.work()
    assert not kept.segments()
    upkeep.stop()
    kept.journal.close()


def moved(path: Path) -> Kept:
    """Return a journal whose segments have moved, and whose blocks are fetched in the thread pool."""
    kept = Kept(path)
    SegmentMover(LocalDirectory(path), kept.objects, TIER).run()
    for number in list(kept.journal.catalog.segments):
        kept.journal.catalog.release(f"{number:010d}.seg")
    BlockFetcher(kept.journal, kept.reactor)
    return kept


def test_repairs_from_a_moved_segment_do_not_wait_for_the_storage(tmp_path: Path) -> None:
    kept = moved(tmp_path)
    store = JournalStore(kept.journal)
    assert store.get(1) is None
    assert store.get(1) is None
    assert len(kept.reactor.pool) == 1
    with pytest.raises(NotFetched):
        kept.journal.get(0, 1)
    kept.reactor.pool.work()
    assert store.get(1) == b"1" * 9
    assert kept.journal.tier_counters.fetched_bytes > 0
    kept.journal.close()


def test_a_failed_fetch_is_counted_and_an_error_for_the_next_read(tmp_path: Path) -> None:
    kept = moved(tmp_path)
    kept.objects.content.clear()
    with pytest.raises(NotFetched):
        kept.journal.get(0, 1)
    kept.reactor.pool.work()
    with pytest.raises(TierError, match="is missing"):
        kept.journal.get(0, 1)
    with pytest.raises(NotFetched):
        kept.journal.get(0, 1)  # It is tried again.
    assert kept.journal.tier_counters.fetch_failures == 1
    kept.journal.close()


def test_a_configuration_with_an_invalid_url_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must have the form"):
        TierConfig("bucket", 0.0)
