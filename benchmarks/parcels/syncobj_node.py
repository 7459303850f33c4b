"""PySyncObj node with a replicated list and, in the same process, its load, because there is no client protocol.

Commands come as JSON on standard input, one a line, and are answered in the same way on standard output.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

VALUE = "x" * 128
GIVEN_UP = 5.0
"""Seconds after which a missing callback counts as lost."""
PROBE_EVERY = 0.02


class Values(SyncObj):
    """Replicated list."""

    def __init__(self, own: str, others: list[str], batches: bool) -> None:
        # Default settings, except that nodes which start together do not wait 5 s for each other.
        super().__init__(own, others, SyncObjConf(connectionRetryTime=0.2, appendEntriesUseBatch=batches))
        self.values: list[str] = []

    @replicated
    def add(self, value: str) -> int:
        """Append, and return the length."""
        self.values.append(value)
        return len(self.values)


class Load:
    """Load with a number of commands in flight; each callback issues the next."""

    def __init__(self, values: Values, flight: int, seconds: float, warm_up: float) -> None:
        self._values = values
        self._flight = flight
        self.begin = time.perf_counter() + warm_up
        self.end = self.begin + seconds
        self.times: list[float] = []
        self.given = self.called = self.failed = 0
        self.numbers: list[int] = []
        self.ended = False

    def run(self) -> dict[str, Any]:
        """Issue commands until the time is over, wait for callbacks, and return the figures."""
        for _ in range(self._flight):
            self._give()
        while (now := time.perf_counter()) < self.end + GIVEN_UP:
            if now > self.end and self.called == self.given:
                break
            time.sleep(0.02)
        distinct = len(set(self.numbers)) == len(self.numbers)
        return {
            "times": self.times,
            "seconds": self.end - self.begin,
            "lost": self.given - self.called,
            "failed": self.failed,
            "distinct": distinct,
            "done": len(self.numbers),
        }

    def _give(self) -> None:
        since = time.perf_counter()

        def called(result: int | None, error: int) -> None:
            now = time.perf_counter()
            self.called += 1
            if error == FAIL_REASON.SUCCESS and result is not None:
                self.numbers.append(result)
                self._count(now, now - since)
            else:
                self.failed += 1
            if now < self.end:
                self._give()

        self.given += 1
        self._values.add(VALUE, callback=called)

    def _count(self, now: float, seconds: float) -> None:
        # Callbacks come in bursts, so the measured interval starts and ends with one.
        if self.begin <= now < self.end:
            if not self.times:
                self.begin = now
            self.times.append(seconds)
        elif now >= self.end and not self.ended:
            self.end, self.ended = now, True


def probe(values: Values, patience: float) -> float | None:
    """Issue a command repeatedly; return the monotonic time of the first callback."""
    answered = threading.Event()
    when: list[float] = []

    def called(result: int | None, error: int) -> None:
        if error == FAIL_REASON.SUCCESS and result is not None:
            when.append(time.monotonic())
            answered.set()

    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        values.add(VALUE, callback=called)
        if answered.wait(PROBE_EVERY):
            return when[0]
    return None


def main() -> None:
    """Run a node until standard input ends."""
    batches, own, *others = sys.argv[1:]
    values = Values(own, others, batches == "batches")
    for line in sys.stdin:
        command = json.loads(line)
        answer: Any = None
        match command["do"]:
            case "leader":
                leader = values._getLeader()
                # A leader that has not applied an entry of its term is not ready.
                answer = str(leader) if leader is not None and values.isReady() else None
            case "connected":
                answer = sum(values.isNodeConnected(node) for node in values.otherNodes)
            case "count":
                answer = len(values.values)
            case "load":
                answer = Load(values, command["flight"], command["seconds"], command["warm_up"]).run()
            case "probe":
                answer = probe(values, command["patience"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
