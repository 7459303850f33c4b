"""Named pipes of a directory, and the locks of its two sides."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
from collections.abc import Iterable
from contextlib import suppress

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError, OperationalError

READ_SIZE = 65_536
"""Largest read in bytes, and largest buffered partial line."""


class FifoPair:
    """One side of a directory: its lock and both open pipes.

    :param side: 0 or 1; by default the first free side.
    :ivar incoming: descriptor to read from.
    :ivar outgoing: descriptor to write to.
    :raises ConfigurationError: if the operator has to correct the directory or a pipe.
    :raises OperationalError: if the side is in use, or a system call fails.
    """

    def __init__(self, directory: str, side: int | None) -> None:
        self.directory = directory
        self._descriptors: list[int] = []
        try:
            self._make_directory()
            self.side = self._lock((0, 1) if side is None else (side,))
            self.outgoing = self._open_pipe(f"{self.side}to{1 - self.side}")
            self.incoming = self._open_pipe(f"{1 - self.side}to{self.side}")
        except OSError as problem:
            self.close()
            raise OperationalError(f"{problem.filename or directory}: {problem.strerror}") from problem
        except FyrehoseError:
            self.close()
            raise
        self._discard_unread()

    def close(self) -> None:
        """Close the pipes and release the lock."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def unread_bytes(self) -> int:
        """Return the number of written bytes that are still unread."""
        return int.from_bytes(fcntl.ioctl(self.outgoing, termios.FIONREAD, bytes(4)), sys.byteorder)

    def find_replaced(self) -> str | None:
        """Return the path of a pipe that was removed or replaced, ``None`` if both are intact."""
        for name, descriptor in (
            (f"{self.side}to{1 - self.side}", self.outgoing),
            (f"{1 - self.side}to{self.side}", self.incoming),
        ):
            path, held = os.path.join(self.directory, name), os.fstat(descriptor)
            try:
                found = os.lstat(path)
            except OSError:
                return path
            if (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
                return path
        return None

    def _discard_unread(self) -> None:
        """Remove unread data from the outgoing pipe, so that it does not accumulate.

        One read takes all of it, so that a concurrent reader sees no gap.
        """
        size = fcntl.fcntl(self.outgoing, fcntl.F_GETPIPE_SZ) if hasattr(fcntl, "F_GETPIPE_SZ") else READ_SIZE
        with suppress(BlockingIOError):
            os.read(self.outgoing, size)

    def _make_directory(self) -> None:
        with suppress(FileExistsError):
            os.mkdir(self.directory, 0o700)
        found = os.stat(self.directory)
        if not stat.S_ISDIR(found.st_mode):
            raise ConfigurationError(f"{self.directory} is not a directory; name one for the pipes of this link alone")
        if found.st_mode & 0o002:
            raise ConfigurationError(f"{self.directory} is writable by all users; chmod 700 it")
        if found.st_uid not in (os.geteuid(), 0):
            raise ConfigurationError(f"{self.directory} belongs to user {found.st_uid}; name a directory of your own")

    def _lock(self, sides: Iterable[int]) -> int:
        for side in sides:
            path = os.path.join(self.directory, f"side{side}")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._descriptors.append(descriptor)
            return side
        taken = " and ".join(map(str, sides))
        raise OperationalError(f"side {taken} of {self.directory} is in use; give each link its own directory")

    def _open_pipe(self, name: str) -> int:
        path = os.path.join(self.directory, name)
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._check(path, os.lstat(path))
        # Opened for reading and writing, so that neither open nor write depends on the other side.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._descriptors.append(descriptor)
        self._check(path, os.fstat(descriptor))
        return descriptor

    def _check(self, path: str, found: os.stat_result) -> None:
        if not stat.S_ISFIFO(found.st_mode):
            raise ConfigurationError(f"{path} is not a named pipe; remove it, so that one can be created")
        if found.st_mode & 0o002:
            raise ConfigurationError(f"{path} is writable by all users; chmod 600 it")
