"""State file of a backbone: the last assigned number, which survives kill -9, and a bound, which survives power loss.

Layout, a page of 4,096 bytes, integers in the machine's byte order:

======  =====  ==============================================================
offset  bytes  content
======  =====  ==============================================================
0       8      magic ``FYRESEQ`` and version 1
8       8      byte order mark 0x0102030405060708
16      8      last assigned number
24      8      reserved bound: no number above it was assigned
32      16     boot id of the kernel under which ``last`` was written
48      2      length of the stream's URI
50      ...    the stream's URI, UTF-8
4092    4      CRC-32 of bytes 0-15 and 48-4091
4096    ...    the table of clients, see :mod:`~fyrehose_twisted.fyrehose.service.client_table_file`
======  =====  ==============================================================
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient, SequenceCheckpoint
from fyrehose_twisted.fyrehose.service.client_table_file import ClientTableFile
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.interfaces import IClientMemory, ISequenceStore
from fyrehose_twisted.process.boot_id import read_boot_id
from fyrehose_twisted.process.locked_file import lock, open_locked, state_file_errors, unusable

PAGE = 4_096
MAGIC = b"FYRESEQ\x01"
BYTE_ORDER_MARK = 0x0102030405060708
_LAST_WORD, _BOUND_WORD = 2, 3  # In words of 8 bytes.
_BOOT_ID = slice(32, 48)
_HEADER = struct.Struct("=8sQ")
_NUMBERS = struct.Struct("=QQ")
_NAME = struct.Struct("=H")
_IN_USE = "another backbone; give each its own --state"


@implementer(ISequenceStore, IClientMemory)
class SequenceFile:
    """Open, locked state file of a backbone.

    :ivar fresh: whether the file contains no number.
    :ivar hole: range of numbers skipped because a power failure may have lost the last assigned number, or ``None``.
    :ivar complete: whether the client table exists and is complete.
    :raises StateFileError: if the file is in use, is not a state file, or belongs to another stream.
    """

    def __init__(self, path: Path, stream: str, *, start_at: int | None = None, boot_id: bytes | None = None) -> None:
        self.path = path
        self.stream = stream
        self.hole: tuple[int, int] | None = None
        boot_id = boot_id or read_boot_id()
        self._file = open_locked(path, partial(_new_content, stream, boot_id), _IN_USE)
        try:
            with state_file_errors(path, "opened"):
                self._open(stream, start_at, boot_id)
        except BaseException:
            os.close(self._file)
            raise

    @staticmethod
    def check(path: Path, stream: str, *, start_at: int | None = None, boot_id: bytes | None = None) -> None:
        """Check an existing file without changes. Raises the errors of opening it."""
        with state_file_errors(path, "opened"):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                lock(descriptor, path, _IN_USE)
                page = os.pread(descriptor, PAGE, 0)
                _check_page(page, os.fstat(descriptor).st_size, path, stream)
                last, bound = _NUMBERS.unpack_from(page, 16)
                same_boot = page[_BOOT_ID] == (boot_id or read_boot_id())
                _check_start(start_at, last if same_boot else bound, path)
            finally:
                os.close(descriptor)

    def _open(self, stream: str, start_at: int | None, boot_id: bytes) -> None:
        _check_page(os.pread(self._file, PAGE, 0), os.fstat(self._file).st_size, self.path, stream)
        self._map = mmap.mmap(self._file, PAGE)
        # Each number is one aligned store of 8 bytes, so a process that dies leaves the old or the new number.
        self._words = memoryview(self._map).cast("Q")
        last, bound = self._words[_LAST_WORD], self._words[_BOUND_WORD]
        self.fresh = bound == 0 and start_at is None
        is_current = self._map[_BOOT_ID] == boot_id or bound == last
        if not is_current:
            self.hole = (last + 1, bound)
            last = bound
        try:
            _check_start(start_at, last, self.path)
        except StateFileError:
            self._unmap()
            raise
        if start_at is not None:
            last = start_at - 1
        self._words[_BOUND_WORD] = bound = max(last, bound)
        self._words[_LAST_WORD] = last
        self._map[_BOOT_ID] = boot_id
        try:
            self._table = ClientTableFile(self._file, PAGE)
        except OSError:
            self._unmap()
            raise
        self.complete = self._table.complete and is_current
        self._sync()
        self.last, self.bound = last, bound

    @property
    def clients(self) -> tuple[KnownClient, ...]:
        """Clients in the table."""
        return self._table.clients

    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISequenceStore.persist`. Syncs only when the bound moves."""
        if checkpoint.clients:
            self._update_clients(checkpoint.clients)
        if checkpoint.bound > self.bound:
            self._words[_BOUND_WORD] = checkpoint.bound
            self._sync()
            self.bound = checkpoint.bound
        self._words[_LAST_WORD] = self.last = checkpoint.last

    def close(self) -> None:
        """Store the last number also as the bound, so that the next start skips no numbers. Unlock the file."""
        self._words[_BOUND_WORD] = self.last
        try:
            self._sync()
            with state_file_errors(self.path, "written to disk"):
                self._table.flush()
        finally:
            self._table.close()
            self._unmap()
            os.close(self._file)

    def _update_clients(self, changes: Sequence[tuple[Address, KnownClient | None]]) -> None:
        with state_file_errors(self.path, "made longer"):
            for address, client in changes:
                if client is None:
                    self._table.remove(address)
                else:
                    self._table.put(client)

    def _sync(self) -> None:
        with state_file_errors(self.path, "written to disk"):
            self._map.flush()

    def _unmap(self) -> None:
        self._words.release()
        self._map.close()


def _new_content(stream: str, boot_id: bytes) -> bytes:
    """Return the content of a new file: the page of numbers and an empty client table."""
    name = stream.encode()
    page = bytearray(PAGE)
    _HEADER.pack_into(page, 0, MAGIC, BYTE_ORDER_MARK)
    page[_BOOT_ID] = boot_id
    _NAME.pack_into(page, 48, len(name))
    page[50 : 50 + len(name)] = name
    page[-4:] = struct.pack("=I", _checksum(page))
    return bytes(page) + bytes(PAGE)


def _check_start(start_at: int | None, last: int, path: Path) -> None:
    if start_at is not None and not last < start_at <= MAX_SEQUENCE:
        raise StateFileError(f"--start-at {start_at} would repeat numbers: the last one in state file {path} is {last}")


def _check_page(page: bytes, size: int, path: Path, stream: str) -> None:
    advice = "; restore it, or move it away and start with --start-at N, where N is above every number ever assigned"
    if not page:
        raise unusable(path, "it is empty", advice)
    if size < PAGE or size % PAGE or not page.startswith(MAGIC[:-1]):
        raise unusable(path, f"it was not written by a backbone ({size} bytes)", advice)
    _, order = _HEADER.unpack_from(page)
    if page[7] != MAGIC[7] or order != BYTE_ORDER_MARK:
        raise unusable(path, "it has another version or byte order", advice)
    last, bound = _NUMBERS.unpack_from(page, 16)
    if not last <= bound <= MAX_SEQUENCE:
        raise unusable(path, f"it is damaged (last number {last}, bound {bound})", advice)
    if _checksum(page) != struct.unpack("=I", page[-4:])[0]:
        raise unusable(path, "its checksum is wrong", advice)
    (length,) = _NAME.unpack_from(page, 48)
    found = page[50 : 50 + length].decode(errors="replace")
    if found != stream:
        raise unusable(path, f"it belongs to {found}, not to {stream}")


def _checksum(page: bytes | bytearray) -> int:
    return zlib.crc32(page[48:-4], zlib.crc32(page[:16]))
