"""Virtual time for Twisted shells: :class:`~twisted.internet.task.Clock` for programs with many timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer


class _MovableCall(DelayedCall):
    """A delayed call that tells its clock of every new time; the plain one keeps a later time to itself."""

    def reset(self, secondsFromNow: float) -> None:  # noqa: N803  # Twisted's
        super().reset(secondsFromNow)
        self.resetter(self)

    def delay(self, secondsLater: float) -> None:  # noqa: N803  # Twisted's
        super().delay(secondsLater)
        self.resetter(self)


@implementer(IReactorTime)
class HeapClock:
    """A clock that stands still until it is told to move, and then makes the calls that are due.

    It does what :class:`twisted.internet.task.Clock` does, call for call, except that it has no ``calls``, and that
    :meth:`getDelayedCalls` returns a copy. To schedule, move, cancel or make a call takes on average a time in
    proportion to the logarithm of the number of pending calls. Memory is in proportion to that number, however many
    calls were cancelled or moved. :meth:`run` and :meth:`run_until` are its own: they let time pass from call to call,
    as in a simulation.

    Calls of equal time are made in the order in which they were scheduled. A call that ``reset`` or ``delay`` moves to
    the time of others comes before them if it was due before them, and after them if it was due after them. If several
    come from the same side, those that were moved with nothing scheduled or called in between keep the order they had;
    otherwise the last to be moved is the first, or the last, of all.

    A call that is scheduled for the past is due at once. What a call raises is raised by the method that made the
    call; that call counts as made, and the others are still pending.

    :param now: the time at birth, in seconds.
    :ivar rightNow: the time, in seconds. Setting it makes no calls.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.rightNow = now
        # An entry counts while it is the one that `_entries` has for its call. Their numbers all differ, so that calls
        # themselves are never compared.
        self._heap: list[tuple[float, int, DelayedCall]] = []
        self._entries: dict[DelayedCall, tuple[float, int, DelayedCall]] = {}
        self._moved: set[DelayedCall] = set()
        self._numbers = count(1)

    def seconds(self) -> float:
        """Return the time, in seconds. During :meth:`advance`, that is the time at which it ends."""
        return self.rightNow

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> IDelayedCall:
        """Call ``callable`` with the remaining arguments after ``delay`` seconds, which may be negative.

        :returns: the pending call, to be moved or cancelled.
        """
        time = self.seconds() + delay
        call = _MovableCall(time, callable, args, kw, self._call_cancelled, self._moved.add, self.seconds)
        self._reposition_moved()
        self._push(call, next(self._numbers))
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return the pending calls in the order in which they will be made.

        Those that were moved are in their old places until something is scheduled or the clock moves.
        """
        return [call for _, _, call in sorted(self._entries.values())]

    def advance(self, amount: float) -> None:
        """Move the time by ``amount`` seconds at once, then make every call that is due.

        Among them are those that they schedule, if due by then.
        """
        self.rightNow += amount
        while call := self._next_due(self.seconds()):
            call.called = 1
            call.func(*call.args, **call.kw)

    def pump(self, timings: Iterable[float]) -> None:
        """Advance by each of ``timings``, in seconds, one after the other."""
        for amount in timings:
            self.advance(amount)

    def run(self, seconds: float) -> None:
        """Let that many seconds pass; see :meth:`run_until`.

        :raises ValueError: if ``seconds`` is negative or not finite.
        """
        self.run_until(self.rightNow + seconds)

    def run_until(self, when: float) -> None:
        """Let time pass up to ``when``; during each call, the clock stands at the time for which it was scheduled.

        What is overdue is called first, and at the present time: time does not go back. If a call raises, the clock
        remains where it stood during that call.

        :raises ValueError: if ``when`` lies before the present time or is not finite.
        """
        if not self.rightNow <= when < inf:
            raise ValueError(f"it is {self.rightNow}, and time cannot pass from there up to {when}")
        # A call may advance the clock itself, even beyond `when`, and what it then schedules may be due as well.
        while call := self._next_due(max(when, self.rightNow)):
            self.rightNow = max(self.rightNow, call.getTime())
            call.called = 1
            call.func(*call.args, **call.kw)
        self.rightNow = max(self.rightNow, when)

    def _next_due(self, until: float) -> DelayedCall | None:
        """Take the first of the calls that are due at ``until``, if there are any."""
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
        """Give the calls that were moved their new places.

        This is done where task.Clock sorts its list, which is stable: what arrives from an earlier time comes first
        among its equals, what arrives from a later time comes last, and either kind keeps the order it had.
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
        """Drop the entries that no longer count when they are the majority: O(1) for each that is dropped."""
        if len(self._heap) > 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapify(self._heap)
