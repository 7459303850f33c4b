"""Checks of the system clock: synchronisation and steps."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, unknown, warn

CLOCK, CLOCK_STEPS = "clock", "clock runs"

TIMESYNC = Path("/run/systemd/timesync/synchronized")
"""File that systemd-timesyncd touches at each synchronisation."""

STEP = 0.1
"""Difference from elapsed time, in seconds, above which a clock change counts as a step."""

LARGE_ERROR = 5.0
"""Seconds of possible error from which on tokens are at risk, which are made for steps of 30 s."""

_UNSYNC = 0x40  # Of <linux/timex.h>.
_TIME_ERROR = 5
_CONSEQUENCE = (
    "tokens are valid for steps of 30 s, timers of a backbone follow this clock, and records are stamped with it"
)
_ADVICE = f"run chrony or systemd-timesyncd: {_CONSEQUENCE}"
_CONTAINER_ADVICE = f"check that chrony or another service synchronises it, in a container on its host: {_CONSEQUENCE}"


class KernelClock(NamedTuple):
    """State of the kernel's clock.

    :ivar synchronised: whether a service keeps it synchronised.
    :ivar error: largest error in seconds, as estimated by the kernel.
    """

    synchronised: bool
    error: float


class ClockSample(NamedTuple):
    """Simultaneous sample of the system clock and the steady clock, in seconds."""

    wall: float
    steady: float


class _Timex(ctypes.Structure):
    # The beginning is the same for all C libraries of Linux; the rest is larger than any of them needs.
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    )


def read_kernel_clock() -> KernelClock:
    """Return the state of the kernel's clock, without changing it.

    :raises OSError: if the state is unavailable, as in many containers, or the system is not Linux.
    """
    if sys.platform != "linux":
        raise OSError(f"only Linux is supported, and this is {sys.platform}")
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (AttributeError, OSError) as error:
        raise OSError(f"the C library has no adjtimex ({error})") from error
    timex = _Timex()
    state = adjtimex(ctypes.byref(timex))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "adjtimex")
    return KernelClock(state != _TIME_ERROR and not timex.status & _UNSYNC, timex.maxerror / 1e6)


def assess_synchronisation(kept: KernelClock | OSError, *, timesync: bool) -> DoctorFinding:
    """Assess the synchronisation of the clock.

    :param kept: state of the clock, or the error in reading it.
    :param timesync: whether systemd-timesyncd reports that it has set the clock.
    """
    if isinstance(kept, OSError):
        if timesync:
            return ok(CLOCK, "systemd-timesyncd has set it since the start")
        return unknown(CLOCK, kept, _CONTAINER_ADVICE)
    if not kept.synchronised:
        return warn(CLOCK, "no service keeps it right: the kernel reports that it is not synchronised", _ADVICE)
    if kept.error > LARGE_ERROR:
        found = f"synchronised, but may still be wrong by {kept.error:.3g} s"
        return warn(CLOCK, found, f"check that its time servers are reachable: {_CONSEQUENCE}")
    return ok(CLOCK, f"synchronised, right to within {kept.error * 1000:.3g} ms")


def assess_steps(before: ClockSample, after: ClockSample) -> DoctorFinding:
    """Assess whether the clock was stepped between two samples."""
    passed = after.steady - before.steady
    step = after.wall - before.wall - passed
    if passed <= 0:
        return warn(CLOCK_STEPS, "the steady clock stands still", "check whether this machine is emulated")
    if abs(step) > STEP:
        way = "ahead" if step > 0 else "back"
        found = f"the clock was set {way} by {abs(step):.3g} s within the {passed:.3g} s of this check"
        return warn(
            CLOCK_STEPS, found, f"slew the clock instead of setting it, with one time service only: {_CONSEQUENCE}"
        )
    return ok(CLOCK_STEPS, f"{passed:.3g} s passed, on this clock and on the steady clock; it was not set meanwhile")


def sample_clocks() -> ClockSample:
    """Sample both clocks."""
    return ClockSample(time.time(), time.monotonic())


def check_synchronisation() -> DoctorFinding:
    """Check the synchronisation of the clock."""
    try:
        kept: KernelClock | OSError = read_kernel_clock()
    except OSError as error:
        kept = error
    return assess_synchronisation(kept, timesync=os.path.exists(TIMESYNC))


def check_steps(before: ClockSample) -> DoctorFinding:
    """Check for clock steps since ``before``."""
    return assess_steps(before, sample_clocks())
