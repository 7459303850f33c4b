"""Periodic calls that continue after exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs

from fyrehose_twisted.process.repeating import REPORT_INTERVAL, PeriodicCall

SOURCE = Path(__file__).resolve().parents[2] / "src" / "fyrehose_twisted"


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    with capturedLogs() as events:
        yield events


def raises() -> None:
    raise TypeError("a bug")


@pytest.mark.parametrize("call", [raises, lambda: fail(TypeError("a bug"))])
def test_a_failed_periodic_call_is_logged_and_repeated(call: Callable[[], object], logged: list[LogEvent]) -> None:
    clock, calls = Clock(), 0

    def count() -> object:
        nonlocal calls
        calls += 1
        return call() if calls == 1 else None

    repeating = PeriodicCall("the count", count, clock)
    repeating.start(2.0)
    for expected in (2, 3, 4):
        clock.advance(2.0)
        assert calls == expected
    assert repeating.running
    assert [(event["what"], str(event["log_failure"].value)) for event in logged] == [("the count", "a bug")]
    repeating.stop()
    repeating.stop()
    assert not repeating.running
    assert clock.getDelayedCalls() == []


def test_a_periodic_call_that_keeps_failing_is_logged_once_a_minute(logged: list[LogEvent]) -> None:
    clock = Clock()
    repeating = PeriodicCall("the count", raises, clock)
    repeating.start(1.0)
    clock.pump([1.0] * (int(REPORT_INTERVAL) - 1))
    assert len(logged) == 1
    clock.advance(1.0)
    assert len(logged) == 2
    repeating.stop()


def test_a_periodic_call_waits_for_the_previous_one() -> None:
    clock, answers = Clock(), list[Deferred[None]]()

    def ask() -> Deferred[None]:
        answers.append(Deferred())
        return answers[-1]

    repeating = PeriodicCall("the question", ask, clock)
    repeating.start(1.0, now=False)
    assert answers == []
    clock.pump([1.0] * 3)
    assert len(answers) == 1
    answers[0].callback(None)
    clock.advance(1.0)
    assert len(answers) == 2
    repeating.stop()
    answers[1].callback(None)


def test_all_periodic_calls_use_the_repeating_helper() -> None:
    # LoopingCall itself imports the global reactor, even if it is given another clock.
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bLoopingCall\(", path.read_text("utf-8"))
    }
    assert found == set()
