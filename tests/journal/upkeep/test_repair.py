"""Repair of damaged journals, alone and from replicas."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.journal.errors import JournalError, JournalInUse
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.frames import HEADER, FramePosition, records_frame
from fyrehose_twisted.journal.format.index_file import encode
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.upkeep.check import check
from fyrehose_twisted.journal.upkeep.repair import repair
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"
TAG = 0x1234_5678
WRAP = 2**63


def records(sequences: Iterable[int], epoch: int = 0, mark: bytes = b"") -> list[Record]:
    return [Record(STREAM, epoch, one, 1_000 + one % 1_000, b"%d" % one + mark) for one in sequences]


def make(path: Path, *, tag: int = TAG, wrap: int = 0, add: int = 0, skip: Iterable[int] = (), to: int = 250) -> Path:
    """Return a journal of 1 to 250: two compacted segments of two frames each, and an open one."""
    path.mkdir()
    journal = Journal(LocalDirectory(path), STREAM, tag=tag, wrap=wrap)
    journal.config = type(journal.config)(frame_records=50)
    gone = set(skip)
    for first, last in ((1, 100), (101, 200), (201, to)):
        numbers = [(one + add) % wrap if wrap else one + add for one in range(first, last + 1) if one not in gone]
        journal.append(records(numbers))
        journal.commit()
        if last <= 200:
            journal.roll()
    journal.compact()
    journal.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make(tmp_path / "journal")


class RepairRun:
    def __init__(self, path: Path, *others: Path, **options: Any) -> None:
        self.lines: list[str] = []
        readers = [JournalReader(LocalDirectory(other)) for other in others]
        try:
            self.agreed = repair(LocalDirectory(path), others=readers, on_message=self.lines.append, **options)
        finally:
            for reader in readers:
                reader.close()

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)


def numbers_in(path: Path, epoch: int = 0) -> list[int]:
    """Return positions below the watermark."""
    with closing(JournalReader(LocalDirectory(path))) as reader:
        bounds = reader.bounds(epoch)
        assert bounds is not None
        blocks = list(reader.read(epoch, bounds.first, 2**64 - 2))
        for block in blocks:
            for sequence, payload in zip(block.sequences.tolist(), block.payloads(), strict=True):
                assert payload == b"%d" % sequence
        return [position for block in blocks for position in block.positions.tolist()]


def is_good(path: Path, *gone: tuple[int, int]) -> bool:
    """Tell whether nothing is damaged except for missing numbers."""
    told = [finding.text for finding in check(LocalDirectory(path)).findings if finding.damage]
    return told == [
        f"durable, numbers {first} to {last} of epoch 0: once durable, but no segment holds them now"
        for first, last in gone
    ]


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def spoil(path: Path, number: int, *, body: bool = True, frame: int = 0) -> None:
    with closing(JournalReader(LocalDirectory(path))) as reader:
        segment = next(one for one in reader.segments if one.number == number)
        header = list(segment.frame_indexes[0])[frame]
    flip(path / segment.name, header.offset + (HEADER.size + 30 if body else 20))


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "lock"}


def test_repair_does_not_change_a_good_journal(path: Path) -> None:
    before = content(path)
    repair_run = RepairRun(path)
    assert repair_run.agreed
    assert repair_run.lines == [f"{STREAM} now has epoch 0 from 1 to 250, 250 records"]
    assert content(path) == before


@pytest.mark.parametrize("body", [True, False])
def test_repair_removes_a_damaged_frame_and_keeps_the_original_file(path: Path, body: bool) -> None:
    spoil(path, 2, body=body)
    damaged = (path / "0000000002.seg").read_bytes()
    repair_run = RepairRun(path)
    assert repair_run.agreed
    assert repair_run.said("lost from 0000000002.seg in epoch 0: 101 to 150")
    assert repair_run.said(
        "done: rewrite 0000000002.seg without its damaged parts; the original is in 0000000002.seg.dam"
    )
    assert repair_run.lines[-1] == f"{STREAM} now has epoch 0 from 1 to 250, 200 records, 50 missing: 101 to 150"
    assert (path / "0000000002.seg.damaged").read_bytes() == damaged
    assert is_good(path, (101, 150))
    assert numbers_in(path) == list(range(1, 101))
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        assert journal.append(records(range(101, 151))) == 0
        assert journal.counters.spent == 50
        assert journal.append(records(range(101, 151)), authoritative=True) == 50
    assert numbers_in(path) == list(range(1, 251))


def test_a_second_repair_keeps_both_original_files(path: Path) -> None:
    for _ in range(2):
        spoil(path, 2)
        RepairRun(path)
    assert {"0000000002.seg.damaged", "0000000002.seg.damaged2"} <= set(content(path))
    assert is_good(path, (101, 200))


def test_repair_seals_a_damaged_last_segment(path: Path) -> None:
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        journal.append(records(range(251, 261)))
    spoil(path, 3)
    RepairRun(path)
    assert {"0000000003.log.damaged", "0000000003.seg", "0000000004.log"} <= set(content(path))
    assert "0000000003.log" not in content(path)
    assert is_good(path, (201, 250))
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        assert len(journal.recovery.messages()) == 1
        assert list(journal.held(0, 0, 999)) == [(1, 200), (251, 260)]


class TestHeaders:
    @pytest.mark.parametrize("name", ["0000000001.seg", "0000000003.log"])
    def test_repair_restores_a_header_from_other_segments(self, path: Path, name: str) -> None:
        flip(path / name, 40)
        RepairRun(path)
        assert is_good(path)
        assert numbers_in(path) == list(range(1, 251))

    def test_repair_without_an_intact_header_requires_the_stream(self, path: Path) -> None:
        for name in ("0000000001.seg", "0000000002.seg", "0000000003.log"):
            flip(path / name, 40)
        with pytest.raises(JournalError, match="no segment header names the stream; give it with --stream"):
            RepairRun(path)
        RepairRun(path, stream=STREAM)
        assert is_good(path)
        assert numbers_in(path) == list(range(1, 251))

    def test_repair_refuses_another_stream_than_given(self, path: Path) -> None:
        with pytest.raises(JournalError, match="is the journal of fyrehose://test, not of fyrehose://x"):
            RepairRun(path, stream="fyrehose://x")

    def test_repair_moves_a_segment_without_frames_aside(self, path: Path) -> None:
        (path / "0000000002.seg").write_bytes(bytes(5_000))
        RepairRun(path)
        assert (path / "0000000002.seg.damaged").read_bytes() == bytes(5_000)
        assert is_good(path, (101, 200))

    def test_repair_refuses_a_segment_of_another_journal(self, path: Path, tmp_path: Path) -> None:
        other = make(tmp_path / "other", tag=9)
        shutil.copy(other / "0000000002.seg", path)
        with pytest.raises(JournalError, match=r"belongs to another journal .* move it out of the directory"):
            RepairRun(path)


class TestMinorRepairs:
    def test_repair_truncates_a_torn_end(self, path: Path) -> None:
        log = path / "0000000003.log"
        size = log.stat().st_size
        with open(log, "ab") as file:
            file.write(b"torn")
        repair_run = RepairRun(path)
        assert log.stat().st_size == size
        assert repair_run.said("done: cut 4 incomplete bytes off 0000000003.log")
        assert is_good(path)

    def test_repair_rebuilds_index_files(self, path: Path) -> None:
        good = (path / "0000000001.idx").read_bytes()
        segments = check(LocalDirectory(path)).segments
        segments[1].frame_indexes[0].held.discard(40, 42)
        (path / "0000000001.idx").write_bytes(encode(segments[1]))
        (path / "0000000002.idx").unlink()
        repair_run = RepairRun(path)
        assert (path / "0000000001.idx").read_bytes() == good
        assert repair_run.said("done: rebuild 0000000001.idx: it does not match 0000000001.seg")
        assert repair_run.said("done: rebuild 0000000002.idx: it is missing")
        assert check(LocalDirectory(path)).findings == []

    def test_repair_restores_the_durable_position_and_removes_leftovers(self, path: Path) -> None:
        flip(path / "durable", 20)
        for name in ("0000000001.log", "0000000002.seg.tmp", "0000000009.idx"):
            (path / name).write_bytes(b"x")
        repair_run = RepairRun(path)
        assert repair_run.said("done: remove 0000000002.seg.tmp, left over from a crash")
        assert check(LocalDirectory(path)).findings == []

    def test_repair_sorts_unordered_compacted_segments(self, path: Path) -> None:
        file = path / "0000000002.seg"
        for number in (252, 251):
            _, frame = records_frame(FramePosition(2, file.stat().st_size, TAG), 0, [number], [1], [b"%d" % number])
            file.write_bytes(file.read_bytes() + frame)
        assert not is_good(path)
        RepairRun(path)
        assert is_good(path)
        assert numbers_in(path) == list(range(1, 253))

    def test_repair_is_refused_while_a_writer_has_the_lock(self, path: Path) -> None:
        with closing(Journal(LocalDirectory(path), STREAM)), pytest.raises(JournalInUse, match="stop that first"):
            RepairRun(path)

    def test_a_dry_run_of_repair_changes_nothing(self, path: Path, tmp_path: Path) -> None:
        other = make(tmp_path / "other", tag=9)
        spoil(path, 2)
        (path / "0000000009.seg.tmp").write_bytes(b"x")
        before = content(path)
        repair_run = RepairRun(path, other, dry_run=True)
        assert content(path) == before
        assert repair_run.said("to do: rewrite 0000000002.seg")
        assert repair_run.said("to do: copy 50 records of 101 to 150 of epoch 0")
        assert not repair_run.said("done:")


class TestReplicas:
    def test_repair_copies_gaps_and_later_records_from_a_replica(self, path: Path, tmp_path: Path) -> None:
        other = make(tmp_path / "other", tag=9, to=300)
        spoil(path, 2)
        repair_run = RepairRun(path, other)
        assert repair_run.agreed
        assert repair_run.said("done: copy 50 records of 101 to 150 of epoch 0 from")
        assert repair_run.said("done: copy 50 records of 251 to 300 of epoch 0 from")
        assert numbers_in(path) == list(range(1, 301))

    def test_repair_copies_nothing_from_a_replica_with_a_conflict_before_the_gap(
        self, path: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        with closing(Journal(LocalDirectory(other), STREAM)) as journal:
            journal.append([*records(range(1, 100)), *records([100], mark=b"!"), *records(range(101, 300))])
        spoil(path, 2)
        repair_run = RepairRun(path, other)
        assert not repair_run.agreed
        assert repair_run.said("differs at number 100 of epoch 0; nothing is copied from it")
        assert numbers_in(path) == list(range(1, 101))

    def test_repair_reports_a_conflict_after_the_gap(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        with closing(Journal(LocalDirectory(other), STREAM)) as journal:
            journal.append([*records(range(101, 151)), *records([151], mark=b"!"), *records(range(152, 200))])
        spoil(path, 2)
        assert RepairRun(path, other).said("differs at number 151 of epoch 0")

    def test_repair_copies_nothing_from_a_replica_without_common_records(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        with closing(Journal(LocalDirectory(other), STREAM)) as journal:
            journal.append(records(range(101, 151)))
        spoil(path, 2)
        repair_run = RepairRun(path, other)
        assert not repair_run.agreed
        assert repair_run.said("shares no record near the missing ones")

    def test_repair_copies_only_durable_and_adjoining_records(self, path: Path, tmp_path: Path) -> None:
        holey = make(tmp_path / "holey", tag=9, skip=[120])
        far = tmp_path / "far"
        far.mkdir()
        with closing(Journal(LocalDirectory(far), STREAM)) as journal:
            journal.append(records(range(300, 310)))
        spoil(path, 2)
        repair_run = RepairRun(path, holey, far)
        assert repair_run.said("begins epoch 0 at 300, but this journal ends at 250; not copied")
        assert numbers_in(path) == list(range(1, 120))

    def test_repair_combines_several_replicas(self, path: Path, tmp_path: Path) -> None:
        first = make(tmp_path / "first", tag=9, skip=[120])
        with closing(Journal(LocalDirectory(first), STREAM)) as journal:
            journal.lose(0, 120, 120)
        second = make(tmp_path / "second", tag=8)
        spoil(path, 2)
        shutil.copytree(path, tmp_path / "twin")
        repair_run = RepairRun(path, first, second)
        assert repair_run.said("copy 1 record of 120 of epoch 0")
        assert not repair_run.said("declare lost")
        assert numbers_in(path) == list(range(1, 251))
        # A loss declared by the only other replica is declared here too.
        repair_run = RepairRun(tmp_path / "twin", first)
        assert repair_run.said("done: declare lost in epoch 0, as others do: 120")
        assert numbers_in(tmp_path / "twin") == [*range(1, 120), *range(121, 251)]

    def test_repair_copies_later_epochs_of_a_replica(self, path: Path, tmp_path: Path) -> None:
        other = make(tmp_path / "other", tag=9)
        with closing(Journal(LocalDirectory(other), STREAM)) as journal:
            journal.append(records(range(7, 10), epoch=2))
        RepairRun(path, other)
        assert numbers_in(path, 2) == [7, 8, 9]
        stranger = tmp_path / "stranger"
        stranger.mkdir()
        with closing(Journal(LocalDirectory(stranger), STREAM)) as journal:
            journal.append(records(range(7, 10), epoch=3))
        assert not RepairRun(path, stranger).agreed

    def test_repair_refuses_a_replica_of_another_stream(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        Journal(LocalDirectory(other), "fyrehose://other").close()
        with pytest.raises(JournalError, match="is the journal of fyrehose://other"):
            RepairRun(path, other)

    def test_repair_copies_wrapping_numbers_at_different_positions(self, tmp_path: Path) -> None:
        path = make(tmp_path / "journal", wrap=WRAP, add=WRAP - 60)
        other = tmp_path / "other"
        other.mkdir()
        with closing(Journal(LocalDirectory(other), STREAM, wrap=WRAP)) as journal:  # The replica began after the wrap.
            journal.append(records(range(240)))
            journal.lose(0, 240, 243)
        spoil(path, 2)  # The frame of 41 to 90.
        repair_run = RepairRun(path, other)
        assert repair_run.agreed, repair_run.lines
        assert numbers_in(path) == list(range(WRAP - 59, WRAP + 240))
        with closing(JournalReader(LocalDirectory(path))) as reader:
            assert reader.losses(0, WRAP, 2 * WRAP - 2) == [(WRAP + 240, WRAP + 243)]


class Cut(Exception):
    """A simulated power failure."""


class Failing(LocalDirectory):
    """A directory that fails before its change of a given number."""

    def __init__(self, path: Path, fails_at: int) -> None:
        super().__init__(path)
        self.left = fails_at

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Cut

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._step()
        super().remove(name)

    def sync(self) -> None:
        self._step()
        super().sync()


@pytest.mark.parametrize("spoilt", [2, 3])
def test_an_interrupted_repair_leaves_a_journal_that_opens(path: Path, tmp_path: Path, spoilt: int) -> None:
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        journal.append(records(range(251, 261)))
    spoil(path, spoilt)
    damaged = (path / f"000000000{spoilt}.{'seg' if spoilt == 2 else 'log'}").read_bytes()
    gone = set(range(101, 151)) if spoilt == 2 else set(range(201, 251))
    for fails_at in range(100):
        copy = tmp_path / f"copy{fails_at}"
        shutil.copytree(path, copy)
        tell: Callable[[str], object] = [].append
        try:
            repair(Failing(copy, fails_at), on_message=tell)
        except Cut:
            pass
        else:
            assert fails_at > 4
            break
        assert damaged in content(copy).values()
        with closing(Journal(LocalDirectory(copy), STREAM)) as journal:
            found = [one for block in journal.read(0, 1, 999, [].append) for one in block.positions.tolist()]
            assert found == [one for one in range(1, 261) if one not in gone]
        assert damaged in content(copy).values()
        RepairRun(copy)
        assert is_good(copy, (min(gone), max(gone)))
