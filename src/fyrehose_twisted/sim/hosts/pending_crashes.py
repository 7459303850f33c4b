"""Crashes that wait for an operation of a simulated node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.disk.disk import Disk


class PendingCrash(NamedTuple):
    """Crash that waits for an operation of a node.

    :ivar duration: seconds from the crash to the restart.
    """

    mode: CrashMode
    duration: float


class PendingCrashes:
    """Crashes of one host that its node triggers within a period.

    :param call_in: schedules a call after a number of seconds.
    :ivar at_persist: crash at the next persist, before dependent effects are sent.
    :ivar in_disk_work: power loss that the disk triggers once it has done enough work.
    """

    __slots__ = ("_call_in", "at_persist", "in_disk_work")

    def __init__(self, call_in: Callable[[float, Callable[[], object]], None]) -> None:
        self._call_in = call_in
        self.at_persist: PendingCrash | None = None
        self.in_disk_work: PendingCrash | None = None

    def arm_at_persist(self, mode: CrashMode, duration: float) -> None:
        """Crash at the next persist within ``duration`` seconds."""
        armed = self.at_persist = PendingCrash(mode, duration)

        def disarm() -> None:
            if self.at_persist is armed:
                self.at_persist = None

        self._call_in(duration, disarm)

    def arm_in_disk_work(self, disk: Disk, cost: int, duration: float) -> None:
        """Lose power once the disk has done work of ``cost`` within ``duration`` seconds."""
        disk.power_cut_after = cost
        armed = self.in_disk_work = PendingCrash(CrashMode.POWER, duration)

        def disarm() -> None:
            if self.in_disk_work is armed:
                self.in_disk_work = disk.power_cut_after = None

        self._call_in(duration, disarm)

    def host_stopped(self, *, powered_off: bool) -> None:
        """Discard the crashes that cannot happen any more."""
        self.at_persist = None
        if powered_off:
            self.in_disk_work = None
