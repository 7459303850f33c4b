"""Findings about services and journals, and the recent events that they cause."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from fyrehose_twisted.wording import pluralize

OK, ATTENTION, DOWN = "ok", "attention", "down"
LEVELS = (OK, ATTENTION, DOWN)

MAX_EVENTS = 100
"""Number of events kept."""
MERGE_WINDOW = 60.0
"""Seconds within which equal events of one subject are merged into a count."""


class HealthFinding(NamedTuple):
    """One reason for which a subject is not OK."""

    subject: str
    """Name of a service, stream or cluster."""
    level: str
    kind: str
    """Short stable name of the reason."""
    text: str
    hold: float = 0.0
    """Seconds for which the reason must persist before it counts."""


def worst(findings: Iterable[HealthFinding]) -> str:
    """Return the level of a subject with these findings."""
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)


def _levels(findings: Iterable[HealthFinding]) -> dict[str, str]:
    found: dict[str, str] = {}
    for finding in findings:
        found[finding.subject] = max(found.get(finding.subject, OK), finding.level, key=LEVELS.index)
    return found


class RecentEvents:
    """Bounded list of recent events."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)

    def add(self, at: float, level: str, subject: str, text: str, count: int = 0, noun: str = "message") -> None:
        """Add an event.

        :param count: number of ``noun`` for a ``text`` with ``{count}``. An equal event soon after adds to it.
        """
        if count:
            for event in reversed(self._events):
                if event["at"] < at - MERGE_WINDOW:
                    break
                if (event["subject"], event["format"]) == (subject, text):
                    event["count"] += count
                    return
        event = {"at": at, "level": level, "subject": subject, "format": text, "count": count, "noun": noun}
        self._events.append(event)

    def list(self) -> list[dict[str, Any]]:
        """Return all events, newest first."""
        return [
            {
                **{name: event[name] for name in ("at", "level", "subject")},
                "text": _text(event),
            }
            for event in reversed(self._events)
        ]


def _text(event: dict[str, Any]) -> str:
    text: str = event["format"]
    return text.format(count=pluralize(event["count"], event["noun"])) if event["count"] else text


class ActiveFindings:
    """Active findings with their start times.

    :ivar current: findings that have persisted long enough, worst first.
    """

    def __init__(self, events: RecentEvents) -> None:
        self._events = events
        self._since: dict[tuple[str, str], float] = {}
        self._reported: dict[tuple[str, str], HealthFinding] = {}
        self._by_subject: dict[str, list[HealthFinding]] = {}
        self.current: list[HealthFinding] = []

    def update(self, found: Iterable[HealthFinding], now: float) -> None:
        """Replace the findings, and add events for changes."""
        by_key = {(one.subject, one.kind): one for one in found}
        self._since = {key: min(self._since.get(key, now), now) for key in by_key}
        current = {key: one for key, one in by_key.items() if now - self._since[key] >= one.hold}
        for key, one in current.items():
            reported = self._reported.get(key)
            if reported is None or reported.level != one.level:
                self._events.add(now, one.level, one.subject, one.text)
        before, after = _levels(self._reported.values()), _levels(current.values())
        for subject, level in before.items():
            if level == DOWN != after.get(subject):
                self._events.add(now, after.get(subject, OK), subject, "is back")
            elif subject not in after:
                self._events.add(now, OK, subject, "is OK again")
        self._reported = current
        self.current = sorted(current.values(), key=lambda one: -LEVELS.index(one.level))
        self._by_subject = {}
        for one in self.current:
            self._by_subject.setdefault(one.subject, []).append(one)

    def for_subject(self, subject: str) -> list[HealthFinding]:
        """Return the findings about one subject."""
        return self._by_subject.get(subject, [])
