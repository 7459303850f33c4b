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
"""Clock error, in seconds, above which tokens, which are issued for steps of 30 s, may fail to verify."""

_UNSYNC = 0x40  # Of <linux/timex.h>.
_TIME_ERROR = 5
_CONSEQUENCE = "tokens are valid for steps of 30 s, backbone timers use this clock, and records carry its time"
_ADVICE = f"run chrony or systemd-timesyncd: {_CONSEQUENCE}"
_CONTAINER_ADVICE = f"check (in a container: on its host) that chrony or the like is running: {_CONSEQUENCE}"


class KernelClock(NamedTuple):
    """Synchronisation state of the kernel clock.

    :ivar synchronised: whether a time service synchronises the clock.
    :ivar error: maximum error estimated by the kernel, in seconds.
    """

    synchronised: bool
    error: float


class ClockSample(NamedTuple):
    """Simultaneous sample of the system clock and the steady clock, in seconds."""

    wall: float
    steady: float


class _Timex(ctypes.Structure):
    # All C libraries of Linux share the first fields. ``rest`` is larger than the remainder in any of them.
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
    """Read the state of the kernel clock without changing it.

    :raises OSError: if the state is unavailable, as in many containers and on systems other than Linux.
    """
    if sys.platform != "linux":
        raise OSError(f"only supported on Linux, not on {sys.platform}")
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

    :param kept: state of the kernel clock, or the error that prevented reading it.
    :param timesync: whether systemd-timesyncd reports that it has synchronised the clock.
    """
    if isinstance(kept, OSError):
        if timesync:
            return ok(CLOCK, "systemd-timesyncd has set it since the start")
        return unknown(CLOCK, kept, _CONTAINER_ADVICE)
    if not kept.synchronised:
        return warn(CLOCK, "the kernel reports it as not synchronised", _ADVICE)
    if kept.error > LARGE_ERROR:
        found = f"synchronised, but possibly wrong by {kept.error:.3g} s"
        return warn(CLOCK, found, f"check that its time servers are reachable: {_CONSEQUENCE}")
    return ok(CLOCK, f"synchronised to within {kept.error * 1000:.3g} ms")


def assess_steps(before: ClockSample, after: ClockSample) -> DoctorFinding:
    """Assess whether the clock was stepped between two samples."""
    passed = after.steady - before.steady
    step = after.wall - before.wall - passed
    if passed <= 0:
        return warn(CLOCK_STEPS, "the steady clock does not advance", "check whether this machine is emulated")
    if abs(step) > STEP:
        way = "ahead" if step > 0 else "back"
        found = f"the clock was set {way} by {abs(step):.3g} s within the {passed:.3g} s of this check"
        return warn(CLOCK_STEPS, found, f"slew it instead, and run a single time service: {_CONSEQUENCE}")
    return ok(CLOCK_STEPS, f"{passed:.3g} s passed on both clocks; no step")


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
