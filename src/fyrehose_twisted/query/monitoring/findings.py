"""Findings about services and journals, and the recent events that they make."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from fyrehose_twisted.wording import counted

OK, ATTENTION, DOWN = "ok", "attention", "down"
LEVELS = (OK, ATTENTION, DOWN)

MAX_EVENTS = 100
"""Events that are remembered."""
MERGE = 60.0
"""Seconds within which the same event of one subject counts up instead of being told again."""


class Finding(NamedTuple):
    """One reason why a subject is not OK."""

    subject: str
    """A service or a stream, as the page names it."""
    level: str
    what: str
    """Short stable name of the reason."""
    text: str
    hold: float = 0.0
    """Seconds for which the reason has to last before it counts."""


def worst(findings: Iterable[Finding]) -> str:
    """Return the level of a subject with these findings."""
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)


def _levels(findings: Iterable[Finding]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in findings:
        found[one.subject] = max(found.get(one.subject, OK), one.level, key=LEVELS.index)
    return found


class Events:
    """The most recent events, bounded."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)

    def add(self, at: float, level: str, subject: str, text: str, count: int = 0, noun: str = "message") -> None:
        """Tell of an event.

        :param count: how many of ``noun``, for a ``text`` with ``{count}``; the same text again soon adds to it.
        """
        if count:
            for event in reversed(self._events):
                if event["at"] < at - MERGE:
                    break
                if (event["subject"], event["format"]) == (subject, text):
                    event["count"] += count
                    return
        event = {"at": at, "level": level, "subject": subject, "format": text, "count": count, "noun": noun}
        self._events.append(event)

    def list(self) -> list[dict[str, Any]]:
        """Return all of them, the newest first."""
        return [
            {
                **{name: event[name] for name in ("at", "level", "subject")},
                "text": _text(event),
            }
            for event in reversed(self._events)
        ]


def _text(event: dict[str, Any]) -> str:
    text: str = event["format"]
    return text.format(count=counted(event["count"], event["noun"])) if event["count"] else text


class Findings:
    """What was found last, and since when.

    :ivar current: findings that have lasted long enough, the worst ones first.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._since: dict[tuple[str, str], float] = {}
        self._told: dict[tuple[str, str], Finding] = {}
        self._of: dict[str, list[Finding]] = {}
        self.current: list[Finding] = []

    def update(self, found: Iterable[Finding], now: float) -> None:
        """Replace the findings, and tell of those that begin and end."""
        by_key = {(one.subject, one.what): one for one in found}
        self._since = {key: min(self._since.get(key, now), now) for key in by_key}
        current = {key: one for key, one in by_key.items() if now - self._since[key] >= one.hold}
        for key, one in current.items():
            told = self._told.get(key)
            if told is None or told.level != one.level:
                self._events.add(now, one.level, one.subject, one.text)
        before, after = _levels(self._told.values()), _levels(current.values())
        for subject, level in before.items():
            if level == DOWN != after.get(subject):
                self._events.add(now, after.get(subject, OK), subject, "is back")
            elif subject not in after:
                self._events.add(now, OK, subject, "is OK again")
        self._told = current
        self.current = sorted(current.values(), key=lambda one: -LEVELS.index(one.level))
        self._of = {}
        for one in self.current:
            self._of.setdefault(one.subject, []).append(one)

    def of(self, subject: str) -> list[Finding]:
        """Return the findings about one subject."""
        return self._of.get(subject, [])
