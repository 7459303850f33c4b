"""Token buckets for rate limits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar


class TokenBucket:
    """Token bucket that allows ``rate`` units per second on average and ``burst`` units at once."""

    __slots__ = ("_tokens", "_updated", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._updated = now

    def available(self, now: float) -> float:
        """Return the number of units available at ``now``."""
        if now > self._updated:
            self._tokens = min(self.burst, self._tokens + (now - self._updated) * self.rate)
        self._updated = now  # Also after the clock was set back. Otherwise the bucket would not refill until then.
        return self._tokens

    def take(self, amount: float, now: float) -> bool:
        """Take ``amount`` units if they are available. Return whether they were taken."""
        if self.available(now) < amount:
            return False
        self._tokens -= amount
        return True

    def spend(self, amount: float) -> None:
        """Take ``amount`` units even if that leaves a debt, for work that cannot be divided."""
        self._tokens -= amount

    def credit(self, amount: float) -> None:
        """Add ``amount`` units to those that time adds."""
        self._tokens = min(self.burst, self._tokens + amount)

    def ready_at(self, amount: float) -> float:
        """Return the time at which ``amount`` units are available if nothing else is taken."""
        missing = min(amount, self.burst) - self._tokens
        return self._updated + max(0.0, missing / self.rate)


KeyT = TypeVar("KeyT", bound=Hashable)


class KeyedTokenBuckets(Generic[KeyT]):
    """Token buckets of the ``limit`` most recently used keys.

    :ivar rate: units per second of each bucket; may be replaced at any time.
    :ivar burst: units at once; may be replaced at any time.
    """

    def __init__(self, rate: float, burst: float, limit: int) -> None:
        self.rate = rate
        self.burst = burst
        self.limit = limit
        self._buckets: OrderedDict[KeyT, TokenBucket] = OrderedDict()

    def bucket(self, key: KeyT, now: float) -> TokenBucket:
        """Return the bucket of ``key``, which is full if the key is new or was evicted."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self.rate, self.burst, now)
            if len(self._buckets) > self.limit:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.rate, bucket.burst = self.rate, self.burst
        return bucket

    def forget(self, key: KeyT) -> None:
        """Discard the bucket of ``key``, if any."""
        self._buckets.pop(key, None)

    def __len__(self) -> int:
        return len(self._buckets)
