"""All files of a journal on a failing disk: opening it reports damage or refuses, and no record is read that was not
written.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from random import Random

from fuzz.choices import Choices
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk

STREAM = "fyrehose://127.0.0.1:2323"
CONFIG = JournalConfig(segment_bytes=600)
REPLACE, FLIP, CUT, MOVE, REMOVE, COPY = range(6)
"""Faults of a file."""
NAMES = (
    "0000000003.log",
    "0000000009.seg",
    "0000000009.idx",
    "0000000001.idx",
    "durable",
    "x.tmp",
    "\u0661" * 10 + ".seg",
)


@cache
def _written() -> tuple[dict[str, bytes], dict[int, bytes]]:
    """Return the files of a journal, partly compacted and indexed, and its records."""
    disk = Disk(Random(1))
    journal = Journal(disk, STREAM, config=CONFIG, tag=7, clock=lambda: 1.0)
    journal.begin(0, 1)
    kept: dict[int, bytes] = {}
    for first in (*range(1, 30, 3), 40, 43, 35):
        records = [Record(STREAM, 0, number, 1_000 + number, b"%d" % number * 4) for number in range(first, first + 3)]
        journal.append(records)
        kept |= {record.sequence: record.payload for record in records}
        journal.commit()
    journal.lose(0, 31, 32)
    journal.commit()
    journal.close()
    reopened = Journal(disk, STREAM, config=CONFIG)
    reopened.close()
    files = {}
    for name in disk.names():
        file = disk.open(name)
        files[name] = bytes(file.read(0, file.size()))
        file.close()
    return files, kept


def seeds() -> Iterable[bytes]:
    """Return faults of files."""
    files = list(_written()[0])
    yield b""
    for place, (name, content) in enumerate(_written()[0].items()):
        for offset in range(0, len(content), 160):
            yield bytes((place, FLIP)) + offset.to_bytes(2, "big") + b"\x10"
        yield bytes((place, CUT)) + (len(content) // 2).to_bytes(2, "big")
        yield bytes((place, REMOVE))
        yield bytes((place, MOVE)) + b"\0\x40\0\x80\x60"
        yield bytes((place, COPY, len(name) % len(NAMES)))
        yield bytes((place, REPLACE)) + content[:200]
    yield bytes((len(files), REPLACE)) + b"nothing"


def one(data: bytes) -> None:
    """Damage files, open the journal and read it, twice; then read it like another process."""
    original, kept = _written()
    files, choices = {name: bytearray(content) for name, content in original.items()}, Choices(data)
    while choices:
        _damage(files, choices)
    disk = Disk(Random(1))
    for name, content in files.items():
        file = disk.open(name, create=True)
        file.write(0, bytes(content))
        file.close()
    for _ in range(2):
        try:
            journal = Journal(disk, STREAM, config=CONFIG, clock=lambda: 2.0)
        except JournalError:
            break
        _read(journal, kept)
        journal.recovery.messages()
        journal.close()
    try:
        reader = JournalReader(disk)
    except JournalError:
        return
    _read(reader, kept)
    reader.close()


def _damage(files: dict[str, bytearray], choices: Choices) -> None:
    names = sorted(files)
    name = choices.one_of([*names, NAMES[-1]])
    content = files.setdefault(name, bytearray())
    match choices.number() % 6:
        case 0:  # REPLACE
            content[:] = choices.rest()
        case 1:  # FLIP
            offset = choices.number(2)
            if content:
                content[offset % len(content)] ^= choices.number()
        case 2:  # CUT
            del content[choices.number(2) :]
        case 3:  # MOVE
            start, to, size = choices.number(2), choices.number(2), choices.number()
            content[to : to + size] = content[start : start + size]
        case 4:  # REMOVE
            del files[name]
        case _:  # COPY
            files[choices.one_of(NAMES)] = bytearray(content)


def _read(journal: Journal | JournalReader, kept: dict[int, bytes]) -> None:
    for epoch in journal.epochs():
        bounds = journal.bounds(epoch)
        assert bounds is not None
        span = epoch, bounds.first, 2**63 - 1
        for block in journal.read(*span, on_damage=str):
            for record in block.records():
                assert kept.get(record.sequence) == record.payload, f"{record} was never written"
        journal.losses(*span)
        list(journal.held(*span))
