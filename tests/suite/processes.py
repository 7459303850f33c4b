"""What the kernel tells about a process, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

PATIENCE = 1.0
"""Seconds in which a process that has begun to execute a program has its arguments and its environment."""


def environment(pid: int | str) -> list[bytes]:
    """Return the variables with which the program of a process began.

    While a process executes another program, the kernel shows neither arguments nor variables of it. Who looks for a
    mark would overlook it then.

    :raises OSError: if there is no such process, or it is none of ours.
    """
    process = Path("/proc", str(pid))
    until = monotonic() + PATIENCE
    while not (variables := (process / "environ").read_bytes()) and monotonic() < until:
        if not _executes(process):
            variables = (process / "environ").read_bytes()  # It may have been done in the meantime.
            break
    return variables.split(b"\0")


def _executes(process: Path) -> bool:
    """Return whether there is a program without arguments; a zombie and a thread of the kernel have no program."""
    try:
        return not (process / "cmdline").read_bytes() and bool(os.readlink(process / "exe"))
    except OSError:
        return False
