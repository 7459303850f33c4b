from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from suite.journals import WriteJournal
from twisted.internet.threads import deferToThread

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.remote.server import JournalServerFactory
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.source import journal_locations as origins_module
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, locations_on_server
from fyrehose_twisted.spark.source.options import read_options
from fyrehose_twisted.spark.source.planning import epoch_ranges
from fyrehose_twisted.spark.verify import tables
from fyrehose_twisted.spark.verify.compare import Comparison
from fyrehose_twisted.spark.verify.parts import ComparisonRange
from fyrehose_twisted.spark.verify.planning import find_extents, plan_ranges
from fyrehose_twisted.spark.verify.runs import FindingRun, merge_runs
from fyrehose_twisted.spark.verify.summary import summary_of
from fyrehose_twisted.spark.verify.verification import Verification

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000
SECOND = 1_000_000
TOLERANCE = 60 * SECOND


def origin(name: str, path: Path, stream: str = STREAM) -> JournalLocation:
    return JournalLocation(name, stream, str(path))


def parts(origins: Sequence[JournalLocation], rows: int = 1_000_000) -> list[ComparisonRange]:
    return list(plan_ranges(find_extents(origins), rows))


def found(origins: Sequence[JournalLocation], rows: int = 1_000_000) -> list[FindingRun]:
    """Return the finding runs of journals of one stream and epoch, without Spark."""
    comparisons = [Comparison(part, TOLERANCE) for part in parts(origins, rows)]
    return list(
        merge_runs(run for one in comparisons for some in one.runs() for run in some if isinstance(run, FindingRun))
    )


def healed(origins: Sequence[JournalLocation], rows: int = 1_000_000) -> list[dict[str, Any]]:
    return [
        row
        for part in parts(origins, rows)
        for batch in tables.healed_batches(Comparison(part, TOLERANCE))
        for row in batch.to_pylist()
    ]


def told(runs: Sequence[FindingRun]) -> list[tuple[Any, ...]]:
    return [run[1:5] for run in runs]


def put_in_order(path: Path) -> None:
    """Seal all segments but the last."""
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        journal.roll()
        journal.compact()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(bytes(data))


