"""Disk space preallocated so that retention can run on a full disk (removing segments needs a write)."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from fyrehose_twisted.interfaces import IDirectory

RESERVE_NAME = "reserve"
RESERVE_BYTES = 32_768
_CONTENT = Random(0).randbytes(RESERVE_BYTES)
"""Random, so that a compressing file system cannot shrink it."""


def allocate_reserve(directory: IDirectory) -> None:
    """Create the reserve if it is missing. On a full disk there is none."""
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
            file.sync()  # Otherwise a power failure could leave the name without the blocks.
    except OSError:
        with suppress(OSError):
            directory.remove(RESERVE_NAME)
    finally:
        file.close()


def release_reserve(directory: IDirectory) -> bool:
    """Free the reserve; return whether there was one."""
    try:
        directory.remove(RESERVE_NAME)
    except OSError:
        return False
    return True
