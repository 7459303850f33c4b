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

STEP = 1.0
"""Without a timer of the kernel: seconds after which the reactor is asked again what time it is."""

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_TFD_TIMER_ABSTIME = 1  # Of <sys/timerfd.h>; Python has it from 3.13 on.


def steady_seconds() -> float:
    """Return the seconds since the machine was started, those that it slept included where the system counts them."""
    return time.clock_gettime(_CLOCK)


@implementer(IDelayedCall)
class SteadyCall:
    """A call that :class:`SteadyClock` makes later."""

    __slots__ = ("_arguments", "_call", "_clock", "_state", "number", "time")

    def __init__(self, clock: SteadyClock, call: Callable[..., object], arguments: Any) -> None:
        self.time = 0.0
        self.number = -1
        """Which entry of the clock's heap is the valid one."""
        self._clock = clock
        self._call = call
        self._arguments = arguments
        self._state: type[Exception] | None = None

    def getTime(self) -> float:  # noqa: N802
        """Return when it is to be made, on the clock of :meth:`SteadyClock.seconds`."""
        return self.time

    def active(self) -> bool:
        """Return whether it is still to be made."""
        return self._state is None

    def cancel(self) -> None:
        """Do not make it."""
        self._check()
        self._state = AlreadyCancelled
        self._arguments = ((), {})
        self._clock.forget(self)

    def reset(self, seconds_from_now: float) -> None:
        """Make it so many seconds from now instead."""
        self._check()
        self._clock.move(self, self._clock.seconds() + seconds_from_now)

    def delay(self, seconds_later: float) -> None:
        """Make it so many seconds later than it was to be."""
        self._check()
        self._clock.move(self, self.time + seconds_later)

    def make(self) -> None:
        """Make it now."""
        self._state = AlreadyCalled
        positional, named = self._arguments
        self._call(*positional, **named)

    def _check(self) -> None:
        if self._state is not None:
            raise self._state


@implementer(IReactorTime)
class SteadyClock:
    """A reactor to whoever is given it, but for its clock and its timers.

    Twisted's own go by the time of day. If that is set back by an hour, no timer of the reactor fires for an hour; and
    a machine that was suspended has to find out at once what has run out. So all timers are in a heap here, and one
    timer of the kernel that goes by this clock wakes the reactor for the next of them. Where there is none, the reactor
    is asked to look again after a second at most: a timer may be that late after a suspension.

    :param reactor: does everything else, and provides everything that it did.
    :param seconds: the clock; with another than the default there is no timer of the kernel for it.
    """

    log = Logger()

    def __init__(self, reactor: Any, seconds: Callable[[], float] = steady_seconds) -> None:
        self._reactor = reactor
        self._seconds = seconds
        self._numbers = count()
        self._heap: list[tuple[float, int, SteadyCall]] = []
        self._stale = 0
        """Entries of the heap that are not valid any more."""
        self._soon: IDelayedCall | None = None
        self._step: IDelayedCall | None = None
        self._alarm: KernelTimer | None = None
        self._armed: float | None = None
        """When the alarm goes off."""
        self._has_timers = seconds is steady_seconds and IReactorFDSet.providedBy(reactor) and _timers() is not None
        alsoProvides(self, *providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def seconds(self) -> float:
        """Twisted: what time it is."""
        return self._seconds()

    def callLater(self, delay: float, callable: Any, *args: object, **kw: object) -> SteadyCall:
        """Twisted: make a call in ``delay`` seconds."""
        call = SteadyCall(self, callable, (args, kw))
        self._put(call, self.seconds() + delay)
        if delay <= 0:
            # Cheaper than the alarm. Should the time of day be set back just now, the next alarm makes it.
            if self._soon is None:
                self._soon = self._reactor.callLater(0, self._run_soon)
        else:
            self._arm()
        return call

    def getDelayedCalls(self) -> list[SteadyCall]:
        """Twisted: the calls that are still to be made."""
        return [call for _, number, call in sorted(self._heap) if number == call.number]

    def move(self, call: SteadyCall, when: float) -> None:
        """Make a call at another time."""
        self._stale += 1
        self._put(call, when)
        self._arm()

    def forget(self, call: SteadyCall) -> None:
        """Do not make a call."""
        call.number = -1
        self._stale += 1
        self._tidy()
        if not self._heap:
            self._disarm()

    def _put(self, call: SteadyCall, when: float) -> None:
        call.time = when
        call.number = next(self._numbers)
        heapq.heappush(self._heap, (when, call.number, call))
        self._tidy()

    def _tidy(self) -> None:
        """Keep memory in proportion to the calls that are to be made."""
        if 2 * self._stale > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].number]
            heapq.heapify(self._heap)
            self._stale = 0

    def _run_soon(self) -> None:
        self._soon = None
        self._run()

    def _run_step(self) -> None:
        self._step = self._armed = None
        self._run()

    def _run_alarm(self) -> None:
        self._armed = None
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
                call.make()
            except Exception:
                self.log.failure("a call that was due failed")
        self._tidy()
        self._arm()

    def _arm(self) -> None:
        while self._heap and self._heap[0][1] != self._heap[0][2].number:
            heapq.heappop(self._heap)
            self._stale -= 1
        if not self._heap:
            self._disarm()
            return
        when = self._heap[0][0]
        if self._has_timers:
            if self._armed is None or when < self._armed:
                try:
                    self._alarm = self._alarm or KernelTimer(self._reactor, self._run_alarm)
                    self._alarm.set(when)
                except OSError:  # The kernel lacks it after all, or has no descriptor left.
                    self._has_timers = False
                    self._disarm()
                    self._arm()
                    return
                self._armed = when
            return
        if self._soon is not None and when <= self.seconds():
            return
        if self._step is not None and self._armed is not None:
            if self._armed <= when:
                return
            self._step.cancel()
        delay = min(max(0.0, when - self.seconds()), STEP)
        self._armed = self.seconds() + delay
        self._step = self._reactor.callLater(delay, self._run_step)

    def _disarm(self) -> None:
        """Let the reactor go, which a test or a program that has ended may want to see clean."""
        self._armed = None
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        if self._step is not None:
            self._step.cancel()
            self._step = None
        if self._soon is not None and not self._heap:
            self._soon.cancel()
            self._soon = None


class KernelTimer:
    """A timer of Linux on the steady clock, as something that the reactor reads.

    :param ring: called when the time has come.
    """

    def __init__(self, reactor: Any, ring: Callable[[], None]) -> None:
        timers = _timers()
        assert timers is not None, "whoever makes one has looked"
        self._library = timers
        self._reactor = reactor
        self._ring = ring
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
        self._ring()

    def connectionLost(self, reason: Any) -> None:
        """Twisted: the reactor has stopped."""

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _timers() -> Any:
    """Return the C library if it has timers that are descriptors, else ``None``."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.timerfd_create  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library