class TestDamage:
    @pytest.fixture
    def good(self, write_journal: WriteJournal) -> JournalLocation:
        return origin("good", write_journal(range(1, 501), group=100))

    @pytest.fixture
    def bad(self, write_journal: WriteJournal) -> Path:
        path: Path = write_journal(range(1, 501), group=100)
        return path

    def frame(self, path: Path, number: int) -> tuple[Path, int, int]:
        """Return file, offset and size of the frame with a number."""
        with closing(open_reader(path)) as reader:
            for segment in reader.segments:
                for header in segment.frame_indexes[0].covering(number, number) if 0 in segment.frame_indexes else ():
                    return path / segment.name, header.offset, header.size
        raise AssertionError(number)

    def check(self, good: JournalLocation, bad: Path, first: int, last: int, detail: str) -> None:
        both = [origin("bad", bad), good]
        runs = found(both)
        assert told(runs) == [("damaged", "bad", first, last)]
        assert detail in str(runs[0].detail)
        assert found(both, 30) == runs
        rows = healed(both, 170)
        assert [row["sequence"] for row in rows] == list(range(1, 501))
        assert [row["payload"] for row in rows] == [b"message %d" % number for number in range(1, 501)]
        assert {row["journal"] for row in rows if first <= row["sequence"] <= last} == {"good"}
        assert {row["journal"] for row in rows if not first <= row["sequence"] <= last} <= {"bad", "good"}

    def test_a_damaged_frame_body_in_an_open_segment_is_found(self, good: JournalLocation, bad: Path) -> None:
        file, offset, size = self.frame(bad, 250)
        flip(file, offset + size - 20)
        self.check(good, bad, 201, 300, "numbers 201 to 300 of epoch 0: the checksum of the body is wrong")

    def test_a_damaged_frame_header_in_an_open_segment_is_found(self, good: JournalLocation, bad: Path) -> None:
        file, offset, _ = self.frame(bad, 250)
        flip(file, offset + 20)
        self.check(good, bad, 201, 300, "the checksum of the header is wrong")

    def test_a_damaged_frame_body_in_a_sealed_segment_is_found(self, good: JournalLocation, bad: Path) -> None:
        put_in_order(bad)
        file, offset, size = self.frame(bad, 250)
        assert file.suffix == ".seg"
        flip(file, offset + size - 20)
        self.check(good, bad, 1, 500, "the checksum of the body is wrong")

    def test_a_truncated_sealed_segment_is_found(self, good: JournalLocation, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 401), group=100, segment_bytes=4_000)
        put_in_order(path)
        write_journal(range(401, 501), path=path)
        file, offset, size = self.frame(path, 250)
        first, last = self.range_of(path, 250)
        file.write_bytes(file.read_bytes()[: offset + size // 2])
        self.check(good, path, first, last, file.name)

    def test_a_damaged_sealed_segment_without_an_index_file_is_found(
        self, good: JournalLocation, write_journal: WriteJournal
    ) -> None:
        path = write_journal(range(1, 401), group=100, segment_bytes=4_000)
        put_in_order(path)
        write_journal(range(401, 501), path=path)
        file, offset, _ = self.frame(path, 250)
        first, last = self.range_of(path, 250)
        file.with_suffix(".idx").unlink()
        flip(file, offset + 20)
        self.check(good, path, first, last, f"{file.name}, bytes")

    def test_a_truncated_open_segment_ends_at_the_truncation(self, good: JournalLocation, bad: Path) -> None:
        file, offset, size = self.frame(bad, 450)
        file.write_bytes(file.read_bytes()[: offset + size // 2])
        runs = found([origin("bad", bad), good])
        assert [(run.journal, run.first, run.last) for run in runs] == [("bad", 401, 500)]
        assert runs[0].reason in ("after", "damaged")

    def test_records_held_only_by_a_damaged_journal_are_not_lost(self, bad: Path) -> None:
        file, offset, _ = self.frame(bad, 250)
        flip(file, offset + 20)
        alone = [origin("bad", bad)]
        assert told(found(alone)) == [("damaged", "bad", 201, 300), ("nobody", None, 201, 300)]
        rows = healed(alone)
        assert [row["sequence"] for row in rows if row["status"] == "ok"] == [*range(1, 201), *range(301, 501)]
        assert [row["sequence"] for row in rows if row["status"] == "lost"] == list(range(201, 301))

    def range_of(self, path: Path, number: int) -> tuple[int, int]:
        with closing(open_reader(path)) as reader:
            for segment in reader.segments:
                if 0 in segment.frame_indexes and segment.frame_indexes[0].covering(number, number):
                    return segment.frame_indexes[0].first, segment.frame_indexes[0].last
        raise AssertionError(number)


class TestOneJournal:
    def test_a_number_with_two_payloads_in_one_journal_is_found(self, write_journal: WriteJournal) -> None:
        records = [1, 2, (4, b"four"), (5, b"five"), (4, b"four"), (5, b"other"), 3, 6]
        path = write_journal(records, group=1)
        assert told(found([origin("a", path)])) == [("payload", None, 5, 5)]
        rows = {row["sequence"]: row for row in healed([origin("a", path)])}
        assert (rows[4]["status"], rows[4]["payload"]) == ("ok", b"four")
        assert (rows[5]["status"], rows[5]["payload"], rows[5]["journal"]) == ("quarantined", None, None)
        [part] = parts([origin("a", path)])
        versions = [row for batch in tables.quarantine_batches(Comparison(part, 0)) for row in batch.to_pylist()]
        assert [(row["sequence"], row["segment"], row["payload"]) for row in versions] == [
            (5, "0000000001.log", b"five"),
            (5, "0000000001.log", b"other"),
        ]

    def test_records_received_out_of_order_are_no_finding(self, write_journal: WriteJournal) -> None:
        late = [Record(STREAM, 0, number, START + number * 1_000 + 3 * SECOND, b"late") for number in range(40, 50)]
        path = write_journal([*range(1, 40), *range(50, 100), *late], group=7)
        assert found([origin("a", path)]) == []

    def test_an_epoch_that_continues_after_a_later_one_began_is_found(self, write_journal: WriteJournal) -> None:
        path = write_journal(
            [Record(STREAM, 1, number, START + number * 40 * SECOND, b"") for number in range(1, 6)], epoch=1
        )
        write_journal([Record(STREAM, 2, 1, START + 100 * SECOND, b"")], epoch=2, path=path)
        assert told(found([origin("a", path)])) == [("epoch", "a", 5, 5)]

    def test_a_sealed_segment_with_unordered_frames_is_found(
        self, write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write_journal([*range(100, 200), *range(1, 100)], group=50, begin=1)
        monkeypatch.setattr("fyrehose_twisted.journal.format.segment.Segment.ordered", True)
        runs = found([origin("a", path)])
        assert told(runs) == [("segment", "a", 1, 99)]
        assert found([origin("a", path)], 20) == runs

    def test_payloads_of_any_size_and_content_are_compared(self, write_journal: WriteJournal) -> None:
        large = [(number, bytes([number]) * 65_478) for number in range(1, 40)]
        path, other = write_journal(large), write_journal([*large[:20], (21, b"\xff" * 65_478), *large[21:]])
        both = [origin("a", path), origin("b", other)]
        assert told(found(both)) == [("payload", None, 21, 21)]
        assert [row["payload"] for row in healed(both)] == [
            None if number == 21 else payload for number, payload in large
        ]


class TestSeveral:
    def test_an_empty_journal_differs_from_a_filled_one(self, write_journal: WriteJournal, tmp_path: Path) -> None:
        both = [origin("a", write_journal(range(1, 11))), origin("empty", write_journal([]))]
        assert told(found(both)) == [("after", "empty", 1, 10)]
        assert found(both[1:]) == []

    def test_epochs_missing_in_a_journal_are_found(self, write_journal: WriteJournal) -> None:
        path = write_journal([Record(STREAM, 1, 1, START, b"")], epoch=1)
        write_journal([Record(STREAM, 2, 1, START, b"")], epoch=2, path=path)
        late = write_journal([Record(STREAM, 2, 1, START, b"")], epoch=2)
        early = write_journal([Record(STREAM, 1, 1, START, b"")], epoch=1)
        runs = found([origin("a", path), origin("late", late), origin("early", early)])
        assert told(runs) == [("after", "early", 1, 1), ("before", "late", 1, 1)]

    def test_records_dropped_during_a_verification_are_found(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 301), group=50, segment_bytes=2_000)
        good = origin("good", write_journal(range(1, 301)))
        planned = parts([origin("trimmed", path), good], 100)
        config = JournalConfig(segment_bytes=2_000, retention=Retention(size=6_000))
        with closing(Journal(LocalDirectory(path), STREAM, config=config)) as journal:
            assert journal.trim()
            bounds = journal.bounds(0)
        assert bounds is not None
        assert 50 < bounds.first < 300
        origins_module._readers.clear()
        runs = [
            run
            for part in planned
            for some in Comparison(part, 0).runs()
            for run in some
            if isinstance(run, FindingRun)
        ]
        assert told(list(merge_runs(runs))) == [("before", "trimmed", 1, bounds.first - 1)]

    def test_verification_without_its_journal_directory_is_an_error(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        [part] = parts([origin("a", path)])
        moved = [replace(share, location=origin("a", path.parent / "gone")) for share in part.shares]
        with pytest.raises(JournalError, match="gone on this machine"):
            list(Comparison(replace(part, shares=tuple(moved)), 0).runs())

    @pytest.mark.parametrize("same", ["name", "place"])
    def test_verification_of_one_journal_twice_is_refused(self, write_journal: WriteJournal, same: str) -> None:
        path, other = write_journal([1]), write_journal([1])
        two = [origin("a", path), origin("a", other) if same == "name" else origin("b", path / "." / "..")]
        if same == "place":
            two[1] = origin("b", path.parent / path.name / ".")
        with pytest.raises(ConfigurationError, match="given twice"):
            find_extents(two)

    def test_verification_without_journals_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="name at least one"):
            find_extents([])


@pytest_twisted.ensureDeferred
async def test_remote_journals_are_verified(write_journal: WriteJournal) -> None:
    from twisted.internet import reactor

    path, other = write_journal(range(1, 301)), write_journal(range(51, 301), lost=[(301, 320)])
    readers = {STREAM: open_reader(path)}
    factory = JournalServerFactory(lambda: readers, None)
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")  # type: ignore[attr-defined]

    def compare() -> list[FindingRun]:
        served = locations_on_server(f"127.0.0.1:{port.getHost().port}", name="served")
        return found([*served, origin("file", other)], 100)

    try:
        runs = await deferToThread(compare)
    finally:
        await port.stopListening()
        readers[STREAM].close()
    assert told(runs) == [
        ("after", "served", 301, 320),
        ("before", "file", 1, 50),
        ("lost", "file", 301, 320),
        ("nobody", None, 301, 320),
    ]


@pytest_twisted.ensureDeferred
async def test_a_remote_journal_that_ends_at_damage_has_a_finding(write_journal: WriteJournal) -> None:
    from twisted.internet import reactor

    path = write_journal(range(1, 301), group=100)
    (file,) = path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[data.find(b"message 250")] ^= 1
    file.write_bytes(data)
    readers = {STREAM: open_reader(path)}
    port = reactor.listenTCP(0, JournalServerFactory(lambda: readers, None), interface="127.0.0.1")  # type: ignore[attr-defined]
    place = f"127.0.0.1:{port.getHost().port}"
    try:
        with pytest.raises(JournalDamaged, match=f"{place}/{file.name}, .* numbers 201 to 300"):
            await deferToThread(lambda: find_extents(locations_on_server(place)))
        with pytest.raises(JournalDamaged, match="numbers 201 to 300"):
            await deferToThread(lambda: epoch_ranges(read_options({"journal": place}, streaming=False)))
        given = {"journal": place, "failOnDataLoss": "false"}
        (lane,) = await deferToThread(lambda: epoch_ranges(read_options(given, streaming=False)))
        assert lane.next == 201
    finally:
        await port.stopListening()
        readers[STREAM].close()


@pytest.fixture
def replicas(write_journal: WriteJournal) -> list[JournalLocation]:
    """Return two journals with every kind of finding in one stream, and a second stream in one of them."""

    def record(number: int, payload: bytes | None = None, late: int = 0) -> Record:
        when = START + number * 1_000 - late * SECOND
        return Record(STREAM, 0, number, when, b"%d" % number if payload is None else payload)

    some = [record(number) for number in range(1, 1_001) if not 395 <= number <= 410]
    others = [
        record(number, b"\xff\xfe" if number in (299, 300, 301) else None, 100 if number == 501 else 0)
        for number in range(51, 901)
        if not 195 <= number <= 206 and not 400 <= number <= 405
    ]
    first = write_journal(some, lost=[(395, 410)])
    second = write_journal(others, lost=[(195, 206), (400, 405)], begin=51)
    alone = write_journal([Record("fyrehose://alone", 0, 1, START, b"")], stream="fyrehose://alone")
    return [origin("a", first), origin("b", second), origin("a", alone, "fyrehose://alone")]


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_spark_findings_do_not_depend_on_the_split_into_ranges(spark: Any, replicas: list[JournalLocation]) -> None:
    with Verification(spark, replicas, rows_per_partition=300) as verification:
        findings = verification.findings().collect()
        assert {(row.kind, row.reason, row.journal, row["first"], row["last"], row["count"]) for row in findings} == {
            ("missing", "lost", "a", 395, 410, 16),
            ("missing", "before", "b", 1, 50, 50),
            ("missing", "lost", "b", 195, 206, 12),
            ("missing", "lost", "b", 400, 405, 6),
            ("missing", "after", "b", 901, 1_000, 100),
            ("missing", "nobody", None, 400, 405, 6),
            ("divergence", "payload", None, 299, 301, 3),
            ("clock", "backwards", "b", 501, 501, 1),
        }
        assert {row.detail for row in findings} == {None, "b differs from a", "by 99.999000 s"}
        summary = summary_of(verification)
        tables_of = [rows_of(frame) for frame in (verification.healed(), verification.quarantine())]
    with Verification(spark, replicas) as whole:
        assert rows_of(whole.findings()) == sorted((tuple(row) for row in findings), key=str)
        assert rows_of(whole.healed()) == tables_of[0]
    assert (summary["status"], summary["numbers"], summary["healed"]) == (2, 1_001, 1_001 - 6 - 3)
    assert [(one["journal"], one["records"], one["lost"], one["before"]) for one in summary["journals"]] == [
        ("a", 1, 0, 0),
        ("a", 984, 16, 0),
        ("b", 832, 18, 50),
    ]
    assert summary["findings"]["missing/lost"]["numbers"] == 34
    assert json.loads(json.dumps(summary)) == summary
    counted: dict[str, int] = {}
    for row in tables_of[0]:
        counted[row[5]] = counted.get(row[5], 0) + 1
    assert counted == {"ok": 992, "lost": 6, "quarantined": 3}
    assert len(tables_of[1]) == 6


def test_no_file_stays_open_after_a_verified_range(write_journal: WriteJournal) -> None:
    paths = [write_journal(range(1, 301), group=50, segment_bytes=4_096) for _ in range(2)]
    (part,) = parts([origin(str(number), path) for number, path in enumerate(paths)])

    def open_files() -> set[str]:
        links = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        there = {str(link.readlink()) for link in links if link.exists()}
        return {name for name in there if any(name.startswith(str(path)) for path in paths)}

    with closing(Comparison(part, TOLERANCE)) as comparison:
        assert list(comparison.runs())
        assert open_files()
    assert not open_files()
