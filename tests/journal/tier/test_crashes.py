"""Crashes and failures at every step of moving segments, on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from random import Random

import pytest
from suite.object_storage import MemoryObjects

from fyrehose_twisted.journal.errors import JournalError, TierError
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.tier.directory import TieredDirectory
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut

STREAM, TIER = "fyrehose://test", "s3://bucket/journals"
CONFIG = JournalConfig(segment_bytes=600, frame_records=4, retention=Retention(seconds=60.0))
COUNT = 60


class Ended(BaseException):
    """The process was killed."""


def write_journal(disk: Disk, objects: MemoryObjects) -> dict[int, bytes]:
    """Write a journal of several compacted segments; return its records."""
    directory = TieredDirectory(disk, objects)
    journal = Journal(directory, STREAM, config=CONFIG, tag=7, clock=lambda: 100.0)
    for number in range(1, COUNT + 1):
        journal.append([Record(STREAM, 0, number, 100_000_000, b"%d" % number * 9)])
        journal.commit()
    journal.compact()
    journal.close()
    return contents(JournalReader(directory))


def contents(reader: JournalReader | Journal) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for epoch in reader.epochs():
        bounds = reader.bounds(epoch)
        assert bounds is not None
        for block in reader.read(epoch, bounds.first, bounds.last):
            found |= {record.sequence: record.payload for record in block.records()}
    return found


def is_settled(disk: Disk, objects: MemoryObjects) -> bool:
    """Return whether each object has a manifest, and no segment is in both places."""
    names = disk.names()
    moved = [name.removesuffix(".tier") for name in names if name.endswith(".tier")]
    return len(moved) == len(objects.content) and not any(
        name.endswith((".copying", ".drop")) or name.removesuffix(".seg") in moved for name in names
    )


def prepared(seed: int = 0) -> tuple[Disk, MemoryObjects, dict[int, bytes]]:
    disk, objects = Disk(Random(seed)), MemoryObjects()
    return disk, objects, write_journal(disk, objects)


def test_a_moved_journal_reads_as_before() -> None:
    disk, objects, records = prepared()
    report = SegmentMover(disk, objects, TIER).run()
    assert len(report.moved) == len(objects.content) > 3
    assert not [name for name in disk.names() if name.endswith(".seg")]
    assert contents(JournalReader(TieredDirectory(disk, objects))) == records
    assert len(records) == COUNT
    journal = Journal(TieredDirectory(disk, objects), STREAM, config=CONFIG, clock=lambda: 100.0)
    assert contents(journal) == records
    assert not journal.damages
    journal.close()


def test_a_moved_journal_is_opened_without_the_storage() -> None:
    disk, objects, records = prepared()
    SegmentMover(disk, objects, TIER).run()
    requests: list[tuple[str, str]] = []
    objects.fail = lambda operation, url: requests.append((operation, url))
    reader = JournalReader(TieredDirectory(disk, objects))
    assert not requests
    assert contents(reader) == records
    assert requests


class Metered(Disk):
    """Disk that notes what each operation costs."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.marks: list[int] = []

    def spend(self, cost: int) -> int:
        self.marks += [self.spent, self.spent + cost // 2]
        return super().spend(cost)

    def spend_one(self) -> None:
        self.marks.append(self.spent)
        super().spend_one()


def steps_of_a_run() -> list[int]:
    """Return the costs at which a run can be interrupted: before each operation, and within each write."""
    disk, objects = Metered(Random(0)), MemoryObjects()
    write_journal(disk, objects)
    before, disk.marks = disk.spent, []
    SegmentMover(disk, objects, TIER).run(limit=2)
    return sorted({mark - before for mark in [*disk.marks, disk.spent]})


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_a_crash_at_any_step_loses_nothing(power: bool) -> None:
    steps = steps_of_a_run()
    assert len(steps) > 20
    # What of the last changes of a directory survives a power cut is drawn.
    for cost, draw in product(steps, range(8 if power else 1)):
        disk, objects, records = prepared(1_000 * draw + cost)
        disk.power_cut_after = cost
        with suppress(PowerCut):
            SegmentMover(disk, objects, TIER).run(limit=2)
        disk.power_cut_after = None
        (disk.power_lost if power else disk.process_killed)()
        directory = TieredDirectory(disk, objects)
        assert contents(JournalReader(directory)) == records, cost
        journal = Journal(directory, STREAM, config=CONFIG, clock=lambda: 100.0)
        assert contents(journal) == records, cost
        assert not journal.damages, cost
        journal.close()
        SegmentMover(disk, objects, TIER).run()
        assert is_settled(disk, objects), cost
        assert contents(JournalReader(TieredDirectory(disk, objects))) == records, cost


def fail_nth(operation: str, number: int, error: BaseException) -> Callable[[str, str], object]:
    seen = iter(range(number + 1))

    def fail(name: str, url: str) -> None:
        if name == operation and next(seen, None) == number:
            raise error

    return fail


@pytest.mark.parametrize("error", [TierError("unreachable"), Ended()], ids=["failure", "killed"])
@pytest.mark.parametrize("operation", ["write", "written", "open", "read", "remove", "removed"])
def test_a_failure_of_the_storage_leaves_a_state_that_the_next_run_repairs(
    operation: str, error: BaseException
) -> None:
    disk, objects, records = prepared()
    objects.fail = fail_nth(operation, 0, error)
    with suppress(TierError, Ended):
        SegmentMover(disk, objects, TIER).run()
    if isinstance(error, Ended):
        disk.process_killed()
    assert contents(JournalReader(TieredDirectory(disk, objects))) == records
    objects.fail = lambda operation, url: None
    SegmentMover(disk, objects, TIER).run()
    assert is_settled(disk, objects)
    assert contents(JournalReader(TieredDirectory(disk, objects))) == records


def test_a_copy_that_reads_back_otherwise_is_not_trusted() -> None:
    disk, objects, records = prepared()

    def corrupt(operation: str, url: str) -> None:
        if operation == "written":
            objects.content[url] = objects.content[url][:-1] + b"?"

    objects.fail = corrupt
    with pytest.raises(TierError, match=r"object s3://bucket/journals/\S+ does not read back as it was written"):
        SegmentMover(disk, objects, TIER).run()
    assert "0000000001.seg" in disk.names()
    assert contents(JournalReader(TieredDirectory(disk, objects))) == records


def test_a_changed_object_is_an_error_that_names_it() -> None:
    disk, objects, _ = prepared()
    SegmentMover(disk, objects, TIER).run()
    url, content = next(iter(objects.content.items()))
    objects.content[url] = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    with pytest.raises(TierError, match=f"object {url} is not the copy of"):
        contents(JournalReader(TieredDirectory(disk, objects)))
    objects.content[url] = content[:-1]
    with pytest.raises(TierError, match=rf"{url} .* it has {len(content) - 1:,} bytes instead of {len(content):,}"):
        contents(JournalReader(TieredDirectory(disk, objects)))
    del objects.content[url]
    with pytest.raises(TierError, match=f"object {url} is missing"):
        contents(JournalReader(TieredDirectory(disk, objects)))


def test_retention_removes_the_copies_that_are_listed_and_no_others() -> None:
    disk, objects, _ = prepared()
    objects.content["s3://bucket/journals/other"] = b"not ours"
    mover = SegmentMover(disk, objects, TIER)
    mover.run()
    journal = Journal(TieredDirectory(disk, objects), STREAM, config=CONFIG, clock=lambda: 1_000.0)
    assert journal.trim() > 0
    journal.close()
    assert [name for name in disk.names() if name.endswith(".drop")]
    report = mover.run()
    assert report.removed > 3
    assert objects.content == {"s3://bucket/journals/other": b"not ours"}
    assert is_settled(disk, MemoryObjects())


@pytest.mark.parametrize("at", ["write", "written", "read"])
def test_retention_during_a_copy_is_not_undone(at: str) -> None:
    disk, objects, _ = prepared()
    trimmed: list[int] = []

    def trim(operation: str, url: str) -> None:
        if operation == at and not trimmed:
            journal = Journal(TieredDirectory(disk, MemoryObjects()), STREAM, config=CONFIG, clock=lambda: 1_000.0)
            trimmed.append(journal.trim())
            journal.close()

    objects.fail = trim
    report = SegmentMover(disk, objects, TIER).run()
    assert trimmed[0] > 0
    assert not report.moved
    assert not objects.content
    assert not contents(JournalReader(TieredDirectory(disk, objects)))


def test_a_segment_that_was_repaired_is_not_replaced_by_its_copy() -> None:
    disk, objects, records = prepared()
    kept = {name: disk.open(name).read(0, 10_000) for name in disk.names() if name.endswith(".seg")}
    SegmentMover(disk, objects, TIER).run()
    name, content = next(iter(kept.items()))
    changed = content + bytes(8)
    file = disk.open(name, create=True)  # As if a crash had come between the rename of a repair and its mark.
    file.write(0, changed)
    file.close()
    SegmentMover(disk, objects, TIER).run()
    assert disk.open(name).read(0, 10_000) == changed
    assert contents(JournalReader(TieredDirectory(disk, objects))) == records


def test_a_damaged_segment_stays() -> None:
    disk, objects, _ = prepared()
    disk.flip_bits("0000000002.seg", 300, 1)
    report = SegmentMover(disk, objects, TIER).run()
    assert [reason.split(",")[0] for reason in report.skipped] == ["0000000002.seg"]
    assert [name for name in disk.names() if name.endswith(".seg")] == ["0000000002.seg"]


def test_only_segments_of_that_age_are_moved() -> None:
    disk, objects, _ = prepared()
    assert not SegmentMover(disk, objects, TIER).run(100_000_000).moved
    assert SegmentMover(disk, objects, TIER).run(100_000_001).moved


def test_a_damaged_manifest_is_an_error_that_names_it() -> None:
    disk, objects, _ = prepared()
    SegmentMover(disk, objects, TIER).run()
    disk.flip_bits("0000000001.tier", 20, 1)
    with pytest.raises(JournalError, match=r"0000000001\.tier, which says where segment 1 is stored, is damaged"):
        JournalReader(TieredDirectory(disk, objects))
