"""Reactor proxy with a monotonic clock that includes suspend (CLOCK_BOOTTIME)."""

from __future__ import annotations

import ctypes
import heapq
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorFDSet, IReactorTime
from twisted.logger import Logger
from zope.interface import alsoProvides, implementer, providedBy

POLL_INTERVAL = 1.0
"""Seconds between clock checks without a kernel timer."""

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TFD_TIMER_ABSTIME = 1  # From <sys/timerfd.h>; Python has it since 3.13.


def boottime_seconds() -> float:
    """Return the seconds since boot, including suspend where the system supports it."""
    return time.clock_gettime(_CLOCK)


@implementer(IDelayedCall)
class BoottimeCall:
    """Delayed call of a :class:`BoottimeReactor`."""

    __slots__ = ("_arguments", "_call", "_clock", "_state", "number", "time")

    def __init__(self, clock: BoottimeReactor, call: Callable[..., object], arguments: Any) -> None:
        self.time = 0.0
        self.number = -1
        """Number of the valid heap entry of this call."""
        self._clock = clock
        self._call = call
        self._arguments = arguments
        self._state: type[Exception] | None = None

    def getTime(self) -> float:
        """Return the due time on the clock of :meth:`BoottimeReactor.seconds`."""
        return self.time

    def active(self) -> bool:
        """Return whether the call is pending."""
        return self._state is None

    def cancel(self) -> None:
        """Cancel the call."""
        self._check()
        self._state = AlreadyCancelled
        self._arguments = ((), {})
        self._clock.discard(self)

    def reset(self, seconds_from_now: float) -> None:
        """Reschedule the call relative to now."""
        self._check()
        self._clock.reschedule(self, self._clock.seconds() + seconds_from_now)

    def delay(self, seconds_later: float) -> None:
        """Postpone the call."""
        self._check()
        self._clock.reschedule(self, self.time + seconds_later)

    def run(self) -> None:
        """Run the call."""
        self._state = AlreadyCalled
        positional, named = self._arguments
        self._call(*positional, **named)

    def _check(self) -> None:
        if self._state is not None:
            raise self._state


