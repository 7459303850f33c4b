"""Slowing publishers down for as long as subscribers cannot be repaired in time."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.token_bucket import TokenBucket

STEP = 0.1
"""Seconds between two changes of the rate."""

CUT, RAISE = 0.7, 1.2
"""Factors of the rate: for each step in which a subscriber was behind, and for each in which none was."""


class Backpressure:
    """Limits the bytes that publishers get numbered while subscribers are behind.

    Nothing is limited until a subscriber falls behind. Then the rate falls step by step, down to ``minimum`` at the
    lowest, and rises again once none is behind. And where durable journals are so far behind that what they miss may be
    gone before they ask for it, ``minimum`` is all that is allowed.

    :param minimum: bytes a second that publishers are always allowed; ``None`` never to slow them down.
    :ivar rate: bytes a second allowed now; ``None`` for no limit.
    """

    def __init__(self, minimum: float | None, now: float) -> None:
        self.minimum = minimum
        self.rate: float | None = None
        self._bucket = TokenBucket(1.0, 1.0, now)
        self._least: TokenBucket | None = None
        self._began = self._changed = now
        self._behind = False
        self._bytes = 0
        self._measured = 0.0

    def published(self, size: int, now: float) -> None:
        """Count ``size`` bytes that were numbered."""
        if now - self._began >= STEP or now < self._began:
            self._measured = self._bytes / max(STEP, now - self._began)
            self._began, self._bytes = now, 0
        self._bytes += size
        if self.rate is not None:
            self._bucket.spend(size)
        if self._least is not None:
            self._least.spend(size)

    def fell_behind(self, now: float) -> None:
        """A subscriber asked for what is about to be dropped, and nothing else keeps it."""
        self._behind = True
        if self.rate is None and self.minimum is not None:
            recent = max(self._measured, self._bytes / STEP)
            self._set(max(CUT * recent, self.minimum), now)

    def room(self, now: float, window: float = inf) -> float:
        """Return the bytes that may be numbered now; as long as any are left, one more message may.

        :param window: bytes until durable journals are too far behind.
        """
        if self.rate is not None and (now - self._changed >= STEP or now < self._changed):
            self._set(self._next(self.rate), now)
        if self.minimum is None:
            return inf
        if window > 0:
            self._least = None
        else:
            if self._least is None:
                self._least = TokenBucket(self.minimum, self.minimum * STEP, now)
            window = self._least.available(now)
        return min(window, inf if self.rate is None else self._bucket.available(now))

    @property
    def limit(self) -> float | None:
        """Bytes a second that publishers are slowed down to now; ``None`` for no limit."""
        return self.rate if self._least is None else self.minimum

    def _next(self, rate: float) -> float | None:
        behind, self._behind = self._behind, False
        if self.minimum is None:
            return None
        if behind:
            return max(CUT * rate, self.minimum)
        return None if rate > 4 * max(self._measured, self.minimum) else RAISE * rate

    def _set(self, rate: float | None, now: float) -> None:
        self.rate, self._changed = rate, now
        if rate is not None:
            self._bucket.available(now)
            self._bucket.rate, self._bucket.burst = rate, rate * STEP
