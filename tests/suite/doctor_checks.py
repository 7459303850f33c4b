"""Names of the checks of ``fyrehose doctor``, in order."""

from __future__ import annotations

from fyrehose_twisted.cli.doctor import clock, disk, kernel, limits, offload, ports, software

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
    disk.FREE_SPACE,
    ports.PORTS,
    limits.OPEN_FILES,
    clock.CLOCK,
    clock.CLOCK_STEPS,
    kernel.DROPS,
)
"""Disk checks run for each directory, and the check of ports has one finding per occupied port."""
