"""Files, directories and locks of the local file system, as journals use them."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from zope.interface import implementer

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.process.atomic_file import sync_directory

LOCK_NAME, TIER_LOCK_NAME, EXPORT_LOCK_NAME = "lock", "tier.lock", "parquet.lock"
"""Locks of the processes that write the journal, move its segments to object storage, and write Parquet files there."""

_sync_data = getattr(os, "fdatasync", os.fsync)


@implementer(IFile)
class LocalFile:
    """Local file; see :class:`~fyrehose_twisted.interfaces.IFile`. Garbage collection closes it at the latest.

    Files are read with system calls rather than mapped into memory. A bad sector under a mapping would kill the process
    with a signal instead of raising an exception.
    """

    __slots__ = ("__weakref__", "_close", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def size(self) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.size`."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.read`."""
        data = os.pread(self._descriptor, length, offset)
        if len(data) == length:
            return data
        pieces = [data]  # Linux reads at most 2 GiB per call, and a signal may cut a read short.
        while data and length > sum(map(len, pieces)):
            offset += len(data)
            data = os.pread(self._descriptor, length - sum(map(len, pieces)), offset)
            pieces.append(data)
        return b"".join(pieces)

    def write(self, offset: int, data: Datagram) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.write`."""
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)

    def truncate(self, size: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.truncate`."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.sync`."""
        _sync_data(self._descriptor)

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IFile.close`."""
        self._close()


class LocalLock(LocalFile):
    """Lock of a directory."""

    __slots__ = ()

    def close(self) -> None:
        """Release the lock, even if a child process has inherited the descriptor."""
        if self._close.alive:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        super().close()


@implementer(IDirectory)
class LocalDirectory:
    """Local directory; see :class:`~fyrehose_twisted.interfaces.IDirectory`.

    :param path: an existing directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.names`."""
        return sorted(
            entry.name
            for entry in os.scandir(self.path)
            if entry.is_file() and entry.name not in (LOCK_NAME, TIER_LOCK_NAME, EXPORT_LOCK_NAME)
        )

    def open(self, name: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.open`."""
        flags = os.O_RDWR if writable or create else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return LocalFile(os.open(self.path / name, flags | os.O_CLOEXEC, 0o640))

    def rename(self, old: str, new: str) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.rename`."""
        os.rename(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.remove`."""
        os.unlink(self.path / name)

    def sync(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.sync`."""
        sync_directory(self.path)

    def room(self) -> int:
        """Return the free bytes of the file system."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def lock(self, name: str = LOCK_NAME) -> LocalLock:
        """See :meth:`~fyrehose_twisted.interfaces.IDirectory.lock`."""
        lock = LocalLock(os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
        try:
            fcntl.flock(lock._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise
        return lock


def has_writer(path: Path) -> bool:
    """Return whether a process holds the lock of the journal in ``path`` to write it."""
    try:
        descriptor = os.open(path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
