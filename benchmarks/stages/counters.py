"""CPU time, instructions and cache misses of running processes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from race.servers import Missing, cpu_seconds, program

from stages.stamps import Stamps

EVENTS = ("instructions", "cache-misses")
WAKES = ("syscalls:sys_exit_epoll_wait", "syscalls:sys_exit_epoll_pwait")
WRITES = ("syscalls:sys_enter_write", "syscalls:sys_enter_writev")
ATTACHED = 0.5
"""Seconds that perf takes to attach to a process."""
MESSAGE_BYTES = 16
"""Least size of a write that is a message; Go wakes its threads by smaller ones."""
ERRORS = 2**31
"""Results from this one on are negative."""


class Counts(NamedTuple):
    """Counts of one process for one message; ``None`` where this machine has no counter.

    :ivar cpu: µs of CPU time, in user and in system mode.
    """

    cpu: float
    instructions: float | None
    cache_misses: float | None


def why_not() -> str | None:
    """Return why perf cannot count instructions here, ``None`` if it can."""
    try:
        perf = program("perf", "linux-perf")
    except Missing as missing:
        return f"perf is {missing}"
    done = subprocess.run([perf, "stat", "-x,", "-e", ",".join(EVENTS), "true"], capture_output=True, text=True)
    if done.returncode:
        level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
        return f"perf may not count (perf_event_paranoid is {level})"
    if "not supported" in done.stderr:
        return "this machine has no performance counters"
    return None


class Counting:
    """Counters of processes over a time.

    :param hardware: count instructions and cache misses as well, by perf.
    :ivar began: moment of the start, as ``ended``, in nanoseconds of the monotonic clock.
    """

    def __init__(self, pids: Sequence[int], *, hardware: bool) -> None:
        self._pids = pids
        self._perf = [self._start(pid) for pid in pids] if hardware else []
        if hardware:
            time.sleep(ATTACHED)
        self.began = self.ended = time.perf_counter_ns()
        self._cpu = [cpu_seconds(pid) for pid in pids]

    @staticmethod
    def _start(pid: int) -> subprocess.Popen[str]:
        command = [program("perf", "linux-perf"), "stat", "-x,", "-e", ",".join(EVENTS), "-p", str(pid)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def stop(self) -> None:
        """Read the counters."""
        self._cpu = [cpu_seconds(pid) - before for pid, before in zip(self._pids, self._cpu, strict=True)]
        self.ended = time.perf_counter_ns()
        for perf in self._perf:
            perf.send_signal(signal.SIGINT)

    def counts(self, messages: int) -> list[Counts]:
        """Return the counts of each process for one of the ``messages`` published between start and stop."""
        counted = [parse(perf.communicate(timeout=10)[1]) for perf in self._perf] or [(None, None)] * len(self._cpu)
        return [
            Counts(cpu / messages * 1e6, *(None if number is None else number / messages for number in numbers))
            for cpu, numbers in zip(self._cpu, counted, strict=True)
        ]


def parse(output: str) -> tuple[float | None, float | None]:
    """Return instructions and cache misses of the output of ``perf stat -x,``."""
    found: dict[str, float] = {}
    for line in output.splitlines():
        fields = line.split(",")
        if len(fields) > 2:
            with suppress(ValueError):
                found[fields[2].partition(":")[0]] = float(fields[0])
    return found.get(EVENTS[0]), found.get(EVENTS[1])


class Trace:
    """Wake-ups and writes of a process that is not Python, by tracepoints of the kernel.

    :raises Missing: if perf is not installed, or may not trace.
    """

    def __init__(self, pid: int, directory: Path) -> None:
        self._perf = program("perf", "linux-perf")
        self._file = directory / f"trace.{pid}"
        events = ",".join((*WAKES, *WRITES))
        probe = subprocess.run([self._perf, "stat", "-e", events, "true"], capture_output=True, text=True)
        if probe.returncode:
            raise Missing("perf may not trace system calls")
        command = [self._perf, "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", events, "-p", str(pid)]
        self._process = subprocess.Popen([*command, "-o", str(self._file)], stderr=subprocess.PIPE)
        time.sleep(ATTACHED)

    def finish(self) -> Stamps:
        """Stop and return the time stamps."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=10)
        command = [self._perf, "script", "-i", str(self._file), "--ns", "-F", "time,event,trace"]
        return parse_trace(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parse_trace(output: str) -> Stamps:
    """Return the time stamps in the output of ``perf script``."""
    stamps = Stamps()
    for line in output.splitlines():
        moment, event, rest = line.split(maxsplit=2)
        seconds, _, fraction = moment.rstrip(":").partition(".")
        stamp = int(seconds) * 1_000_000_000 + int(fraction)
        if event.rstrip(":") in WRITES:
            _, _, size = rest.partition("count: ")
            if not size or int(size, 16) >= MESSAGE_BYTES:
                stamps.sends.append(stamp)
        elif 0 < int(rest, 16) < ERRORS:
            stamps.wakes.append(stamp)
    return stamps
