"""Reactor with a clock that a test advances."""

from __future__ import annotations

from fyrehose_twisted.net.boottime import BoottimeReactor, boottime_seconds


class SkippingClock(BoottimeReactor):
    """Reactor with a clock that a test can advance, so that no timeout is waited for."""

    def __init__(self) -> None:
        from twisted.internet import reactor

        self._skipped = 0.0
        super().__init__(reactor, lambda: boottime_seconds() + self._skipped)

    def skip(self, seconds: float) -> None:
        """Advance the clock; calls that are due run in the next turn of the reactor."""
        self._skipped += seconds
        self._reactor.callLater(0, self._run)
