"""Backpressure on publishers while repairs of subscribers are behind."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.token_bucket import TokenBucket

STEP_INTERVAL = 0.1
"""Seconds between two adjustments of the rate."""

DECREASE_FACTOR, INCREASE_FACTOR = 0.7, 1.2
"""Factors of the rate after a step with, and after a step without, a subscriber that is behind."""


class Backpressure:
    """Rate limit of numbered bytes while subscribers are behind.

    There is no limit until a subscriber falls behind. The rate then decreases step by step, but not below ``min_rate``,
    and increases once no subscriber is behind. If durable journals are so far behind that messages may leave the
    retransmit buffer before the journals request them, only ``min_rate`` is allowed.

    :param min_rate: bytes per second that publishers may always send; ``None`` for no backpressure.
    :ivar rate: current limit in bytes per second; ``None`` for no limit.
    """

    def __init__(self, min_rate: float | None, now: float) -> None:
        self.min_rate = min_rate
        self.rate: float | None = None
        self._bucket = TokenBucket(1.0, 1.0, now)
        self._min_rate_bucket: TokenBucket | None = None
        self._step_began_at = self._rate_changed_at = now
        self._is_behind = False
        self._step_bytes = 0
        self._measured_rate = 0.0

    def published(self, size: int, now: float) -> None:
        """Count ``size`` bytes that were numbered."""
        if now - self._step_began_at >= STEP_INTERVAL or now < self._step_began_at:
            self._measured_rate = self._step_bytes / max(STEP_INTERVAL, now - self._step_began_at)
            self._step_began_at, self._step_bytes = now, 0
        self._step_bytes += size
        if self.rate is not None:
            self._bucket.spend(size)
        if self._min_rate_bucket is not None:
            self._min_rate_bucket.spend(size)

    def fell_behind(self, now: float) -> None:
        """Record that a subscriber requested a message that leaves the buffer soon and that no journal holds."""
        self._is_behind = True
        if self.rate is None and self.min_rate is not None:
            recent = max(self._measured_rate, self._step_bytes / STEP_INTERVAL)
            self._set_rate(max(DECREASE_FACTOR * recent, self.min_rate), now)

    def allowance(self, now: float, window: float = inf) -> float:
        """Return the number of bytes that may be numbered now. If it is positive, one message of any size may follow.

        :param window: remaining bytes before durable journals are too far behind.
        """
        if self.rate is not None and (now - self._rate_changed_at >= STEP_INTERVAL or now < self._rate_changed_at):
            self._set_rate(self._next_rate(self.rate), now)
        if self.min_rate is None:
            return inf
        if window > 0:
            self._min_rate_bucket = None
        else:
            if self._min_rate_bucket is None:
                self._min_rate_bucket = TokenBucket(self.min_rate, self.min_rate * STEP_INTERVAL, now)
            window = self._min_rate_bucket.available(now)
        return min(window, inf if self.rate is None else self._bucket.available(now))

    @property
    def effective_rate(self) -> float | None:
        """Effective limit in bytes per second; ``None`` for no limit."""
        return self.rate if self._min_rate_bucket is None else self.min_rate

    def _next_rate(self, rate: float) -> float | None:
        behind, self._is_behind = self._is_behind, False
        if self.min_rate is None:
            return None
        if behind:
            return max(DECREASE_FACTOR * rate, self.min_rate)
        return None if rate > 4 * max(self._measured_rate, self.min_rate) else INCREASE_FACTOR * rate

    def _set_rate(self, rate: float | None, now: float) -> None:
        self.rate, self._rate_changed_at = rate, now
        if rate is not None:
            self._bucket.available(now)
            self._bucket.rate, self._bucket.burst = rate, rate * STEP_INTERVAL
