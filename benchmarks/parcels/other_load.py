"""Load of other processes on the machine during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Busy(NamedTuple):
    """CPU seconds of all cores since boot, without those of this process and its children."""

    wall: float
    used: float
    stolen: float
    ours: float

    @classmethod
    def now(cls) -> Busy:
        """Read the counters. Children count once they were waited for."""
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _wait, interrupts, soft, stolen = (int(field) / TICKS for field in fields[:8])
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        return cls(time.monotonic(), user + nice + system + interrupts + soft, stolen, ours)


def idle(seconds: float) -> float:
    """Return the number of cores used by other processes, over an idle interval."""
    before = Busy.now()
    time.sleep(seconds)
    return share_of_others(before)[0]


def share_of_others(since: Busy) -> tuple[float, float]:
    """Return the number of cores used by other processes, and stolen by the host, since then."""
    now = Busy.now()
    wall = now.wall - since.wall
    others = (now.used - since.used) - (now.ours - since.ours)
    return max(others, 0.0) / wall, (now.stolen - since.stolen) / wall
