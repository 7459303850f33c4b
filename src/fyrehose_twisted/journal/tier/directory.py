"""Directory of a journal, some of whose segments are in object storage."""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from zope.interface import implementer

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.errors import JournalError, NotFetched, TierError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment_header import (
    COPYING_SUFFIX,
    DROPPED_SUFFIX,
    FULL_SUFFIX,
    MAX_HEADER,
    MOVED_SUFFIX,
    segment_name,
    segment_number,
)
from fyrehose_twisted.journal.tier.entry import TierEntry, entry_name, entry_numbers, read_entry
from fyrehose_twisted.journal.tier.location import displayed
from fyrehose_twisted.journal.tier.objects import ArrowObjects, ObjectReader, Objects

CACHE_BYTES = 64 * 2**20
"""Limit of the blocks of one journal that are kept in memory."""

LATER_BYTES = CACHE_BYTES // 2
"""Longest read that waits for no block. What is fetched for it has to fit into the cache until it is repeated."""

READ_AHEAD = 8
"""Blocks that one request fetches at most when an object is read from one block to the next."""


class BlockCache:
    """Verified blocks of objects, the least recently used of which are dropped first.

    :ivar hits: number of blocks found here.
    :ivar fetched: number of bytes fetched from object storage.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.hits = self.fetched = 0
        self._limit = limit
        self._size = 0
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def get(self, url: str, index: int) -> bytes | None:
        """Return a block, or ``None``."""
        block = self._blocks.get((url, index))
        if block is not None:
            self._blocks.move_to_end((url, index))
            self.hits += 1
        return block

    def put(self, url: str, index: int, block: bytes) -> None:
        """Keep a block."""
        self._size += len(block) - len(self._blocks.pop((url, index), b""))
        self._blocks[url, index] = block
        self.fetched += len(block)
        while self._size > self._limit and len(self._blocks) > 1:
            self._size -= len(self._blocks.popitem(last=False)[1])


@implementer(IFile)
class TieredFile:
    """Segment in object storage; see :class:`~fyrehose_twisted.interfaces.IFile`.

    It is read in blocks, each of which is compared with the checksum in the manifest, and it cannot be written.

    :ivar entry: manifest of the segment.
    :ivar failure: why a block could not be fetched in the background; the next read of one that is missing raises it.
    """

    def __init__(self, directory: TieredDirectory, entry: TierEntry) -> None:
        self.entry = entry
        self._directory = directory
        self._object: ObjectReader | None = None
        self._next = self._ahead = 0
        self.failure: JournalError | None = None

    def size(self) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.size`."""
        return self.entry.size

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.read`.

        :raises TierError: if the object is missing or has changed, or the storage cannot be reached.
        :raises NotFetched: if the block is not in memory and must not be waited for.
        """
        entry = self.entry
        end = min(offset + length, entry.size)
        # Opening a journal reads as many bytes as a header may have, and needs only those of the header.
        if end <= len(entry.header) or (offset, length) == (0, MAX_HEADER):
            return entry.header[offset:end]
        if offset >= end:
            return b""
        first, last = offset // entry.block_bytes, (end - 1) // entry.block_bytes
        blocks = [self._directory.cache.get(entry.url, index) for index in range(first, last + 1)]
        missing = [first + index for index, block in enumerate(blocks) if block is None]
        if missing:
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            if self._directory.fetch_later is not None and len(blocks) * entry.block_bytes <= LATER_BYTES:
                self._directory.fetch_later(self, missing[0], missing[-1])
                raise NotFetched(f"object {displayed(entry.url)} is being fetched")
            fetched = self.fetch(missing[0], missing[-1])
            for index, block in fetched.items():
                self.keep(index, block)
            blocks = [fetched.get(first + index, block) for index, block in enumerate(blocks)]
        whole = b"".join(block for block in blocks if block is not None)
        start = offset - first * entry.block_bytes
        return whole[start : start + end - offset]

    def fetch(self, first: int, last: int) -> dict[int, bytes]:
        """Fetch and verify the blocks ``first`` to ``last``, and more if the file is read in sequence.

        Safe to call in a thread, one at a time; the caller passes the blocks to :meth:`keep`.

        :raises TierError: if the object is missing or has changed, or the storage cannot be reached.
        """
        entry, size = self.entry, self.entry.block_bytes
        # Read ahead as long as reading continues where it stopped: a range per request is what slows storage down.
        self._ahead = min(2 * self._ahead + 1, READ_AHEAD) if first == self._next and first else 0
        last = min(max(last, first + self._ahead), (entry.size - 1) // size)
        self._next = last + 1
        if self._object is None:
            self._object = self._directory.objects.open(entry.url)
            found = self._object.size()
            if found != entry.size:
                self._object = None
                raise self._changed(f"it has {found:,} bytes instead of {entry.size:,}")
        start, end = first * size, min((last + 1) * size, entry.size)
        data = self._object.read(start, end - start)
        blocks = {index: data[index * size - start : (index + 1) * size - start] for index in range(first, last + 1)}
        for index, block in blocks.items():
            if not entry.verify_block(index, block):
                self._object = None
                what = f"{len(data):,} bytes" if len(data) < end - start else "other bytes"
                raise self._changed(f"it returned {what} for bytes {start:,} to {end:,}")
        return blocks

    def keep(self, index: int, block: bytes) -> None:
        """Keep a fetched block in memory."""
        self._directory.cache.put(self.entry.url, index, block)

    def _changed(self, how: str) -> TierError:
        name = segment_name(self.entry.number, FULL_SUFFIX)
        return TierError(
            f"object {displayed(self.entry.url)} is not the copy of {self._directory}/{name} that was verified: {how}"
        )

    def write(self, offset: int, data: Datagram) -> None:
        """Refuse to write."""
        raise OSError(errno.EROFS, "a segment in object storage cannot be written")

    def truncate(self, size: int) -> None:
        """Refuse to write."""
        raise OSError(errno.EROFS, "a segment in object storage cannot be written")

    def sync(self) -> None:
        """Do nothing, as nothing is written."""

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.close`."""
        self._object = None


@implementer(IDirectory)
class TieredDirectory:
    """Directory of a journal, with its segments in object storage as if they were local.

    :param local: directory with the files, and the manifests of what moved where.
    :param objects: access to the object storage.
    :ivar cache: blocks of objects in memory.
    :ivar fetch_later: called with a file and the first and last block to fetch, in place of waiting for them.
    """

    def __init__(self, local: IDirectory, objects: Objects, *, cache: BlockCache | None = None) -> None:
        self.local = local
        self.objects = objects
        self.cache = BlockCache() if cache is None else cache
        self.fetch_later: Callable[[TieredFile, int, int], object] | None = None

    def __str__(self) -> str:
        return str(self.local)

    @property
    def path(self) -> Path | None:
        """Path of the local directory; ``None`` on a simulated disk."""
        return self.local.path if isinstance(self.local, LocalDirectory) else None

    def names(self) -> list[str]:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.names`."""
        names = self.local.names()
        moved = {segment_name(number, FULL_SUFFIX) for number in entry_numbers(names, MOVED_SUFFIX)}
        return sorted(moved.union(names)) if moved else names

    def open(self, name: str, *, writable: bool = False, create: bool = False) -> IFile:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.open`."""
        try:
            file: IFile = self.local.open(name, writable=writable, create=create)
            return file
        except FileNotFoundError:
            number = _sealed_number(name)
            if number is None or writable:
                raise
        return TieredFile(self, read_entry(self.local, number, MOVED_SUFFIX))

    def rename(self, old: str, new: str) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.rename`. A repaired segment replaces its copy."""
        self.local.rename(old, new)
        number = _sealed_number(new)
        if number is not None:
            self._drop(number)

    def remove(self, name: str) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.remove`. The copy is removed later."""
        number = _sealed_number(name)
        if number is None or not self._drop(number):
            self.local.remove(name)
            return
        with suppress(FileNotFoundError):
            self.local.remove(name)

    def _drop(self, number: int) -> bool:
        """Mark a copy as no longer needed; return whether there is one."""
        for suffix in (COPYING_SUFFIX, MOVED_SUFFIX):  # In the order of the states, which may change meanwhile.
            with suppress(FileNotFoundError):
                self.local.rename(entry_name(number, suffix), entry_name(number, DROPPED_SUFFIX))
                return True
        return False

    def sync(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.sync`."""
        self.local.sync()

    def lock(self) -> IFile:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.lock`."""
        lock: IFile = self.local.lock()
        return lock


def _sealed_number(name: str) -> int | None:
    return segment_number(name) if name.endswith(FULL_SUFFIX) else None


def free_space(directory: IDirectory) -> int | None:
    """Return the free bytes of the file system of a directory; ``None`` if it is not a local one."""
    local = directory.local if isinstance(directory, TieredDirectory) else directory
    return local.room() if isinstance(local, LocalDirectory) else None


def tiered_bytes(path: Path) -> int:
    """Return the size of the segments of the journal at ``path`` that are only in object storage."""
    local = LocalDirectory(path)
    names = local.names()
    moved = [number for number in entry_numbers(names, MOVED_SUFFIX) if segment_name(number, FULL_SUFFIX) not in names]
    return sum(read_entry(local, number, MOVED_SUFFIX).size for number in moved)


def open_directory(path: Path) -> TieredDirectory:
    """Return the directory of a journal at ``path``, which reads segments wherever they are."""
    return TieredDirectory(LocalDirectory(path), ArrowObjects())
