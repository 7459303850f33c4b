"""A server of a journal whose segments are in object storage does not wait for them."""

from __future__ import annotations

from pathlib import Path

from suite.object_storage import MemoryObjects
from suite.thread_pool import PoolReactor

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.remote import wire
from fyrehose_twisted.journal.remote.server import ServingCounters, ServingLimits, _RangeRead
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.tier.directory import TieredDirectory
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.journal.upkeep.fetching import BlockFetcher
from fyrehose_twisted.record import Record

STREAM, COUNT = "fyrehose://test", 200


def test_a_response_pauses_until_a_block_is_fetched_and_is_complete(tmp_path: Path) -> None:
    objects, reactor = MemoryObjects(), PoolReactor()
    config = JournalConfig(segment_bytes=2_000, frame_records=16)
    with_tier = TieredDirectory(LocalDirectory(tmp_path), objects)
    journal = Journal(with_tier, STREAM, config=config)
    for number in range(1, COUNT + 1):
        journal.append([Record(STREAM, 0, number, 1, b"%d" % number * 9)])
        journal.commit(sync=False)
    journal.sync()
    journal.compact()
    expected = [block.payloads() for block in journal.read(0, 1, COUNT)]
    for name in SegmentMover(LocalDirectory(tmp_path), objects, "s3://b/p").run().moved:
        journal.catalog.release(name)
    BlockFetcher(journal, reactor)
    counters = ServingCounters()
    request = wire.Read(1, STREAM, 0, 1, COUNT, 2**20, False)
    frames, pauses = [], 0
    for part in _RangeRead(journal, request, ServingLimits(), counters).parts():
        if part is None:
            pauses += 1
            while reactor.pool:
                reactor.pool.work()
        elif isinstance(part, wire.Records):
            frames.append(part)
    assert pauses == counters.waits == len(objects.content)
    assert counters.records == sum(map(len, expected)) == COUNT
    assert frames[-1].end
    journal.close()
