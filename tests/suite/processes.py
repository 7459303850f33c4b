"""Environment variables of processes, as the kernel shows them."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

PATIENCE = 1.0
"""Seconds within which a process that executes a program has its arguments and its environment."""


def environment(pid: int | str) -> list[bytes]:
    """Return the initial environment of the program of a process.

    While a process executes another program, the kernel shows neither its arguments nor its variables, so a search for
    a marked process would miss it.

    :raises OSError: if the process does not exist or belongs to another user.
    """
    process = Path("/proc", str(pid))
    until = monotonic() + PATIENCE
    while not (variables := (process / "environ").read_bytes()) and _has_variables(process) and monotonic() < until:
        pass
    return variables.split(b"\0")


def _has_variables(process: Path) -> bool:
    """Return whether the process has variables, or will have them once execve completes.

    The fields of one read are consistent; those of two files may be of two programs. The start of the code is set last,
    after the bounds of the variables. Zombies and kernel threads have no memory. See proc_pid_stat(5).
    """
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    memory, code, first, end = (int(fields[number - 3]) for number in (23, 26, 50, 51))
    return memory > 0 and (code == 0 or first < end)
