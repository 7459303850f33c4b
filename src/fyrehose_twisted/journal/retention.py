"""What a journal keeps, and for how long."""

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
"""A segment covers at most so manyth a part of the time that records are kept for."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What to keep. Whole segments go, those with the lowest numbers first; the one that is written stays.

    :ivar seconds: how long a record is kept, at least; ``None`` for ever.
    :ivar size: bytes that the journal may take; ``None`` for any number.
    """

    seconds: float | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigurationError(f"records cannot be kept for {self.seconds} s; give more than 0")
        if self.size is not None and self.size < 1:
            raise ConfigurationError(f"records cannot be kept in {self.size} bytes; give more than 0")

    def should_roll(self, created_at: int, now: int) -> bool:
        """Say whether a segment is so old that another should begin, lest records stay too long. In microseconds."""
        return self.seconds is not None and now - created_at > self.seconds * 1_000_000 / SHARE_OF_AGE


def parse_retention(text: str) -> Retention:
    """Return what ``text`` says: ``7d``, ``50GB`` or ``7d,50GB``.

    :raises ConfigurationError: if it says something else.
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
            raise ConfigurationError(f"retention {text!r}: say 7d, 50GB or 7d,50GB; the units are {units}")
    return Retention(seconds, size)


def expired_segments(segments: Sequence[Segment], active: Segment, retention: Retention, now: int) -> list[Segment]:
    """Return those of ``segments`` that need not be kept.

    :param segments: all that are not written any more.
    :param active: the one that is.
    :param now: UTC microseconds.
    """
    newest = _newest([*segments, active])
    by_position = sorted(segments, key=lambda segment: (segment.last or (-1, -1), segment.number))
    total = active.end + sum(segment.end for segment in segments)
    gone: list[Segment] = []
    for segment in by_position:
        empty = segment.last is None and (retention.seconds, retention.size) != (None, None)
        old = retention.seconds is not None and newest[segment.number] < now - retention.seconds * 1_000_000
        large = retention.size is not None and total > retention.size
        if not (old or large or empty):
            break  # What has higher numbers stays, or a hole would be left.
        gone.append(segment)
        total -= segment.end
    return gone


def _newest(segments: Sequence[Segment]) -> dict[int, int]:
    """Return, by number, when the last record of each segment was received: not after the next one was begun, whatever
    the clocks of others said."""
    newest: dict[int, int] = {}
    begun: int | None = None
    for segment in sorted(segments, key=lambda segment: segment.number, reverse=True):
        known = segment.newest or segment.header.created_at
        newest[segment.number] = known if begun is None else min(known, begun)
        begun = segment.header.created_at
    return newest
