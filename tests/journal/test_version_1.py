"""Compatibility with journals of version 1: a stored one beside this file, and documented bytes.

``python tests/journal/test_version_1.py DIRECTORY`` makes such a journal anew; the one that is kept never changes.
"""

from __future__ import annotations

import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.journal.compaction import compact
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

STREAM = "fyrehose://version-1"
KEPT = Path(__file__).parent / "version-1"
CREATED_AT = 1_700_000_000.0
DIGEST = "229e834e392239f3da58314e78dc06d2d4daa3152cc6730975cbd0f525a66cb7"


def record(sequence: int, epoch: int = 3) -> Record:
    """Return a record; every fifth is empty."""
    payload = b"" if sequence % 5 == 0 else b"%d of %d;" % (sequence, epoch) * (sequence % 7)
    return Record(STREAM, epoch, sequence, 1_700_000_000_000_000 + sequence, payload)


def make(path: Path) -> None:
    """Write a journal with every element of the format."""
    config = JournalConfig(segment_bytes=1_400, frame_records=16, retention=Retention(size=8_500))
    journal = Journal(LocalDirectory(path), STREAM, tag=0xF15EF15E, config=config, clock=lambda: CREATED_AT)
    journal.begin(3, 100)
    for low in range(100, 300, 10):
        numbers = [number for number in range(low, low + 10) if number not in (205, 206, 207, 255)]
        journal.append([record(number) for number in reversed(numbers)])
        if low == 270:
            journal.append([record(255)])
        if low == 230:
            journal.lose(3, 205, 207)
        journal.commit()
    journal.append([record(number, 4) for number in (7, 8, 9, 12, 5_000)])
    journal.commit()
    journal.trim()
    segments = journal.sealed_segments()
    if len(segments) < 3:
        raise SystemExit(f"only {len(segments)} segments are full")
    for segment in segments[:2]:
        journal.install_compacted(compact(journal.directory, segment, config.frame_records))
    journal.append([record(number, 4) for number in (10, 13)])
    journal.close()


def digest(journal: Any) -> str:
    found = sha256()
    for epoch in journal.epochs():
        bounds = journal.bounds(epoch)
        for block in journal.read(epoch, bounds.first, bounds.next - 1):
            for one in block.records():
                found.update(repr(tuple(one)).encode())
    return found.hexdigest()


def positions(journal: Any, epoch: int) -> list[int]:
    first = journal.bounds(epoch).first
    return [position for block in journal.read(epoch, first, 2**63) for position in block.positions.tolist()]


