from __future__ import annotations

from errno import EPERM

import pytest

from fyrehose_twisted.cli.doctor import clock
from fyrehose_twisted.cli.doctor.clock import ClockSample, KernelClock, assess_steps, assess_synchronisation
from fyrehose_twisted.cli.doctor.finding import Level

REFUSED = OSError(EPERM, "Operation not permitted", "adjtimex")


@pytest.mark.parametrize(
    ("kept", "timesync", "level", "said"),
    [
        (KernelClock(True, 0.0125), False, Level.OK, "synchronised to within 12.5 ms"),
        (KernelClock(True, 9.0), False, Level.WARN, "possibly wrong by 9 s"),
        (KernelClock(False, 16.0), False, Level.WARN, "not synchronised"),
        (KernelClock(False, 16.0), True, Level.WARN, "not synchronised"),
        (REFUSED, True, Level.OK, "systemd-timesyncd has set it"),
        (REFUSED, False, Level.WARN, "cannot be known: adjtimex: Operation not permitted"),
    ],
)
def test_the_synchronisation_of_the_clock_is_assessed(
    kept: KernelClock | OSError, timesync: bool, level: Level, said: str
) -> None:
    found = assess_synchronisation(kept, timesync=timesync)
    assert found.level == level
    assert said in found.found


@pytest.mark.parametrize(
    ("wall", "level", "said"),
    [
        (10.5, Level.OK, "0.5 s passed"),
        (10.45, Level.OK, "0.5 s passed"),
        (70.5, Level.WARN, "set ahead by 60 s within the 0.5 s"),
        (0.5, Level.WARN, "set back by 10 s within the 0.5 s"),
    ],
)
def test_steps_of_the_clock_are_assessed(wall: float, level: Level, said: str) -> None:
    found = assess_steps(ClockSample(10.0, 5.0), ClockSample(wall, 5.5))
    assert found.level == level
    assert said in found.found


def test_a_stopped_clock_is_a_warning() -> None:
    assert assess_steps(ClockSample(10.0, 5.0), ClockSample(10.0, 5.0)).level == Level.WARN


def test_clock_checks_are_unknown_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(clock.os.path, "exists", lambda path: False)
    found = clock.check_synchronisation()
    assert found.level == Level.WARN
    assert found.found == "cannot be known: only supported on Linux, not on darwin"
