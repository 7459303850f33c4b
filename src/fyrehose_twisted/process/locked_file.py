"""State files: whole from the first moment, and open in one process at a time."""

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
    """Turn an :class:`OSError` into a :class:`~fyrehose_twisted.errors.StateFileError` that says what failed."""
    try:
        yield
    except OSError as error:
        raise StateFileError(f"state file {path} cannot be {action}: {error.strerror}") from error


def open_locked(path: Path, new: Callable[[], bytes], in_use: str) -> int:
    """Open and lock a file, which is made if there is none.

    :param new: returns what a new file holds.
    :param in_use: what to say if another process has it.
    :return: its descriptor.
    :raises StateFileError: if it is in use, or cannot be made or opened.
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
    """Lock an open file, for as long as it is open.

    :raises StateFileError: if another process has locked it.
    :raises OSError: if it cannot be locked at all.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateFileError(f"state file {path} is in use by {in_use}") from None


def _create(path: Path, content: bytes) -> None:
    # A name that no process can have left behind: in a container every start has the same process id.
    descriptor, temporary = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)  # Unlike a rename, this fails where another process was quicker.
    except FileExistsError:
        return
    finally:
        os.unlink(temporary)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
