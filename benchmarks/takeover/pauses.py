"""Faults of a leader, and the pause that a subscriber sees."""

from __future__ import annotations

import os
import signal
import time

KILL, SILENCE, TERMINATE, TRANSFER = "kill -9", "SIGSTOP", "SIGTERM", "transfer"
FAULTS = (KILL, SILENCE, TERMINATE, TRANSFER)
SIGNALS = {KILL: signal.SIGKILL, SILENCE: signal.SIGSTOP, TERMINATE: signal.SIGTERM}
EVERY = 0.005
"""Seconds between two messages of the publisher, which waits for no answer before the next."""
CALM = (0.5, 1.5)
"""Random delay before the fault, so that it falls at any time between two heartbeats."""
WATCHED = 3.0
"""Seconds after the fault for which the subscriber is watched at least."""
STEADY = 1.0
"""Seconds of messages without a pause after which the takeover is over."""
PAUSE = 0.2
"""Seconds without a message that are a pause."""
PATIENCE = 60.0


class Receipts:
    """Times at which a subscriber received messages."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def add(self) -> None:
        """Record that a message was received."""
        self.times.append(time.monotonic())

    def are_steady(self, since: float) -> bool:
        """Return whether messages arrive again after a fault at ``since``."""
        now = time.monotonic()
        if now < since + WATCHED or not self.times or now > self.times[-1] + PAUSE:
            return False
        resumed = max(
            (later for earlier, later in zip(self.times, self.times[1:], strict=False) if later - earlier > PAUSE),
            default=since,
        )
        return now > resumed + STEADY

    def longest_pause(self, since: float) -> float:
        """Return the longest time between two messages that ended after ``since``."""
        return max(later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False) if later > since)


def send_signal(fault: str, pid: int) -> None:
    """Send the signal of a fault."""
    os.kill(pid, SIGNALS[fault])
