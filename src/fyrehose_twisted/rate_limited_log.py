"""Saying what is wrong with others: each source and kind once a minute, whatever they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

INTERVAL = 60.0
"""Seconds between two lines about one source and kind."""

SOURCES = 1_024
"""Lines in one interval; whatever else is complained about in it is not said."""


class Complaints:
    """Writes to a log, but not more often than anybody wants to read it.

    :param log: where to.
    :param now: seconds, of any clock.
    """

    def __init__(self, log: Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._said: dict[tuple[str, str], float] = {}  # When, the longest ago first.

    def complain(self, kind: str, source: str, text: str, **fields: Any) -> bool:
        """Log ``text``, a format as loggers take it, at level ``warn``; say whether it was its turn.

        :param source: whom it is about, without what changes with each connection.
        """
        now = self._now()
        while self._said:
            oldest = next(iter(self._said))
            if 0 <= now - self._said[oldest] < INTERVAL:  # Below 0 a clock was set back.
                break
            del self._said[oldest]
        key = kind, source
        if key in self._said or len(self._said) >= SOURCES:
            return False
        self._said[key] = now
        self._log.warn(text, source=source, **fields)
        return True
