"""State files: created and replaced atomically, and locked by one process at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.process.atomic_file import sync_directory


class LockedFile:
    """State file that is replaced atomically, with a lock file beside it.

    The lock file, ``path`` with ``.lock`` appended, remains. ``path`` with ``.new`` appended exists while the file is
    replaced.

    :ivar is_new: whether the lock file did not exist before.
    :raises StateFileError: if another process holds the lock, or the file cannot be locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._lock = -1
        self._failed = False
        with state_file_errors(path, "locked"):
            try:
                self._lock, self.is_new = _open(f"{path}.lock", os.O_CREAT | os.O_EXCL), True
            except FileExistsError:
                self._lock, self.is_new = _open(f"{path}.lock"), False
            try:
                lock(self._lock, path, "another node; give each its own")
            except BaseException:
                self.close()
                raise

    def read(self, limit: int = -1, *, to_write: bool = False) -> bytes | None:
        """Return the content; ``None`` if there is no file.

        :param limit: maximum number of bytes.
        :param to_write: keep the file open for :meth:`write`.
        :raises StateFileError: if the file cannot be read.
        """
        with state_file_errors(self.path, "read"):
            try:
                with open(self.path, "r+b" if to_write else "rb") as file:
                    if to_write:
                        self._file = os.dup(file.fileno())
                    return file.read(limit)
            except FileNotFoundError:
                return None

    def replace(self, content: bytes, *, sync: bool = True) -> None:
        """Replace the file, or create it, and keep it open for :meth:`write`, at its end.

        :param sync: make the new file survive a power failure.
        :raises StateFileError: if that fails.
        """
        with self._errors():
            file = _open(f"{self.path}.new", os.O_CREAT | os.O_TRUNC)
            try:
                _write(file, content)
                if sync:
                    os.fdatasync(file)
                os.rename(f"{self.path}.new", self.path)
                if sync:
                    sync_directory(self.path.parent)
            except BaseException:
                os.close(file)
                with suppress(OSError):
                    os.remove(f"{self.path}.new")
                raise
        if self._file >= 0:
            os.close(self._file)
        self._file = file

    def write(self, content: bytes, offset: int | None = None, *, sync: bool = False) -> None:
        """Write at an offset, by default behind the latest write.

        :raises StateFileError: if that fails, now or earlier.
        """
        self.check_writable()
        with self._errors():
            if offset is not None:
                os.lseek(self._file, offset, os.SEEK_SET)
            _write(self._file, content)
            if sync:
                os.fdatasync(self._file)

    def check_writable(self) -> None:
        """Check that the file is open and that no write failed.

        :raises StateFileError: otherwise.
        """
        if self._failed or self._file < 0:
            raise StateFileError(f"state file {self.path} could not be written before, or is closed")

    def close(self) -> None:
        """Close the file and release the lock. Closing twice is harmless."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with state_file_errors(self.path, "written"):
                yield
        except StateFileError:
            self._failed = True
            raise


@contextmanager
def state_file_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an :class:`OSError` into a :class:`~fyrehose_twisted.errors.StateFileError` with a description."""
    try:
        yield
    except OSError as error:
        raise StateFileError(f"state file {path} cannot be {action}: {error.strerror}") from error


def unusable(path: Path, problem: str, advice: str = "") -> StateFileError:
    """Return the error for a state file with wrong content."""
    return StateFileError(f"state file {path} is not usable: {problem}{advice}")


def open_locked(path: Path, new: Callable[[], bytes], in_use: str) -> int:
    """Open and lock a file; create it if it does not exist.

    :param new: returns the content of a new file.
    :param in_use: text of the error if another process holds the lock.
    :return: the descriptor.
    :raises StateFileError: if the file is in use, or cannot be created or opened.
    """
    with state_file_errors(path, "opened"):
        try:
            file = _open(path)
        except FileNotFoundError:
            with state_file_errors(path, "created"):
                _create(path, new())
            file = _open(path)
        try:
            lock(file, path, in_use)
        except BaseException:
            os.close(file)
            raise
    return file


def lock(descriptor: int, path: Path, in_use: str) -> None:
    """Lock an open file until it is closed.

    :raises StateFileError: if another process holds the lock.
    :raises OSError: if the file cannot be locked at all.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateFileError(f"state file {path} is in use by {in_use}") from None


def write_temporary(path: Path, content: bytes) -> tuple[int, str]:
    """Write and sync a new file beside ``path``; return its descriptor and its name."""
    # A random name, because in a container every start has the same process id.
    descriptor, temporary = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
    try:
        _write(descriptor, content)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        os.unlink(temporary)
        raise
    return descriptor, temporary


def _create(path: Path, content: bytes) -> None:
    descriptor, temporary = write_temporary(path, content)
    os.close(descriptor)
    try:
        os.link(temporary, path)  # Unlike a rename, this fails if another process created the file first.
    except FileExistsError:
        return
    finally:
        os.unlink(temporary)
    sync_directory(path.parent)


def _open(path: Path | str, flags: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
