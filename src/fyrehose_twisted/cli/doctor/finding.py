"""Findings of checks and their output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """Severity of a finding.

    :cvar OK: no action is needed.
    :cvar WARN: worth a look: services run, but slower or less safely than they could, or the result is unknown.
    :cvar WRONG: a service will fail, or lose data.
    """

    OK = "ok"
    WARN = "warn"
    WRONG = "wrong"


class DoctorFinding(NamedTuple):
    """Finding of one check.

    :ivar check: name of the check.
    :ivar found: observation.
    :ivar advice: recommended action and its reason, if any.
    """

    check: str
    level: Level
    found: str
    advice: str | None = None


def ok(check: str, found: str, advice: str | None = None) -> DoctorFinding:
    """Return a finding of level ok."""
    return DoctorFinding(check, Level.OK, found, advice)


def warn(check: str, found: str, advice: str) -> DoctorFinding:
    """Return a finding of level warn."""
    return DoctorFinding(check, Level.WARN, found, advice)


def wrong(check: str, found: str, advice: str) -> DoctorFinding:
    """Return a finding that will make a service fail or lose data."""
    return DoctorFinding(check, Level.WRONG, found, advice)


def unknown(check: str, reason: object, advice: str) -> DoctorFinding:
    """Return a finding for a check without a result, with the reason."""
    if isinstance(reason, OSError) and reason.strerror:
        reason = f"{reason.filename}: {reason.strerror}" if reason.filename else reason.strerror
    return DoctorFinding(check, Level.WARN, f"cannot be known: {reason}", advice)


def format_findings(findings: Sequence[DoctorFinding]) -> Iterator[str]:
    """Format findings as text: a line each, a line of advice if any, and the counts."""
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        yield _sanitize(f"{finding.level:<5} {finding.check:<{width}}  {finding.found}")
        if finding.advice is not None:
            yield _sanitize(f"      do: {finding.advice}")
    counts = Counter(finding.level for finding in findings)
    total = f"{len(findings)} check{'s' * (len(findings) != 1)}"
    yield f"{total}: {counts[Level.OK]} ok, {counts[Level.WARN]} to look at, {counts[Level.WRONG]} wrong."


def exit_status(findings: Sequence[DoctorFinding], *, strict: bool) -> int:
    """Return the exit status: 1 if a finding is wrong or, with ``strict``, a warning."""
    bad = (Level.WARN, Level.WRONG) if strict else (Level.WRONG,)
    return int(any(finding.level in bad for finding in findings))


def _sanitize(text: str) -> str:
    """Replace control characters, because names of processes and directories are not trusted."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
