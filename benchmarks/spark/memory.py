"""Resident memory of the processes of a Spark session, over time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

KINDS = ("driver", "worker", "jvm")
INTERVAL = 0.2


class Sample(NamedTuple):
    """Largest process of each kind at a time, in KiB: the driver's Python, a worker's Python, a Java."""

    at: float
    driver: int
    worker: int
    jvm: int


class MemoryLog(list[Sample]):
    """Samples in the order of time."""

    def peak(self, kind: str, since: float = 0.0, until: float = 1.0) -> int:
        """Return the largest value of a kind, in MiB, between two shares of the whole time."""
        if not self:
            return 0
        begin, length = self[0].at, self[-1].at - self[0].at
        inside = [one for one in self if begin + since * length <= one.at <= begin + until * length]
        return max((getattr(one, kind) for one in inside), default=0) >> 10


@contextmanager
def memory_log(driver: int, *roots: int) -> Iterator[MemoryLog]:
    """Sample the process ``driver``, its descendants and those of ``roots`` in a thread.

    A descendant that runs Java counts as ``jvm``, another one as ``worker``.
    """
    log, done = MemoryLog(), threading.Event()

    def look() -> None:
        while not done.wait(INTERVAL):
            found = dict.fromkeys(KINDS, 0)
            for process in descendants(driver, *roots):
                kind, size = _measure(process)
                kind = "driver" if process == driver else kind
                found[kind] = max(found[kind], size)
            log.append(Sample(time.monotonic(), **found))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield log
    finally:
        done.set()
        thread.join()


def _measure(process: int) -> tuple[str, int]:
    try:
        status = Path(f"/proc/{process}/status").read_text()
        name = Path(f"/proc/{process}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return "worker", 0
    size = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
    return "jvm" if name.endswith(b"java") else "worker", size


def descendants(*roots: int) -> list[int]:
    """Return the processes and all that descend from them."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = list(roots)
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found
