"""Tail probe of a subscriber: requests for messages after the last one, whose loss no later message reveals."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE

MAX_PROBE_INTERVAL = 30.0
"""Maximum number of seconds between tail probes of an idle stream."""

MIN_PROBE_INTERVAL = 0.05
"""Minimum number of seconds after the last message, so that a stream is not probed while its publisher takes breath."""

SPACINGS = 16
"""Usual distances between messages after which a stream counts as idle. A steady stream is thus never probed, and an
irregular one with one REQUEST for a good number of messages."""


class TailProbe:
    """Schedule of the tail probes of one subscriber.

    The first probe comes soon after the end of a quick succession of messages, and after a keepalive interval if
    messages were that far apart anyway. The distances of times count, so that it does not matter how many messages
    arrive at once.

    :ivar due_at: time of the next probe.
    """

    def __init__(self, config: ClientConfig, rng: Random, now: float) -> None:
        self.due_at = now
        self._config = config
        self._rng = rng
        self._probed_up_to = MAX_SEQUENCE
        self._interval = self._spacing = config.keepalive_interval
        self._spread = 1.0
        self._received_at = now

    def message_received(self, now: float) -> None:
        """Record a new message of the backbone."""
        if now > self._received_at:
            distance = min(now - self._received_at, self._config.keepalive_interval)
            self._spacing += (distance - self._spacing) / 8
            self._received_at = now
        self._interval = min(max(SPACINGS * self._spacing, MIN_PROBE_INTERVAL), self._config.keepalive_interval)
        self.due_at = now + self._interval * self._spread

    def repair_received(self, sequence: int, now: float) -> None:
        """Record a repair with a number above all others.

        The peer that answered a tail probe may hold more. Without a quick next probe, catching up would take hours.
        """
        self._interval = self._config.keepalive_interval
        self.due_at = now if sequence >= self._probed_up_to else now + self._config.repair.first_retry

    def next_range(self, highest: int, now: float) -> tuple[int, int]:
        """Return the range to request now, and schedule the next probe.

        :param highest: highest known number.
        """
        self._probed_up_to = min(highest + MAX_RANGE, MAX_SEQUENCE)
        self._spread = 0.75 + 0.5 * self._rng.random()
        self.due_at = now + self._interval * self._spread
        self._interval = min(self._interval * 2, MAX_PROBE_INTERVAL)
        return highest + 1, self._probed_up_to
