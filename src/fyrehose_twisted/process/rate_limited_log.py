"""Warnings about peers, one for each source, or IPv6 /64, and kind in a minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.report_limiter import ReportLimiter


class RateLimitedLog:
    """A log for warnings about peers, which a hostile peer cannot fill.

    :param now: returns seconds, of any clock.
    """

    def __init__(self, log: Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._reports = ReportLimiter()

    def warn(self, kind: str, source: str, text: str, **fields: Any) -> bool:
        """Log ``text``, a Twisted log format, as a warning; return whether it was due.

        :param source: the peer, without parts that change with each connection.
        """
        due = self._reports.is_due((kind, source_network(source)), self._now())
        if due:
            self._log.warn(text, source=source, **fields)
        return due
