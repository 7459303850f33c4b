"""Timer of a simulated node."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.sim.scheduler import Scheduler
from fyrehose_twisted.sim.wallclock import CLOCK_GRAIN, WallClock


class TickTimer:
    """Timer that ticks one node at its deadline, like the driver's.

    :param tick: called when a tick is due; it begins with :meth:`begin_tick`.
    :ivar deadline: deadline of the node on the clock of the host, if it has one.
    :ivar ticks_this_moment: ticks within this moment of virtual time since the node was last called otherwise.
    """

    __slots__ = ("_clock", "_due_at", "_due_call", "_scheduler", "_tick", "_ticked_at", "deadline", "ticks_this_moment")

    def __init__(self, scheduler: Scheduler, clock: WallClock, tick: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._tick = tick
        self.deadline: float | None = None
        self.ticks_this_moment = 0
        self._ticked_at = 0.0
        self._due_at: float | None = None
        self._due_call = 0

    def arm(self, deadline: float | None) -> None:
        """Schedule a tick at ``deadline``, or none."""
        self.deadline = deadline
        if deadline is None:
            self.disarm()
            return
        scheduler = self._scheduler
        due = max(self._clock.true_time_at(deadline), scheduler.now)
        # Like the driver: an early tick costs less than moving it repeatedly.
        if self._due_at is None or due < self._due_at:
            self.disarm()
            self._due_at = due
            self._due_call = scheduler.call_at(due, self._due)

    def disarm(self) -> None:
        """Cancel the scheduled tick, if any."""
        if self._due_at is not None:
            self._due_at = None
            self._scheduler.cancel(self._due_call)

    def begin_tick(self) -> float:
        """Count a tick; return its time on the clock of the host."""
        moment = self._scheduler.now
        now, deadline = self._clock.read(moment), self.deadline
        if deadline is not None and now < deadline < now + CLOCK_GRAIN:
            now = deadline  # Like the driver: rounding made the tick fire early.
        if moment != self._ticked_at:
            self._ticked_at = moment
            self.ticks_this_moment = 0
        self.ticks_this_moment += 1
        return now

    def _due(self) -> None:
        self._due_at = None
        self._tick()
