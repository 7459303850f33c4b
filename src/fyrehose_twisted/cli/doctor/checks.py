"""All checks, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fyrehose_twisted.cli.doctor import clock, disk, kernel, limits, offload, ports, software
from fyrehose_twisted.cli.doctor.finding import Finding, unknown

CHECKS = (
    software.PYTHON,
    software.PACKAGES,
    software.EXTRAS,
    software.JAVA,
    kernel.BUFFERS,
    offload.SEND,
    offload.RECEIVE,
    disk.DIRECTORY,
    disk.FSYNC,
    disk.FILE_SYSTEM,
    disk.ROOM,
    ports.PORTS,
    limits.OPEN_FILES,
    clock.SYNCHRONISED,
    clock.RUNS,
    kernel.DROPS,
)
"""Names of checks. Those of disks are made for each directory, and that of ports has more to say if one is taken."""

Check = Callable[[], Finding | Sequence[Finding]]


def examine(directories: Sequence[Path]) -> Iterator[Finding]:
    """Make all checks, and yield what each finds when it is done.

    :param directories: where journals and state files shall lie.
    """
    began = clock.look()
    try:
        dropped = kernel.drops()
    except (OSError, ValueError):  # The check says so once more.
        dropped = None
    yield from _safely(software.PACKAGES, software.check_software)
    yield from _safely(kernel.BUFFERS, kernel.check_buffers)
    yield from _safely(offload.SEND, offload.check_offload)
    for directory in directories:
        yield from _safely(disk.DIRECTORY, lambda directory=directory: disk.check_directory(directory))  # type: ignore[misc]
    yield from _safely(ports.PORTS, ports.check_ports)
    yield from _safely(limits.OPEN_FILES, limits.check_open_files)
    yield from _safely(clock.SYNCHRONISED, clock.check_kept)
    # Last, as they compare now with the beginning.
    yield from _safely(clock.RUNS, lambda: clock.check_run(began))
    yield from _safely(kernel.DROPS, lambda: kernel.check_drops(dropped))


def _safely(name: str, check: Check) -> Sequence[Finding]:
    """Make a check; what it cannot cope with keeps nobody from the others."""
    try:
        found = check()
    except Exception as error:
        reason = f"the check failed with {type(error).__name__}: {error}"
        return [unknown(name, reason.partition("\n")[0], "look for yourself, and report this")]
    return [found] if isinstance(found, Finding) else found
