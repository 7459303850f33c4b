"""How long a publisher stays to answer repairs before it leaves."""

from __future__ import annotations

QUIET_TIME = 1.25
"""Seconds without a FORWARD after which subscribers have what they missed. By then each has sent a KEEPALIVE, and has
been told how far the stream goes; it asks at once for what it misses, and again every 0.5 s."""

MAX_LINGER_TIME = 10.0
"""Seconds that a publisher stays at most."""


class LingerState:
    """What a client has done lately for subscribers that miss something.

    :ivar quiet_at: time at which it may leave; 0 if no subscriber needs it.
    """

    def __init__(self) -> None:
        self.quiet_at = 0.0

    def published(self, now: float) -> None:
        """A message of its own came back, and no journal promised to keep it."""
        self.quiet_at = now + QUIET_TIME

    def answered(self, now: float) -> None:
        """It was asked for messages that it holds, or sent some."""
        if self.quiet_at:
            self.quiet_at = now + QUIET_TIME
