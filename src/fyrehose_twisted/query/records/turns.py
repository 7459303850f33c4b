"""Fair scheduling of long work between clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from twisted.python.failure import Failure

SLICE_SECONDS, SLICE_STEPS = 0.002, 16
"""Seconds, and steps, of a client before the least-served client gets its turn."""

TURN_SECONDS, TURN_STEPS = 0.005, 256
"""Seconds, and steps, before control returns to the reactor."""

Done = Callable[[Failure | None], object]
"""Callback with ``None`` after all steps, or with the failure of a step."""


class SchedulerStopped(Exception):
    """The scheduler was stopped before the task was done."""


class ScheduledTask:
    """Task of one client, as an iterator of steps."""

    __slots__ = ("client", "done", "steps", "stopped")

    def __init__(self, client: str, steps: Iterator[object], done: Done) -> None:
        self.client = client
        self.steps = steps
        self.done = done
        self.stopped = False

    def stop(self) -> None:
        """Take no more steps, without calling ``done``."""
        self.stopped = True


class _Share:
    __slots__ = ("tasks", "used")

    def __init__(self, used: float) -> None:
        self.used = used
        self.tasks: deque[ScheduledTask] = deque()


class FairScheduler:
    """Scheduler that divides processor time equally between clients. The tasks of a client share its time.

    :param clock: returns seconds, by which work is measured.
    """

    def __init__(self, reactor: Any, clock: Callable[[], float] = perf_counter) -> None:
        self._reactor = reactor
        self._clock = clock
        self._shares: dict[str, _Share] = {}
        self._used = 0.0
        self._call: Any = None

    def start(self, client: str, steps: Iterator[object], done: Done = lambda failure: None) -> ScheduledTask:
        """Start a task. Its first step is taken in the next turn."""
        task = ScheduledTask(client, steps, done)
        share = self._shares.get(client)
        if share is None:
            # A client earns no credit while it is idle.
            share = self._shares[client] = _Share(self._used)
        share.tasks.append(task)
        if self._call is None:
            self._call = self._reactor.callLater(0, self._turn)
        return task

    def stop(self) -> None:
        """Stop all tasks."""
        shares, self._shares = self._shares, {}
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
        for share in shares.values():
            for task in share.tasks:
                if not task.stopped:
                    task.done(Failure(SchedulerStopped()))

    def _turn(self) -> None:
        end, steps = self._clock() + TURN_SECONDS, 0
        while self._shares and steps < TURN_STEPS and self._clock() < end:
            client, share = min(self._shares.items(), key=_used)
            self._used = share.used
            steps += self._slice(share)
            if not share.tasks and self._shares.get(client) is share:
                del self._shares[client]
        self._call = self._reactor.callLater(0, self._turn) if self._shares else None

    def _slice(self, share: _Share) -> int:
        """Run steps of the tasks of a client in turn; return the number of steps."""
        began, steps = self._clock(), 0
        while share.tasks and steps < SLICE_STEPS and self._clock() < began + SLICE_SECONDS:
            steps += 1
            task = share.tasks.popleft()
            if not task.stopped:
                _step(task, share)
        share.used += self._clock() - began
        return steps


def _step(task: ScheduledTask, share: _Share) -> None:
    try:
        next(task.steps)
    except StopIteration:
        task.done(None)
    except Exception:
        task.done(Failure())
    else:
        share.tasks.append(task)


def _used(item: tuple[str, _Share]) -> float:
    return item[1].used
