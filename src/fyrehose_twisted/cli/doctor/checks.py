"""Order and execution of all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fyrehose_twisted.cli.doctor import clock, disk, kernel, limits, offload, ports, software
from fyrehose_twisted.cli.doctor.finding import DoctorFinding, unknown

Check = Callable[[], DoctorFinding | Sequence[DoctorFinding]]


def run_checks(directories: Sequence[Path]) -> Iterator[DoctorFinding]:
    """Run all checks; yield the findings of each when it is done.

    :param directories: directories for journals and state files.
    """
    began = clock.sample_clocks()
    try:
        dropped = kernel.read_udp_counters()
    except (OSError, ValueError):  # check_drops() reports it.
        dropped = None
    yield from _run_check(software.PACKAGES, software.check_software)
    yield from _run_check(kernel.BUFFERS, kernel.check_buffers)
    yield from _run_check(offload.SEND, offload.check_offload)
    for directory in directories:
        yield from _run_check(disk.DIRECTORY, lambda directory=directory: disk.check_directory(directory))  # type: ignore[misc]
    yield from _run_check(ports.PORTS, ports.check_ports)
    yield from _run_check(limits.OPEN_FILES, limits.check_open_files)
    yield from _run_check(clock.CLOCK, clock.check_synchronisation)
    # Last, because these compare the present with the beginning.
    yield from _run_check(clock.CLOCK_STEPS, lambda: clock.check_steps(began))
    yield from _run_check(kernel.DROPS, lambda: kernel.check_drops(dropped))


def _run_check(name: str, check: Check) -> Sequence[DoctorFinding]:
    """Run one check; an exception becomes a finding."""
    try:
        found = check()
    except Exception as error:
        reason = f"the check failed with {type(error).__name__}: {error}"
        return [unknown(name, reason.partition("\n")[0], "check manually, and report this error")]
    return [found] if isinstance(found, DoctorFinding) else found
