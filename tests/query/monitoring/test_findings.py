"""Findings that come and go, and the events that they make."""

from __future__ import annotations

import pytest

from fyrehose_twisted.query.monitoring.findings import (
    ATTENTION,
    DOWN,
    MAX_EVENTS,
    MERGE_WINDOW,
    OK,
    ActiveFindings,
    HealthFinding,
    RecentEvents,
    worst,
)

WARM = HealthFinding("a", ATTENTION, "warm", "is warm")
DEAD = HealthFinding("a", DOWN, "down", "is down: refused")


@pytest.fixture
def events() -> RecentEvents:
    return RecentEvents()


def told(events: RecentEvents) -> list[tuple[str, str, str]]:
    """Return level, subject and text, the oldest first."""
    return [(event["level"], event["subject"], event["text"]) for event in reversed(events.list())]


def test_the_worst_level_counts() -> None:
    assert (worst([]), worst([WARM]), worst([WARM, DEAD])) == (OK, ATTENTION, DOWN)


def test_the_worst_findings_come_first(events: RecentEvents) -> None:
    findings, other = ActiveFindings(events), DEAD._replace(subject="b")
    findings.update([WARM, other], 1.0)
    assert findings.current == [other, WARM]


def test_a_finding_is_told_when_it_begins_and_when_it_is_over(events: RecentEvents) -> None:
    findings = ActiveFindings(events)
    for now in (1.0, 2.0):
        findings.update([WARM], now)
    findings.update([], 3.0)
    assert told(events) == [(ATTENTION, "a", "is warm"), (OK, "a", "is OK again")]
    assert [event["at"] for event in events.list()] == [3.0, 1.0]


def test_what_was_down_is_back_even_if_it_still_wants_attention(events: RecentEvents) -> None:
    findings = ActiveFindings(events)
    findings.update([DEAD], 1.0)
    findings.update([WARM], 2.0)
    findings.update([], 3.0)
    assert told(events) == [
        (DOWN, "a", "is down: refused"),
        (ATTENTION, "a", "is warm"),
        (ATTENTION, "a", "is back"),
        (OK, "a", "is OK again"),
    ]


def test_a_finding_with_other_figures_is_not_told_again(events: RecentEvents) -> None:
    findings = ActiveFindings(events)
    for number in range(5):
        findings.update([WARM._replace(text=f"is at {number} degrees")], float(number))
    assert told(events) == [(ATTENTION, "a", "is at 0 degrees")]
    assert findings.for_subject("a")[0].text == "is at 4 degrees"


def test_a_finding_counts_only_after_it_has_lasted(events: RecentEvents) -> None:
    findings, slow = ActiveFindings(events), WARM._replace(hold=60.0)
    findings.update([slow], 0.0)
    findings.update([slow], 59.0)
    assert (findings.current, findings.for_subject("a")) == ([], [])
    findings.update([], 60.0)
    findings.update([slow], 61.0)
    findings.update([slow], 120.0)
    assert findings.current == []
    findings.update([slow], 121.0)
    assert findings.current == [slow]
    assert told(events) == [(ATTENTION, "a", "is warm")]


def test_losses_soon_after_one_another_are_one_event(events: RecentEvents) -> None:
    for at in (0.0, 10.0, MERGE_WINDOW):
        events.add(at, ATTENTION, "a", "lost {count}", 1_000)
    events.add(MERGE_WINDOW, ATTENTION, "b", "lost {count}", 1)
    events.add(MERGE_WINDOW + 1, ATTENTION, "a", "lost {count}", 5)
    assert told(events) == [
        (ATTENTION, "a", "lost 3,000 messages"),
        (ATTENTION, "b", "lost 1 message"),
        (ATTENTION, "a", "lost 5 messages"),
    ]


def test_a_text_from_elsewhere_is_no_format(events: RecentEvents) -> None:
    events.add(0.0, DOWN, "a", "is down: {count} {x} %s {")
    assert told(events) == [(DOWN, "a", "is down: {count} {x} %s {")]


def test_only_the_newest_events_are_remembered(events: RecentEvents) -> None:
    for number in range(MAX_EVENTS + 10):
        events.add(float(number), OK, "a", f"event {number}")
    assert len(events.list()) == MAX_EVENTS
    assert events.list()[0]["text"] == f"event {MAX_EVENTS + 9}"
