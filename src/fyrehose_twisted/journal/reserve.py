"""Room that a journal keeps for the moment when there is none: to drop what is old, it has to write that it does."""

from __future__ import annotations

from contextlib import suppress

from fyrehose_twisted.interfaces import IDirectory

RESERVE_NAME = "reserve"
RESERVE_BYTES = 32_768


def keep_reserve(directory: IDirectory) -> None:
    """See that there is a reserve; on a disk that is full there is none."""
    try:
        file = directory.open(RESERVE_NAME, create=True)
    except OSError:
        return  # It is there already, or there is no room.
    try:
        file.write(0, bytes(RESERVE_BYTES))
    except OSError:
        with suppress(OSError):
            directory.remove(RESERVE_NAME)
    finally:
        file.close()


def give_reserve(directory: IDirectory) -> bool:
    """Let others have the reserve; say whether there was one."""
    try:
        directory.remove(RESERVE_NAME)
    except OSError:
        return False
    return True
