"""State file of a publisher: its id and the number of its published messages.

Layout, one page of 4,096 bytes, integers in the machine's byte order:

======  =====  ==============================================================
offset  bytes  content
======  =====  ==============================================================
0       8      magic ``FYREPUB`` and version 1
8       8      byte order mark 0x0102030405060708
16      8      publisher id
24      16     messages published (8), CRC-32 of them (4), CRC-32 of these (4)
40      16     the same; the higher one of the intact slots is valid
56      2      length of the stream's name
58      ...    the stream's name, UTF-8
4092    4      CRC-32 of bytes 0-23 and 56-4091
======  =====  ==============================================================
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.process.locked_file import open_locked, state_file_errors, unusable
from fyrehose_twisted.ranges import RangeSet

PAGE = 4_096
MAGIC = b"FYREPUB\x01"
BYTE_ORDER_MARK = 0x0102030405060708
MAX_NAME_BYTES = 1_024
SYNC_INTERVAL = 1.0
"""Minimum number of seconds between two syncs of the file to disk."""

_HEADER = struct.Struct("=8sQ8s")
_COUNT = struct.Struct("=QI")
_CHECK = struct.Struct("=I")
_NAME = struct.Struct("=H")
_SLOTS = 24, 40
_IN_USE = "another publisher, and two with one id would lose messages; give each its own --publisher-state"
_ADVICE = "; move it away to publish all messages from the first, under a new publisher id"


class PublisherState:
    """Open, locked state file of one :class:`~fyrehose_twisted.fyrehose.protocol.publisher.PublisherProtocol`.

    Messages are counted from 0, and the count is the counter in the envelope. The application continues with message
    :attr:`position`. It has to publish the same messages as before in the same order, because messages after
    :attr:`position` may be published already, and subscribers recognise them as repeats by their counter alone.

    The position survives ``kill -9``. A power failure may set it back by some seconds.

    :param stream: name of the stream, such as the address of the backbone. A list of addresses, separated by commas,
        fits a file for any of them.
    :ivar publisher: id of the publisher, 8 bytes.
    :ivar position: number of messages that are published without a gap.
    :ivar checksum: :func:`chain_checksum` of these messages.
    :raises StateFileError: if the file is in use, damaged, of another format, or of another stream.
    """

    def __init__(self, path: Path, stream: str) -> None:
        self.path = path
        self.stream = stream
        self._first_failed: int | None = None
        self._published_ahead = RangeSet()
        self._pending_checksums: deque[int] = deque()
        self._synced_at = 0.0
        self._file = open_locked(path, partial(_new_page, stream), _IN_USE)
        try:
            with state_file_errors(path, "opened"):
                page = os.pread(self._file, PAGE + 1, 0)
                self.publisher, self.position, self.checksum = _read_page(page, path, stream)
                self._map = mmap.mmap(self._file, PAGE)
        except BaseException:
            os.close(self._file)
            raise
        current = self.position, self.checksum
        self._next_slot = _SLOTS[0] if _read_slot(page, _SLOTS[0]) != current else _SLOTS[1]
        self._next_checksum = self.checksum

    def check(self) -> None:
        """Check that messages may still be published.

        :raises StateFileError: if a message failed. Messages after it would be too far ahead of it to be recognised as
            repeats when they are published again.
        """
        if self._first_failed is not None:
            raise StateFileError(
                f"message {self._first_failed:,} of state file {self.path} was not published, and none may follow it;"
                f" restart with message {self.position:,}"
            )

    def sent(self, messages: Sequence[bytes]) -> None:
        """Record messages that are about to be published."""
        for message in messages:
            self._next_checksum = chain_checksum(self._next_checksum, message)
            self._pending_checksums.append(self._next_checksum)

    def published(self, counters: Iterable[int], now: float) -> None:
        """Record published messages, and sync the file if it is due.

        :param now: time in seconds, of any clock.
        :raises StateFileError: if the file cannot be synced.
        """
        for counter in counters:
            self._published_ahead.add(counter)
        if not self._published_ahead or self._published_ahead.first > self.position:
            return
        _, last = next(iter(self._published_ahead))
        self._published_ahead.discard(0, last)
        for _ in range(last + 1 - self.position):
            self.checksum = self._pending_checksums.popleft()
        self.position = last + 1
        content = _COUNT.pack(self.position, self.checksum)
        # Alternate between the slots, so that a killed process leaves one of them intact.
        self._map[self._next_slot : self._next_slot + 16] = content + _CHECK.pack(zlib.crc32(content))
        self._next_slot = sum(_SLOTS) - self._next_slot
        if not 0 <= now - self._synced_at < SYNC_INTERVAL:
            self._synced_at = now
            self._sync()

    def failed(self, counter: int) -> None:
        """Record that a message failed, after which no other may be published."""
        self._first_failed = counter if self._first_failed is None else min(self._first_failed, counter)

    def close(self) -> None:
        """Sync and unlock the file."""
        try:
            self._sync()
        finally:
            self._map.close()
            os.close(self._file)

    def _sync(self) -> None:
        with state_file_errors(self.path, "written to disk"):
            self._map.flush()


def chain_checksum(checksum: int, message: bytes) -> int:
    """Return the checksum of a sequence of messages, given the checksum of all but the last. The first is 0."""
    return zlib.crc32(message, zlib.crc32(len(message).to_bytes(4, "big"), checksum))


def _new_page(stream: str) -> bytes:
    name = stream.encode()
    if len(name) > MAX_NAME_BYTES:
        raise StateFileError(f"stream name of {len(name)} bytes; a state file has room for {MAX_NAME_BYTES} bytes")
    page = bytearray(PAGE)
    _HEADER.pack_into(page, 0, MAGIC, BYTE_ORDER_MARK, os.urandom(8))
    content = _COUNT.pack(0, 0)
    for slot in _SLOTS:
        page[slot : slot + 16] = content + _CHECK.pack(zlib.crc32(content))
    _NAME.pack_into(page, 56, len(name))
    page[58 : 58 + len(name)] = name
    page[-4:] = _CHECK.pack(_checksum(page))
    return bytes(page)


def _read_page(page: bytes, path: Path, stream: str) -> tuple[bytes, int, int]:
    """Return publisher id, position and checksum."""
    if len(page) != PAGE or page[:7] != MAGIC[:7]:
        raise unusable(path, f"it was not written by a publisher ({len(page)} bytes)", _ADVICE)
    _, order, publisher = _HEADER.unpack_from(page)
    if page[7] != MAGIC[7] or order != BYTE_ORDER_MARK:
        raise unusable(path, "it has another version or byte order", _ADVICE)
    slots = [found for found in (_read_slot(page, slot) for slot in _SLOTS) if found is not None]
    if _CHECK.unpack(page[-4:])[0] != _checksum(page) or not slots:
        raise unusable(path, "it is damaged", _ADVICE)
    (length,) = _NAME.unpack_from(page, 56)
    found = page[58 : 58 + length].decode(errors="replace")
    if set(found.split(",")).isdisjoint(stream.split(",")):
        raise unusable(path, f"it belongs to {found}, not to {stream}; give each stream its own")
    return publisher, *max(slots)


def _read_slot(page: bytes, offset: int) -> tuple[int, int] | None:
    content = page[offset : offset + _COUNT.size]
    position, checksum = _COUNT.unpack(content)
    return (position, checksum) if _CHECK.unpack_from(page, offset + 12)[0] == zlib.crc32(content) else None


def _checksum(page: bytes | bytearray) -> int:
    return zlib.crc32(page[56:-4], zlib.crc32(page[:24]))
