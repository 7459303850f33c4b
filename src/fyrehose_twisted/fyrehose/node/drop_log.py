"""What a node refused, by reason: everything counted, each source reported at most once a minute."""

from __future__ import annotations

from collections import Counter

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import Dropped

REPORT_INTERVAL = 60.0
"""Seconds between two reports about one source and reason."""

SOURCES_REMEMBERED = 1024
"""Reports in one interval; whatever else is dropped in it is counted only."""


class Drops:
    """Counts drops and says which of them deserve a line in the log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Drops by reason since the start."""
        self._reported: dict[tuple[str, str], float] = {}  # When, the longest ago first.

    def count(self, reason: str, peer: Address, detail: str, now: float) -> Dropped | None:
        """Count a drop; return the event to report, or ``None`` if this source was reported lately."""
        self.counts[reason] += 1
        while self._reported:
            oldest = next(iter(self._reported))
            if 0 <= now - self._reported[oldest] < REPORT_INTERVAL:  # Below 0 a clock was set back.
                break
            del self._reported[oldest]
        key = (peer[0], reason)
        if key in self._reported or len(self._reported) >= SOURCES_REMEMBERED:
            return None
        self._reported[key] = now
        return Dropped(reason, peer, detail)
