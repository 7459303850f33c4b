"""Drop counters by reason, with rate-limited reports."""

from __future__ import annotations

from collections import Counter

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import PacketDropped
from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.report_limiter import ReportLimiter

SOURCES_REMEMBERED = 1024
"""Maximum number of reports in one interval. Further drops are only counted."""


class DropLog:
    """Drop counters of one node. Reports each source, or IPv6 /64, and reason at most once a minute."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Drops by reason since the start."""
        self._reports = ReportLimiter()

    def record(self, reason: str, peer: Address, detail: str, now: float) -> PacketDropped | None:
        """Count a drop. Return the event to report, or ``None`` if this source was reported recently."""
        self.counts[reason] += 1
        if not self._reports.is_due((source_network(peer[0]), reason), now, SOURCES_REMEMBERED):
            return None
        return PacketDropped(reason, peer, detail)
