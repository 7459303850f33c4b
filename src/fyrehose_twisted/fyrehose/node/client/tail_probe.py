"""Tail probe of a subscriber: requests for messages after the last one, whose loss no later message reveals."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE

MAX_PROBE_INTERVAL = 30.0
"""Maximum number of seconds between tail probes of an idle stream."""


class TailProbe:
    """Schedule of the tail probes of one subscriber.

    :ivar due_at: time of the next probe.
    """

    def __init__(self, config: ClientConfig, rng: Random, now: float) -> None:
        self.due_at = now
        self._config = config
        self._rng = rng
        self._probed_up_to = MAX_SEQUENCE
        self._interval = config.keepalive_interval

    def message_received(self, now: float) -> None:
        """Record a new message of the backbone."""
        self._interval = self._config.keepalive_interval
        self.due_at = now + self._interval

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
        self.due_at = now + self._interval * (0.75 + 0.5 * self._rng.random())
        self._interval = min(self._interval * 2, MAX_PROBE_INTERVAL)
        return highest + 1, self._probed_up_to
