"""State file of a subscriber: the next number to deliver, and the envelopes of the latest messages before it.

Layout, little-endian: magic ``FYREPLC`` and version 1; the next number (8 bytes); 1 if the message before it was
delivered, else 0 (4); CRC-32 of DATA of that message (4); for each run of recent envelopes its first number, publisher
id, first counter and length (8 each); CRC-32 of all preceding bytes (4).

Version 2 is written for sealed payloads. The number of runs (4) precedes them. After them follow, for each signer,
length and name (1, ...), the floor (8), and the number of windows (4); for each window the publisher id (16), the
latest time (8), the highest counter (8), the number of missing ranges (4), and their first and last counters (8 each).
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.process.locked_file import lock, state_file_errors, unusable, write_temporary
from fyrehose_twisted.repeats import EnvelopeRun
from fyrehose_twisted.sealing.replay import TableState, WindowState

MAGIC = b"FYREPLC\x01"
SEALED_MAGIC = b"FYREPLC\x02"
_HEADER = struct.Struct("<8sQII")
_CHECK = struct.Struct("<I")
_COUNT = struct.Struct("<I")
_TABLE = struct.Struct("<qI")
_WINDOW = struct.Struct("<16sQQI")
_RUN_BYTES = 32


class SubscriberPosition(NamedTuple):
    """Position of a subscriber in a stream.

    :ivar next: next number to deliver.
    :ivar checksum: CRC-32 of DATA of the message before it; ``None`` if that message is lost.
    :ivar runs: runs of envelopes before it, by which repeats are recognised.
    :ivar replay: windows of the publishers of sealed payloads, by which replays are recognised.
    """

    next: int
    checksum: int | None = None
    runs: tuple[EnvelopeRun, ...] = ()
    replay: tuple[TableState, ...] = ()


class PositionFile:
    """Locked state file of a subscriber with atomic updates.

    :ivar position: position read or written last; ``None`` for a new file.
    :raises StateFileError: if the file is in use, damaged, or not a state file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position: SubscriberPosition | None = None
        self._file: int | None = None
        with state_file_errors(path, "opened"):
            self._open()

    def write(self, position: SubscriberPosition) -> None:
        """Replace the content of the file durably.

        :raises StateFileError: if the file cannot be written. It is unchanged then.
        """
        with state_file_errors(self.path, "written"):
            file, temporary = write_temporary(self.path, _encode(position))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Before the file is visible to another process.
                os.rename(temporary, self.path)
            except BaseException:
                os.close(file)
                os.unlink(temporary)
                raise
        self.close()
        self._file, self.position = file, position

    def close(self) -> None:
        """Unlock the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        while self._file is None:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                # Of two processes that start at once, one finds the file that the other created and locked.
                with suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                continue
            try:
                lock(file, self.path, "another subscriber; give each its own --state")
                if os.fstat(file).st_ino != os.stat(self.path).st_ino:
                    os.close(file)
                    continue  # The file was replaced in the meantime.
                self.position = _decode(self.path, os.pread(file, os.fstat(file).st_size, 0))
            except BaseException:
                os.close(file)
                raise
            self._file = file


def runs_before(runs: Iterable[EnvelopeRun], number: int) -> tuple[EnvelopeRun, ...]:
    """Return the parts of runs before ``number``."""
    return tuple(run._replace(length=min(run.length, number - run.number)) for run in runs if run.number < number)


def _encode(position: SubscriberPosition) -> bytes:
    known = position.checksum is not None
    magic = SEALED_MAGIC if position.replay else MAGIC
    content = _HEADER.pack(magic, position.next, known, position.checksum or 0)
    if position.replay:
        content += _COUNT.pack(len(position.runs))
    content += np.array(position.runs, "<u8").tobytes() + b"".join(map(_encode_table, position.replay))
    return content + _CHECK.pack(zlib.crc32(content))


def _encode_table(table: TableState) -> bytes:
    name = table.signer.encode()
    parts = [bytes([len(name)]), name, _TABLE.pack(table.floor, len(table.windows))]
    for publisher, latest, highest, missing in table.windows:
        parts += [_WINDOW.pack(publisher, latest, highest, len(missing)), np.array(missing, "<u8").tobytes()]
    return b"".join(parts)


def _decode_tables(content: bytes) -> tuple[TableState, ...]:
    """Decode replay tables. :raises ValueError: if they are cut short."""
    tables = []
    offset = 0
    while offset < len(content):
        start = offset + 1
        offset = start + content[offset]
        signer = content[start:offset].decode()
        floor, count = _TABLE.unpack_from(content, offset)
        offset += _TABLE.size
        windows = []
        for _ in range(count):
            publisher, latest, highest, ranges = _WINDOW.unpack_from(content, offset)
            offset += _WINDOW.size
            missing = np.frombuffer(content, "<u8", 2 * ranges, offset).reshape(-1, 2).tolist()
            offset += 16 * ranges
            windows.append(WindowState(publisher, latest, highest, tuple(map(tuple, missing))))
        tables.append(TableState(signer, floor, tuple(windows)))
    return tuple(tables)


def _decode(path: Path, content: bytes) -> SubscriberPosition | None:
    if not content:
        return None  # A new file, before the first delivery.
    advice = "; move it away and pass the start position with --from"
    if len(content) < len(MAGIC) or content[:7] != MAGIC[:7]:
        raise unusable(path, "it was not written by a subscriber", advice)
    if content[:8] not in (MAGIC, SEALED_MAGIC):
        raise unusable(path, f"it has version {content[7]}", advice)
    is_sealed = content.startswith(SEALED_MAGIC)
    start = _HEADER.size + (_COUNT.size if is_sealed else 0)
    size = len(content) - start - _CHECK.size
    if size < 0 or _CHECK.unpack(content[-4:])[0] != zlib.crc32(content[:-4]):
        raise unusable(path, "it is damaged", advice)
    end = start + (_COUNT.unpack_from(content, _HEADER.size)[0] * _RUN_BYTES if is_sealed else size)
    try:
        rows = np.frombuffer(content[start:end], "<u8").reshape(-1, 4).tolist()
        replay = _decode_tables(content[end : -_CHECK.size])
    except (ValueError, struct.error, IndexError):
        raise unusable(path, "it is damaged", advice) from None
    _, number, known, checksum = _HEADER.unpack_from(content)
    if not 1 <= number <= MAX_SEQUENCE + 1:
        raise unusable(path, f"it is damaged (next number {number})", advice)
    return SubscriberPosition(number, checksum if known else None, tuple(EnvelopeRun(*row) for row in rows), replay)
