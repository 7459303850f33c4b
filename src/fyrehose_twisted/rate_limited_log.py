"""Saying what is wrong with others: each source and kind once a minute, whatever they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

INTERVAL = 60.0
"""Seconds between two lines about one source and kind."""

MAX_WARNINGS = 1_024
"""Lines in one interval; whatever else is complained about in it is not said."""


class RateLimitedLog:
    """Writes to a log, but not more often than anybody wants to read it.

    :param log: where to.
    :param now: seconds, of any clock.
    """

    def __init__(self, log: Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._warned_at: dict[tuple[str, str], float] = {}  # When, the longest ago first.

    def warn(self, kind: str, source: str, text: str, **fields: Any) -> bool:
        """Log ``text``, a format as loggers take it, at level ``warn``; say whether it was its turn.

        :param source: whom it is about, without what changes with each connection.
        """
        now = self._now()
        while self._warned_at:
            oldest = next(iter(self._warned_at))
            if 0 <= now - self._warned_at[oldest] < INTERVAL:  # Below 0 a clock was set back.
                break
            del self._warned_at[oldest]
        key = kind, source
        if key in self._warned_at or len(self._warned_at) >= MAX_WARNINGS:
            return False
        self._warned_at[key] = now
        self._log.warn(text, source=source, **fields)
        return True
