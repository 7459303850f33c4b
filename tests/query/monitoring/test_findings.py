"""Active findings and the events of their changes."""

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
    """Return level, subject and text of each event, oldest first."""
    return [(event["level"], event["subject"], event["text"]) for event in reversed(events.list())]


def test_worst_finding_level_is_the_overall_state() -> None:
    assert (worst([]), worst([WARM]), worst([WARM, DEAD])) == (OK, ATTENTION, DOWN)


def test_worst_findings_are_listed_first(events: RecentEvents) -> None:
    findings, other = ActiveFindings(events), DEAD._replace(subject="b")
    findings.update([WARM, other], 1.0)
    assert findings.current == [other, WARM]


def test_finding_makes_an_event_when_it_starts_and_when_it_ends(events: RecentEvents) -> None:
    findings = ActiveFindings(events)
    for now in (1.0, 2.0):
        findings.update([WARM], now)
    findings.update([], 3.0)
    assert told(events) == [(ATTENTION, "a", "is warm"), (OK, "a", "is OK again")]
    assert [event["at"] for event in events.list()] == [3.0, 1.0]


def test_subject_that_was_down_is_back_even_with_a_lesser_finding(events: RecentEvents) -> None:
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


def test_finding_with_changed_figures_makes_no_second_event(events: RecentEvents) -> None:
    findings = ActiveFindings(events)
    for number in range(5):
        findings.update([WARM._replace(text=f"is at {number} degrees")], float(number))
    assert told(events) == [(ATTENTION, "a", "is at 0 degrees")]
    assert findings.for_subject("a")[0].text == "is at 4 degrees"


def test_finding_with_a_hold_time_counts_only_once_it_has_lasted(events: RecentEvents) -> None:
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


def test_losses_within_the_merge_window_make_one_event(events: RecentEvents) -> None:
    for at in (0.0, 10.0, MERGE_WINDOW):
        events.add(at, ATTENTION, "a", "lost {count}", 1_000)
    events.add(MERGE_WINDOW, ATTENTION, "b", "lost {count}", 1)
    events.add(MERGE_WINDOW + 1, ATTENTION, "a", "lost {count}", 5)
    assert told(events) == [
        (ATTENTION, "a", "lost 3,000 messages"),
        (ATTENTION, "b", "lost 1 message"),
        (ATTENTION, "a", "lost 5 messages"),
    ]


def test_event_text_is_not_used_as_a_format_string(events: RecentEvents) -> None:
    events.add(0.0, DOWN, "a", "is down: {count} {x} %s {")
    assert told(events) == [(DOWN, "a", "is down: {count} {x} %s {")]


def test_number_of_remembered_events_is_limited(events: RecentEvents) -> None:
    for number in range(MAX_EVENTS + 10):
        events.add(float(number), OK, "a", f"event {number}")
    assert len(events.list()) == MAX_EVENTS
    assert events.list()[0]["text"] == f"event {MAX_EVENTS + 9}"
