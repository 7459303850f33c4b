"""Limit of reports: one for each source and kind in an interval."""

from __future__ import annotations

from collections.abc import Hashable

INTERVAL = 60.0
"""Seconds between two reports with the same key."""

MAX_REPORTS = 1_024
"""Reports in one interval; further ones are not due."""


class ReportLimiter:
    """Keys of the reports of the last interval."""

    def __init__(self) -> None:
        self._reported_at: dict[Hashable, float] = {}  # Oldest first.

    def __len__(self) -> int:
        return len(self._reported_at)

    def is_due(self, key: Hashable, now: float, limit: int = MAX_REPORTS) -> bool:
        """Return whether a report is due, and count it as made if it is.

        :param now: seconds, of any clock.
        :param limit: reports in one interval.
        """
        while self._reported_at:
            oldest = next(iter(self._reported_at))
            if 0 <= now - self._reported_at[oldest] < INTERVAL:  # Negative after the clock was set back.
                break
            del self._reported_at[oldest]
        if key in self._reported_at or len(self._reported_at) >= limit:
            return False
        self._reported_at[key] = now
        return True
