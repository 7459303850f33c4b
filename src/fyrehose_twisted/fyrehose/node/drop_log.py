"""What a node refused, by reason: everything counted, each source reported at most once a minute."""

from __future__ import annotations

from collections import Counter

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import PacketDropped

REPORT_INTERVAL = 60.0
"""Seconds between two reports about one source and reason."""

SOURCES_REMEMBERED = 1024
"""Reports in one interval; whatever else is dropped in it is counted only."""


class DropLog:
    """Counts drops and says which of them deserve a line in the log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Drops by reason since the start."""
        self._reported_at: dict[tuple[str, str], float] = {}  # When, the longest ago first.

    def record(self, reason: str, peer: Address, detail: str, now: float) -> PacketDropped | None:
        """Count a drop; return the event to report, or ``None`` if this source was reported lately."""
        self.counts[reason] += 1
        while self._reported_at:
            oldest = next(iter(self._reported_at))
            if 0 <= now - self._reported_at[oldest] < REPORT_INTERVAL:  # Below 0 a clock was set back.
                break
            del self._reported_at[oldest]
        key = (peer[0], reason)
        if key in self._reported_at or len(self._reported_at) >= SOURCES_REMEMBERED:
            return None
        self._reported_at[key] = now
        return PacketDropped(reason, peer, detail)
