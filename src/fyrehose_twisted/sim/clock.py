"""Virtual clock for Twisted code: a :class:`~twisted.internet.task.Clock` that scales to many timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import classImplements


class _MovableCall(DelayedCall):
    """Delayed call that notifies its clock of every new time. Twisted's does not report a later time."""

    def reset(self, secondsFromNow: float) -> None:  # Twisted's
        super().reset(secondsFromNow)
        self.resetter(self)

    def delay(self, secondsLater: float) -> None:  # Twisted's
        super().delay(secondsLater)
        self.resetter(self)


class HeapClock:
    """Clock that advances only on request and then makes the due calls.

    It behaves like :class:`twisted.internet.task.Clock`, call for call, but has no ``calls``, and
    :meth:`getDelayedCalls` returns a copy. Scheduling, moving, cancelling and making a call take logarithmic time on
    average in the number of pending calls. Memory is proportional to that number, however many calls were cancelled or
    moved. :meth:`run` and :meth:`run_until` are additions: they advance time from call to call, as in a simulation.

    Calls of equal time are made in the order in which they were scheduled. A call that ``reset`` or ``delay`` moves to
    the time of others precedes them if it was due earlier, and follows them if it was due later. Several calls moved
    from the same side keep their order if nothing was scheduled or called in between; otherwise the last one moved is
    the first, or the last, of all.

    A call scheduled for the past is due at once. An exception of a call is raised by the method that made the call;
    that call counts as made, and the others remain pending.

    :param now: initial time in seconds.
    :ivar rightNow: current time in seconds. Setting it makes no calls.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.rightNow = now
        # A heap entry is valid while it is the entry of its call in `_entries`. All numbers differ, so calls themselves
        # are never compared.
        self._heap: list[tuple[float, int, DelayedCall]] = []
        self._entries: dict[DelayedCall, tuple[float, int, DelayedCall]] = {}
        self._moved: set[DelayedCall] = set()
        self._numbers = count(1)

    def seconds(self) -> float:
        """Return the time in seconds. During :meth:`advance`, this is the time at its end."""
        return self.rightNow

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> IDelayedCall:
        """Schedule ``callable`` with the remaining arguments after ``delay`` seconds, which may be negative.

        :returns: the pending call, which can be moved or cancelled.
        """
        time = self.seconds() + delay
        call = _MovableCall(time, callable, args, kw, self._call_cancelled, self._moved.add, self.seconds)
        self._reposition_moved()
        self._push(call, next(self._numbers))
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return the pending calls in order of execution.

        Moved calls stay in their old places until a call is scheduled or the clock advances.
        """
        return [call for _, _, call in sorted(self._entries.values())]

    def advance(self, amount: float) -> None:
        """Advance the time by ``amount`` seconds at once, then make all due calls.

        These include due calls that they schedule.
        """
        self.rightNow += amount
        while call := self._next_due(self.seconds()):
            call.called = 1
            call.func(*call.args, **call.kw)

    def pump(self, timings: Iterable[float]) -> None:
        """Advance by each of ``timings``, in seconds, in order."""
        for amount in timings:
            self.advance(amount)

    def run(self, seconds: float) -> None:
        """Advance from call to call by ``seconds``; see :meth:`run_until`.

        :raises ValueError: if ``seconds`` is negative or not finite.
        """
        self.run_until(self.rightNow + seconds)

    def run_until(self, when: float) -> None:
        """Advance from call to call up to ``when``. During each call, the time is that for which it was scheduled.

        Overdue calls come first, at the current time: time never goes back. If a call raises, the clock stays at the
        time of that call.

        :raises ValueError: if ``when`` is before the current time or not finite.
        """
        if not self.rightNow <= when < inf:
            raise ValueError(f"cannot advance from {self.rightNow} to {when}")
        # A call may advance the clock itself, even beyond `when`; calls that it then schedules may be due too.
        while call := self._next_due(max(when, self.rightNow)):
            self.rightNow = max(self.rightNow, call.getTime())
            call.called = 1
            call.func(*call.args, **call.kw)
        self.rightNow = max(self.rightNow, when)

    def _next_due(self, until: float) -> DelayedCall | None:
        """Remove and return the first call due at ``until``, if any."""
        self._reposition_moved()
        while self._heap and self._heap[0][0] <= until:
            entry = heappop(self._heap)
            call = entry[2]
            if self._entries.get(call) is entry:
                self._remove(call)
                return call
        return None

    def _push(self, call: DelayedCall, number: int) -> None:
        entry = self._entries[call] = (call.getTime(), number, call)
        heappush(self._heap, entry)

    def _reposition_moved(self) -> None:
        """Move rescheduled calls to their new places.

        Called where task.Clock sorts its list. That sort is stable: among calls of equal time, those from earlier times
        come first, those from later times last, each group in its previous order.
        """
        if not self._moved:
            return
        old = sorted(self._entries[call] for call in self._moved)
        self._moved.clear()
        for time, _, call in reversed(old):
            if time < call.getTime():
                self._push(call, -next(self._numbers))
        for time, _, call in old:
            if time > call.getTime():
                self._push(call, next(self._numbers))
        self._compact()

    def _call_cancelled(self, call: DelayedCall) -> None:
        self._moved.discard(call)
        self._remove(call)

    def _remove(self, call: DelayedCall) -> None:
        del self._entries[call]
        self._compact()

    def _compact(self) -> None:
        """Drop invalid heap entries when they are the majority, at O(1) per dropped entry."""
        if len(self._heap) > 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapify(self._heap)


classImplements(HeapClock, IReactorTime)
