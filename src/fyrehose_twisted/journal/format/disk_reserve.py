"""Room that a journal keeps for the moment when there is none: to drop what is old, it has to write that it does."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from fyrehose_twisted.interfaces import IDirectory

RESERVE_NAME = "reserve"
RESERVE_BYTES = 32_768
_CONTENT = Random(0).randbytes(RESERVE_BYTES)
"""What a file system that compresses cannot make smaller."""


def allocate_reserve(directory: IDirectory) -> None:
    """See that there is a reserve; on a disk that is full there is none."""
    try:
        try:
            file = directory.open(RESERVE_NAME, writable=True)
        except FileNotFoundError:
            file = directory.open(RESERVE_NAME, create=True)
    except OSError:
        return
    try:
        if file.size() < RESERVE_BYTES:
            file.write(0, _CONTENT)
            file.sync()  # Or a power failure leaves the name, and no room.
    except OSError:
        with suppress(OSError):
            directory.remove(RESERVE_NAME)
    finally:
        file.close()


def release_reserve(directory: IDirectory) -> bool:
    """Let others have the reserve; say whether there was one."""
    try:
        directory.remove(RESERVE_NAME)
    except OSError:
        return False
    return True