@pytest.fixture(params=["reader", "journal"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return the stored journal, open for reading in place or for writing as a copy."""
    if request.param == "reader":
        opened: Any = open_reader(KEPT)
    else:
        copy = tmp_path / "copy"
        shutil.copytree(KEPT, copy)
        opened = Journal(LocalDirectory(copy), STREAM)
        assert opened.recovery.messages() == []
        assert opened.catalog.tag == 0xF15EF15E
    yield opened
    opened.close()


FIRST = 160
"""Beginning of epoch 3 after retention."""


def test_the_stored_version_1_journal_has_all_kinds_of_files() -> None:
    suffixes = sorted(path.suffix for path in KEPT.iterdir() if path.name != "lock")
    assert suffixes.count(".seg") == suffixes.count(".idx") == 2
    assert suffixes.count(".log") >= 1
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 40_000


def test_a_version_1_journal_has_its_recorded_bounds(kept: Any) -> None:
    assert kept.stream == STREAM
    assert kept.epochs() == [3, 4]
    assert kept.bounds(3) == Bounds(FIRST, 300, 299)
    assert kept.bounds(4) == Bounds(7, 11, 5_000)
    assert kept.get(3, FIRST - 1) is None


def test_a_version_1_journal_has_its_recorded_records(kept: Any) -> None:
    assert digest(kept) == DIGEST
    assert positions(kept, 3) == [number for number in range(FIRST, 300) if number not in (205, 206, 207)]
    assert positions(kept, 4)[:4] == [7, 8, 9, 10]
    assert kept.get(3, 255) == Record(STREAM, 3, 255, 1_700_000_000_000_255, b"")
    assert kept.get(3, 254) == Record(STREAM, 3, 254, 1_700_000_000_000_254, b"254 of 3;254 of 3;")
    assert kept.get(4, 8) == Record(STREAM, 4, 8, 1_700_000_000_000_008, b"8 of 4;")
    assert [kept.get(3, number) for number in range(FIRST, 205)] == [record(number) for number in range(FIRST, 205)]


def test_a_version_1_journal_has_its_recorded_losses(kept: Any) -> None:
    assert kept.losses(3, 0, 10_000) == [(205, 207)]
    assert kept.losses(4, 0, 10_000) == []
    with pytest.raises(NotInJournal):
        kept.read(3, FIRST - 1, 300)


def test_writing_to_and_compacting_a_version_1_journal_keeps_its_records(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(KEPT, copy)
    journal = Journal(LocalDirectory(copy), STREAM)
    journal.append([record(11, 4), record(300), record(260)])
    journal.commit()
    journal.roll()
    journal.compact()
    journal.close()
    reader = JournalReader(LocalDirectory(copy))
    assert reader.bounds(4) == Bounds(7, 14, 5_000)
    assert positions(reader, 3) == [number for number in range(FIRST, 301) if number not in (205, 206, 207)]
    assert positions(reader, 4) == [7, 8, 9, 10, 11, 12, 13]
    reader.close()


SEGMENT = """
f74659524a524e4c 01000000 40000000  # header of the segment: magic, version 1, 64 bytes
1000000000000000 60e3160000000000   # numbers wrap at 16; made 1.5 s after 1970, in microseconds
04030201 0c00 01000000              # tag, length of the URI, number of the segment
66797265686f73653a2f2f61            # fyrehose://a
000000000000 9dea9d51               # zeros up to a multiple of 8, CRC-32

f746524d 01 03 0000 00000000 00000000   # a frame: magic, version 1, kind START, no flags, 0 entries, body of 0 bytes
0000000000000000 0000000000000000       # base, epoch
00000000 01000000 4000000000000000      # span, segment 1, offset 64
0000000000000000 04030201 00000000      # newest, tag, CRC-32 of the body
00000000 472d2d66                       # free, CRC-32 of the header

f746524d 01 03 0000 01000000 10000000   # START of 1 epoch, body of 16 bytes
0000000000000000 0000000000000000
00000000 01000000 8800000000000000      # offset 136
0000000000000000 04030201 5260fb23
00000000 81bd7171
0200000000000000 0500000000000000       # epoch 2 begins at 5

f746524d 01 01 0000 03000000 40000000   # RECORDS, not dense: 3 in a body of 64 bytes
0500000000000000 0200000000000000       # base 5, epoch 2
04000000 01000000 e000000000000000      # span 4: the last is 9; offset 224
0001000000000000 04030201 78692239      # newest 256
00000000 61f32d8e
0e00000000000000 0f00000000000000       # times 14, 15
0001000000000000                        # and 256
00000000 01000000 03000000 06000000     # where each payload begins, and the last ends
00000000 01000000 04000000              # positions, less the base
61 6162 78797a 000000000000             # payloads a, ab, xyz; zeros up to a multiple of 8

f746524d 01 02 0000 01000000 10000000   # LOST: 1 range
0700000000000000 0200000000000000       # base 7, epoch 2
00000000 01000000 6801000000000000      # offset 360
60e3160000000000 04030201 39ba871b      # noticed at 1.5 s
00000000 842ea46e
0700000000000000 0700000000000000       # from 7 to 7

f746524d 01 01 0100 02000000 20000000   # RECORDS, dense: 2 in a body of 32 bytes
0a00000000000000 0200000000000000       # base 10, epoch 2
01000000 01000000 c001000000000000      # span 1, offset 448
0100000000000000 04030201 2035f569      # newest 1
00000000 a11ebfd2
0100000000000000 0100000000000000       # times
00000000 00000000 00000000              # the payloads are empty
00000000                                # zeros up to a multiple of 8
"""


def test_a_version_1_segment_has_its_documented_bytes(tmp_path: Path) -> None:
    journal = Journal(LocalDirectory(tmp_path), "fyrehose://a", wrap=16, tag=0x01020304, clock=lambda: 1.5)
    journal.append([Record("fyrehose://a", 2, number, 9 + number, b"abc"[: number - 4]) for number in (5, 6)])
    journal.append([Record("fyrehose://a", 2, 9, 256, b"xyz")])
    journal.lose(2, 7, 7)
    journal.commit()
    journal.append([Record("fyrehose://a", 2, number, 1, b"") for number in (10, 11)])
    journal.commit()
    journal.close()
    lines = [line.split("#")[0] for line in SEGMENT.splitlines()]
    assert (tmp_path / "0000000001.log").read_bytes() == bytes.fromhex("".join(lines))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
