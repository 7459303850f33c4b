"""Token buckets that limit the rate of a peer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar


class TokenBucket:
    """Allows ``rate`` units a second on average and ``burst`` at once."""

    __slots__ = ("_tokens", "_updated", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._updated = now

    def available(self, now: float) -> float:
        """Return the units available at ``now``."""
        if now > self._updated:
            self._tokens = min(self.burst, self._tokens + (now - self._updated) * self.rate)
        # Also after a clock was set back; otherwise the bucket would stay empty until the clock catches up.
        self._updated = now
        return self._tokens

    def take(self, amount: float, now: float) -> bool:
        """Take ``amount`` if available; return whether it was."""
        if self.available(now) < amount:
            return False
        self._tokens -= amount
        return True

    def spend(self, amount: float) -> None:
        """Take ``amount`` even if that leaves a debt, for indivisible work."""
        self._tokens -= amount

    def ready_at(self, amount: float) -> float:
        """Return the time at which ``amount`` is available if nothing else is taken."""
        missing = min(amount, self.burst) - self._tokens
        return self._updated + max(0.0, missing / self.rate)


KeyT = TypeVar("KeyT", bound=Hashable)


class KeyedTokenBuckets(Generic[KeyT]):
    """Token buckets of the ``limit`` most recently used keys."""

    def __init__(self, rate: float, burst: float, limit: int) -> None:
        self.rate = rate
        self.burst = burst
        self.limit = limit
        self._buckets: OrderedDict[KeyT, TokenBucket] = OrderedDict()

    def bucket(self, key: KeyT, now: float) -> TokenBucket:
        """Return the bucket of ``key``, full if the key is new or was evicted."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self.rate, self.burst, now)
            if len(self._buckets) > self.limit:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket

    def forget(self, key: KeyT) -> None:
        """Remove the bucket of ``key`` if present."""
        self._buckets.pop(key, None)

    def __len__(self) -> int:
        return len(self._buckets)
