"""Time for which a publisher stays to answer repair requests before it leaves."""

from __future__ import annotations

QUIET_TIME = 1.25
"""Seconds without a FORWARD after which subscribers miss nothing. By then each has sent a KEEPALIVE and knows the last
number from the STATUS. It requests missing messages at once and again every 0.5 s."""

MAX_LINGER_TIME = 10.0
"""Maximum number of seconds for which a publisher stays."""


class LingerState:
    """Recent activity of a client that subscribers may depend on.

    :ivar quiet_at: time at which the client may leave; 0 if no subscriber needs it.
    """

    def __init__(self) -> None:
        self.quiet_at = 0.0

    def published(self, now: float) -> None:
        """Record that an own message was published that no journal was to keep."""
        self.quiet_at = now + QUIET_TIME

    def answered(self, now: float) -> None:
        """Record that the client was asked for stored messages, or sent some."""
        if self.quiet_at:
            self.quiet_at = now + QUIET_TIME
