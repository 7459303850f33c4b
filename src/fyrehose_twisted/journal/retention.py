"""Retention policy of journals, by age and by size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.format.segment import Segment

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_BYTES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)

SHARE_OF_AGE = 4
"""A segment covers at most the retention time divided by this."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention policy. Whole segments are removed, lowest numbers first. The active segment stays.

    :ivar seconds: minimum time for which a record is kept; ``None`` for no limit.
    :ivar size: maximum size of the journal in bytes; ``None`` for no limit.
    """

    seconds: float | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigurationError(f"a retention of {self.seconds} s is out of range; it must be above 0")
        if self.size is not None and self.size < 1:
            raise ConfigurationError(f"a retention of {self.size} bytes is out of range; it must be above 0")

    def should_roll(self, created_at: int, now: int) -> bool:
        """Return whether the active segment is old enough to begin a new one. Times are in microseconds."""
        return self.seconds is not None and now - created_at > self.seconds * 1_000_000 / SHARE_OF_AGE


def parse_retention(text: str) -> Retention:
    """Parse a retention such as ``7d``, ``50GB`` or ``7d,50GB``.

    :raises ConfigurationError: if ``text`` has another form.
    """
    seconds: float | None = None
    size: int | None = None
    for part in text.split(","):
        found = _AMOUNT.fullmatch(part.strip())
        unit = found[2].lower() if found else ""
        if found and unit in _SECONDS and seconds is None:
            seconds = float(found[1]) * _SECONDS[unit]
        elif found and unit in _BYTES and size is None:
            size = int(float(found[1]) * _BYTES[unit])
        else:
            units = ", ".join([*_SECONDS, *("kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")])
            raise ConfigurationError(f"invalid retention {text!r}; use 7d, 50GB or 7d,50GB, with the units {units}")
    return Retention(seconds, size)


def parse_age(text: str) -> float:
    """Parse an age such as ``12h`` or ``1d``; return seconds. ``0`` is allowed.

    :raises ConfigurationError: if ``text`` has another form.
    """
    found = _AMOUNT.fullmatch(text.strip())
    if text.strip() == "0":
        return 0.0
    if found is None or found[2].lower() not in _SECONDS:
        raise ConfigurationError(f"invalid age {text!r}; use a number with a unit ({', '.join(_SECONDS)}), such as 1d")
    return float(found[1]) * _SECONDS[found[2].lower()]


def expired_segments(segments: Sequence[Segment], active: Segment, retention: Retention, now: int) -> list[Segment]:
    """Return the ``segments`` that retention may remove.

    :param segments: all sealed segments.
    :param active: the segment being written.
    :param now: UTC microseconds since 1970.
    """
    newest = _newest([*segments, active])
    by_position = sorted(segments, key=lambda segment: (segment.last or (-1, -1), segment.number))
    total = active.end + sum(segment.end for segment in segments)
    expired: list[Segment] = []
    for segment in by_position:
        is_empty = segment.last is None and (retention.seconds, retention.size) != (None, None)
        is_old = retention.seconds is not None and newest[segment.number] < now - retention.seconds * 1_000_000
        is_too_large = retention.size is not None and total > retention.size
        if not (is_old or is_too_large or is_empty):
            break  # Removing a later segment would leave a gap.
        expired.append(segment)
        total -= segment.end
    return expired


def _newest(segments: Sequence[Segment]) -> dict[int, int]:
    """Return the receive time of the last record of each segment, by number.

    It is capped at the creation of the next segment, as record times may come from other clocks.
    """
    newest: dict[int, int] = {}
    begun: int | None = None
    for segment in sorted(segments, key=lambda segment: segment.number, reverse=True):
        known = segment.newest or segment.header.created_at
        newest[segment.number] = known if begun is None else min(known, begun)
        begun = segment.header.created_at
    return newest
