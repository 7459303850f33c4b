"""Open files and the directory lock of a simulated process."""

from __future__ import annotations

import errno
from typing import Protocol

from zope.interface import classImplements

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.interfaces import IFile
from fyrehose_twisted.sim.disk.page_cache import SECTOR, FileContent, FileTruncate, FileWrite


class FileDisk(Protocol):
    """Disk interface of open files and the lock.

    :ivar crash_count: number of crashes so far.
    """

    crash_count: int

    def check_power(self) -> None:
        """Raise :class:`~fyrehose_twisted.sim.disk.disk.PowerCut` while the power is cut."""

    def spend(self, cost: int) -> int:
        """Return how much of ``cost`` can be done before the power cut."""

    def spend_one(self) -> None:
        """Account for an atomic change."""

    def size_limit(self, content: FileContent) -> int | None:
        """Return the maximum size of a file; ``None`` for no limit."""

    def is_impaired(self, what: str, name: str) -> bool:
        """Return whether ``reads`` or ``syncs`` of the file with this name fail."""

    def file_closed(self, content: FileContent) -> None:
        """Handle a closed file."""

    def unlock(self, lock: DirectoryLock) -> None:
        """Handle a released lock."""


class DirectoryLock:
    """Lock against other writers, returned by :meth:`~fyrehose_twisted.sim.disk.disk.Disk.lock`."""

    __slots__ = ("_disk",)

    def __init__(self, disk: FileDisk) -> None:
        self._disk = disk

    def close(self) -> None:
        """Release the lock. Releasing it twice, or after a crash, is harmless."""
        self._disk.unlock(self)


class OpenFile:
    """Open file of a :class:`~fyrehose_twisted.sim.disk.disk.Disk`, valid until a crash.

    All handles of a file see the same content. Each method raises :class:`OSError` (EBADF) after :meth:`close` or a
    crash, and :class:`~fyrehose_twisted.sim.disk.disk.PowerCut` while the power is cut; :meth:`close` never raises.
    """

    __slots__ = ("_closed", "_content", "_crash_count", "_disk", "_name", "_writable")

    def __init__(self, disk: FileDisk, name: str, content: FileContent, *, writable: bool) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self._writable = writable
        self._crash_count = disk.crash_count
        self._closed = False
        content.open_handles += 1

    def size(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IFile`."""
        self._check()
        return len(self._content.cached)

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`~fyrehose_twisted.interfaces.IFile`."""
        self._check(offset, length)
        if self._disk.is_impaired("reads", self._name):
            raise OSError(errno.EIO, "a read failed", self._name)
        return bytes(self._content.cached[offset : offset + length])

    def write(self, offset: int, data: Datagram) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFile`. On a full disk, it writes what fits, then raises."""
        self._check(offset, writes=True)
        wanted = bytes(data)
        room = self._disk.size_limit(self._content)
        fits = wanted if room is None else wanted[: max(room - offset, 0)]
        done = self._disk.spend(len(fits))
        cut = offset + done
        if done < len(fits) and cut < len(self._content.cached):  # Sectors are replaced atomically.
            done = max(0, cut - cut % SECTOR - offset)
        if done:
            self._content.apply(FileWrite(offset, fits[:done]))
        self._disk.check_power()
        if len(fits) < len(wanted):
            raise OSError(errno.ENOSPC, "the disk is full", self._name)

    def truncate(self, size: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFile`. Extending a file fills it with zeros."""
        self._check(size, writes=True)
        room = self._disk.size_limit(self._content)
        if room is not None and size > room:
            raise OSError(errno.ENOSPC, "the disk is full", self._name)
        self._disk.spend_one()
        self._content.apply(FileTruncate(size))

    def sync(self) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFile`.

        If this raises, readers still see the writes since the last sync, but no later sync makes them durable.
        """
        self._check()
        self._disk.spend_one()
        if self._disk.is_impaired("syncs", self._name):
            self._content.sync_failed()
            raise OSError(errno.EIO, "a sync failed", self._name)
        self._content.sync()

    def close(self) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IFile`."""
        if not self._closed:
            self._closed = True
            if self._crash_count == self._disk.crash_count:
                self._disk.file_closed(self._content)

    def _check(self, *numbers: int, writes: bool = False) -> None:
        self._disk.check_power()
        if self._closed or self._crash_count != self._disk.crash_count or (writes and not self._writable):
            raise OSError(errno.EBADF, "the file is not open for that", self._name)
        if min(numbers, default=0) < 0:
            raise OSError(errno.EINVAL, "negative offset or size", self._name)


classImplements(OpenFile, IFile)
