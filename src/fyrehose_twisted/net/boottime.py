"""A reactor whose clock nobody sets, and which goes on while the machine is suspended."""

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
"""Without a timer of the kernel: seconds after which the reactor is asked again what time it is."""

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TFD_TIMER_ABSTIME = 1  # Of <sys/timerfd.h>; Python has it from 3.13 on.


def boottime_seconds() -> float:
    """Return the seconds since the machine was started, those that it slept included where the system counts them."""
    return time.clock_gettime(_CLOCK)


@implementer(IDelayedCall)
class BoottimeCall:
    """A call that :class:`BoottimeReactor` makes later."""

    __slots__ = ("_arguments", "_call", "_clock", "_state", "number", "time")

    def __init__(self, clock: BoottimeReactor, call: Callable[..., object], arguments: Any) -> None:
        self.time = 0.0
        self.number = -1
        """Which entry of the clock's heap is the valid one."""
        self._clock = clock
        self._call = call
        self._arguments = arguments
        self._state: type[Exception] | None = None

    def getTime(self) -> float:  # noqa: N802
        """Return when it is to be made, on the clock of :meth:`BoottimeReactor.seconds`."""
        return self.time

    def active(self) -> bool:
        """Return whether it is still to be made."""
        return self._state is None

    def cancel(self) -> None:
        """Do not make it."""
        self._check()
        self._state = AlreadyCancelled
        self._arguments = ((), {})
        self._clock.discard(self)

    def reset(self, seconds_from_now: float) -> None:
        """Make it so many seconds from now instead."""
        self._check()
        self._clock.reschedule(self, self._clock.seconds() + seconds_from_now)

    def delay(self, seconds_later: float) -> None:
        """Make it so many seconds later than it was to be."""
        self._check()
        self._clock.reschedule(self, self.time + seconds_later)

    def run(self) -> None:
        """Make it now."""
        self._state = AlreadyCalled
        positional, named = self._arguments
        self._call(*positional, **named)

    def _check(self) -> None:
        if self._state is not None:
            raise self._state


@implementer(IReactorTime)
class BoottimeReactor:
    """A reactor to whoever is given it, but for its clock and its timers.

    Twisted's own go by the time of day. If that is set back by an hour, no timer of the reactor fires for an hour; and
    a machine that was suspended has to find out at once what has run out. So all timers are in a heap here, and one
    timer of the kernel that goes by this clock wakes the reactor for the next of them. Where there is none, the reactor
    is asked to look again after a second at most: a timer may be that late after a suspension.

    :param reactor: does everything else, and provides everything that it did.
    :param seconds: the clock; with another than the default there is no timer of the kernel for it.
    """

    log = Logger()

    def __init__(self, reactor: Any, seconds: Callable[[], float] = boottime_seconds) -> None:
        self._reactor = reactor
        self._seconds = seconds
        self._numbers = count()
        self._heap: list[tuple[float, int, BoottimeCall]] = []
        self._stale = 0
        """Entries of the heap that are not valid any more."""
        self._immediate_call: IDelayedCall | None = None
        self._poll_call: IDelayedCall | None = None
        self._timer: TimerFd | None = None
        self._wakeup_at: float | None = None
        """When the alarm goes off."""
        self._has_timerfd = (
            seconds is boottime_seconds and IReactorFDSet.providedBy(reactor) and _load_timerfd_library() is not None
        )
        alsoProvides(self, *providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def seconds(self) -> float:
        """Twisted: what time it is."""
        return self._seconds()

    def callLater(self, delay: float, callable: Any, *args: object, **kw: object) -> BoottimeCall:
        """Twisted: make a call in ``delay`` seconds."""
        call = BoottimeCall(self, callable, (args, kw))
        self._push(call, self.seconds() + delay)
        if delay <= 0:
            # Cheaper than the alarm. Should the time of day be set back just now, the next alarm makes it.
            if self._immediate_call is None:
                self._immediate_call = self._reactor.callLater(0, self._run_immediate)
        else:
            self._arm()
        return call

    def getDelayedCalls(self) -> list[BoottimeCall]:
        """Twisted: the calls that are still to be made."""
        return [call for _, number, call in sorted(self._heap) if number == call.number]

    def reschedule(self, call: BoottimeCall, when: float) -> None:
        """Make a call at another time."""
        self._stale += 1
        self._push(call, when)
        self._arm()

    def discard(self, call: BoottimeCall) -> None:
        """Do not make a call."""
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
        """Keep memory in proportion to the calls that are to be made."""
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
        """Make the calls whose time has come; those that they ask for come in the next turn."""
        now, first = self.seconds(), next(self._numbers)
        while self._heap and self._heap[0][0] <= now and self._heap[0][1] < first:
            _, number, call = heapq.heappop(self._heap)
            if number != call.number:
                self._stale -= 1
                continue
            try:
                call.run()
            except Exception:
                self.log.failure("a call that was due failed")
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
                except OSError:  # The kernel lacks it after all, or has no descriptor left.
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
        """Let the reactor go, which a test or a program that has ended may want to see clean."""
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
    """A timer of Linux on the steady clock, as something that the reactor reads.

    :param ring: called when the time has come.
    """

    def __init__(self, reactor: Any, on_expiry: Callable[[], None]) -> None:
        timers = _load_timerfd_library()
        assert timers is not None, "whoever makes one has looked"
        self._library = timers
        self._reactor = reactor
        self._on_expiry = on_expiry
        self._descriptor: int = timers.timerfd_create(_CLOCK, os.O_NONBLOCK | os.O_CLOEXEC)
        self._check(self._descriptor)
        reactor.addReader(self)

    def set(self, when: float) -> None:
        """Ring at ``when``, and at no other time."""
        nanoseconds = max(1, int(when * 1e9) + 1)  # 0 would switch it off; a hair late is better than too early.
        setting = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, 1_000_000_000))
        self._check(self._library.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, setting, None))

    def close(self) -> None:
        """Let go of it."""
        self._reactor.removeReader(self)
        os.close(self._descriptor)
        self._descriptor = -1

    def fileno(self) -> int:
        """Twisted: what to wait for."""
        return self._descriptor

    def logPrefix(self) -> str:
        """Twisted: who this is."""
        return "steady clock"

    def doRead(self) -> None:
        """Twisted: it rang."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, 8)
        self._on_expiry()

    def connectionLost(self, reason: Any) -> None:
        """Twisted: the reactor has stopped."""

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _load_timerfd_library() -> Any:
    """Return the C library if it has timers that are descriptors, else ``None``."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.timerfd_create  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library
