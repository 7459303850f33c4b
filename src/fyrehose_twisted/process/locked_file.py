"""State files: created atomically and locked by one process at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fyrehose_twisted.errors import StateFileError


@contextmanager
def state_file_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an :class:`OSError` into a :class:`~fyrehose_twisted.errors.StateFileError` with a description."""
    try:
        yield
    except OSError as error:
        raise StateFileError(f"state file {path} cannot be {action}: {error.strerror}") from error


def open_locked(path: Path, new: Callable[[], bytes], in_use: str) -> int:
    """Open and lock a file; create it if it does not exist.

    :param new: returns the content of a new file.
    :param in_use: text of the error if another process holds the lock.
    :return: the descriptor.
    :raises StateFileError: if the file is in use, or cannot be created or opened.
    """
    with state_file_errors(path, "opened"):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            with state_file_errors(path, "created"):
                _create(path, new())
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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


def _create(path: Path, content: bytes) -> None:
    # A random name, because in a container every start has the same process id.
    descriptor, temporary = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)  # Unlike a rename, this fails if another process created the file first.
    except FileExistsError:
        return
    finally:
        os.unlink(temporary)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
