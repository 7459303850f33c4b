"""What the kernel tells about a process, and what it does not."""

from __future__ import annotations

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
    while not (variables := (process / "environ").read_bytes()) and _has_variables(process) and monotonic() < until:
        pass
    return variables.split(b"\0")


def _has_variables(process: Path) -> bool:
    """Return whether there are variables, or will be once the program that is being executed is in place.

    The fields of one look belong together, those of two files may be of two programs. Where the code begins is set
    last, after the bounds of the variables. Zombies and threads of the kernel have no memory. See proc_pid_stat(5).
    """
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    memory, code, first, end = (int(fields[number - 3]) for number in (23, 26, 50, 51))
    return memory > 0 and (code == 0 or first < end)