@implementer(IReactorTime)
class BoottimeReactor:
    """Proxy for a reactor that replaces its clock and timers with CLOCK_BOOTTIME.

    Twisted's timers use the time of day. If that is set back by an hour, no timer fires for an hour; and after a
    suspend, expired timers must fire at once. All timers are therefore in a heap here, and a kernel timer on this clock
    wakes the reactor for the next one. Without kernel timers the reactor polls the clock every second, so that a timer
    may be that late after a suspend.

    :param reactor: reactor for everything else.
    :param seconds: clock; kernel timers are available only for the default.
    """

    log = Logger()

    def __init__(self, reactor: Any, seconds: Callable[[], float] = boottime_seconds) -> None:
        self._reactor = reactor
        self._seconds = seconds
        self._numbers = count()
        self._heap: list[tuple[float, int, BoottimeCall]] = []
        self._stale = 0
        """Number of invalid heap entries."""
        self._immediate_call: IDelayedCall | None = None
        self._poll_call: IDelayedCall | None = None
        self._timer: TimerFd | None = None
        self._wakeup_at: float | None = None
        """Time of the next wakeup."""
        self._has_timerfd = (
            seconds is boottime_seconds and IReactorFDSet.providedBy(reactor) and _load_timerfd_library() is not None
        )
        alsoProvides(self, *providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def seconds(self) -> float:
        """Twisted: return the time."""
        return self._seconds()

    def callLater(self, delay: float, callable: Any, *args: object, **kw: object) -> BoottimeCall:
        """Twisted: schedule a call in ``delay`` seconds."""
        call = BoottimeCall(self, callable, (args, kw))
        self._push(call, self.seconds() + delay)
        if delay <= 0:
            # Cheaper than the kernel timer. If the time of day is set back now, the next wakeup runs the call.
            if self._immediate_call is None:
                self._immediate_call = self._reactor.callLater(0, self._run_immediate)
        else:
            self._arm()
        return call

    def getDelayedCalls(self) -> list[BoottimeCall]:
        """Twisted: return the pending calls."""
        return [call for _, number, call in sorted(self._heap) if number == call.number]

    def reschedule(self, call: BoottimeCall, when: float) -> None:
        """Move a call to another time."""
        self._stale += 1
        self._push(call, when)
        self._arm()

    def discard(self, call: BoottimeCall) -> None:
        """Remove a call."""
        call.number = -1
        self._stale += 1
        self._compact()
        if not self._heap:
            self._disarm()

    def _push(self, call: BoottimeCall, when: float) -> None:
        call.time = when
        call.number = next(self._numbers)
        heapq.heappush(self._heap, (when, call.number, call))
        self._compact()

    def _compact(self) -> None:
        """Drop invalid heap entries when they are the majority."""
        if 2 * self._stale > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].number]
            heapq.heapify(self._heap)
            self._stale = 0

    def _run_immediate(self) -> None:
        self._immediate_call = None
        self._run()

    def _run_poll(self) -> None:
        self._poll_call = self._wakeup_at = None
        self._run()

    def _run_timer(self) -> None:
        self._wakeup_at = None
        self._run()

    def _run(self) -> None:
        """Run the due calls. Calls that they schedule run in the next turn."""
        now, first = self.seconds(), next(self._numbers)
        while self._heap and self._heap[0][0] <= now and self._heap[0][1] < first:
            _, number, call = heapq.heappop(self._heap)
            if number != call.number:
                self._stale -= 1
                continue
            try:
                call.run()
            except Exception:
                self.log.failure("a delayed call failed")
        self._compact()
        self._arm()

    def _arm(self) -> None:
        while self._heap and self._heap[0][1] != self._heap[0][2].number:
            heapq.heappop(self._heap)
            self._stale -= 1
        if not self._heap:
            self._disarm()
            return
        when = self._heap[0][0]
        if self._has_timerfd:
            if self._wakeup_at is None or when < self._wakeup_at:
                try:
                    self._timer = self._timer or TimerFd(self._reactor, self._run_timer)
                    self._timer.set(when)
                except OSError:  # The kernel has no timerfd, or no descriptors are left.
                    self._has_timerfd = False
                    self._disarm()
                    self._arm()
                    return
                self._wakeup_at = when
            return
        if self._immediate_call is not None and when <= self.seconds():
            return
        if self._poll_call is not None and self._wakeup_at is not None:
            if self._wakeup_at <= when:
                return
            self._poll_call.cancel()
        delay = min(max(0.0, when - self.seconds()), POLL_INTERVAL)
        self._wakeup_at = self.seconds() + delay
        self._poll_call = self._reactor.callLater(delay, self._run_poll)

    def _disarm(self) -> None:
        """Release all reactor timers, so that an idle reactor is clean."""
        self._wakeup_at = None
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if self._poll_call is not None:
            self._poll_call.cancel()
            self._poll_call = None
        if self._immediate_call is not None and not self._heap:
            self._immediate_call.cancel()
            self._immediate_call = None


class TimerFd:
    """Linux timerfd on CLOCK_BOOTTIME that the reactor reads.

    :param on_expiry: called when the timer expires.
    """

    def __init__(self, reactor: Any, on_expiry: Callable[[], None]) -> None:
        timers = _load_timerfd_library()
        assert timers is not None, "the caller checks for timerfd"
        self._library = timers
        self._reactor = reactor
        self._on_expiry = on_expiry
        self._descriptor: int = timers.timerfd_create(_CLOCK, os.O_NONBLOCK | os.O_CLOEXEC)
        self._check(self._descriptor)
        reactor.addReader(self)

    def set(self, when: float) -> None:
        """Set the expiry time."""
        nanoseconds = max(1, int(when * 1e9) + 1)  # 0 would disarm the timer; slightly late is better than early.
        setting = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, 1_000_000_000))
        self._check(self._library.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, setting, None))

    def close(self) -> None:
        """Close the descriptor."""
        self._reactor.removeReader(self)
        os.close(self._descriptor)
        self._descriptor = -1

    def fileno(self) -> int:
        """Twisted: return the descriptor."""
        return self._descriptor

    def logPrefix(self) -> str:
        """Twisted: return the log prefix."""
        return "steady clock"

    def doRead(self) -> None:
        """Twisted: handle the expiry."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, 8)
        self._on_expiry()

    def connectionLost(self, reason: Any) -> None:
        """Twisted: the reactor has stopped."""

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _load_timerfd_library() -> Any:
    """Return the C library if it supports timerfd, else ``None``."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.timerfd_create  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library
