"""Drop counters by reason, with rate-limited reports."""

from __future__ import annotations

from collections import Counter

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import PacketDropped

REPORT_INTERVAL = 60.0
"""Minimum number of seconds between two reports of one source and reason."""

SOURCES_REMEMBERED = 1024
"""Maximum number of reports in one interval. Further drops are only counted."""


class DropLog:
    """Drop counters of one node. Reports each source and reason at most once a minute."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Drops by reason since the start."""
        self._reported_at: dict[tuple[str, str], float] = {}  # By source and reason, oldest first.

    def record(self, reason: str, peer: Address, detail: str, now: float) -> PacketDropped | None:
        """Count a drop. Return the event to report, or ``None`` if this source was reported recently."""
        self.counts[reason] += 1
        while self._reported_at:
            oldest = next(iter(self._reported_at))
            if 0 <= now - self._reported_at[oldest] < REPORT_INTERVAL:  # Negative after the clock was set back.
                break
            del self._reported_at[oldest]
        key = (peer[0], reason)
        if key in self._reported_at or len(self._reported_at) >= SOURCES_REMEMBERED:
            return None
        self._reported_at[key] = now
        return PacketDropped(reason, peer, detail)
