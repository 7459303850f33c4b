"""Slowing publishers down for as long as subscribers cannot be repaired in time."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.token_bucket import TokenBucket

STEP_INTERVAL = 0.1
"""Seconds between two changes of the rate."""

DECREASE_FACTOR, INCREASE_FACTOR = 0.7, 1.2
"""Factors of the rate: for each step in which a subscriber was behind, and for each in which none was."""


class Backpressure:
    """Limits the bytes that publishers get numbered while subscribers are behind.

    Nothing is limited until a subscriber falls behind. Then the rate falls step by step, down to ``minimum`` at the
    lowest, and rises again once none is behind. And where durable journals are so far behind that what they miss may be
    gone before they ask for it, ``minimum`` is all that is allowed.

    :param minimum: bytes a second that publishers are always allowed; ``None`` never to slow them down.
    :ivar rate: bytes a second allowed now; ``None`` for no limit.
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
        """A subscriber asked for what is about to be dropped, and nothing else keeps it."""
        self._is_behind = True
        if self.rate is None and self.min_rate is not None:
            recent = max(self._measured_rate, self._step_bytes / STEP_INTERVAL)
            self._set_rate(max(DECREASE_FACTOR * recent, self.min_rate), now)

    def allowance(self, now: float, window: float = inf) -> float:
        """Return the bytes that may be numbered now; as long as any are left, one more message may.

        :param window: bytes until durable journals are too far behind.
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
        """Bytes a second that publishers are slowed down to now; ``None`` for no limit."""
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
