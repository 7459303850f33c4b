"""Token buckets: how much one peer may cost."""

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
        """Return the units that may be taken at ``now``."""
        if now > self._updated:
            self._tokens = min(self.burst, self._tokens + (now - self._updated) * self.rate)
        self._updated = now  # Also when a clock was set back, or the bucket would stay shut until it catches up.
        return self._tokens

    def take(self, amount: float, now: float) -> bool:
        """Take ``amount`` if it is there; say whether it was."""
        if self.available(now) < amount:
            return False
        self._tokens -= amount
        return True

    def spend(self, amount: float) -> None:
        """Take ``amount`` even if that leaves a debt, for work that comes in indivisible pieces."""
        self._tokens -= amount

    def ready_at(self, amount: float) -> float:
        """Return when ``amount`` will be there if nothing else is taken."""
        missing = min(amount, self.burst) - self._tokens
        return self._updated + max(0.0, missing / self.rate)


KeyT = TypeVar("KeyT", bound=Hashable)


class KeyedTokenBuckets(Generic[KeyT]):
    """A token bucket for each of the ``limit`` keys that were used last."""

    def __init__(self, rate: float, burst: float, limit: int) -> None:
        self.rate = rate
        self.burst = burst
        self.limit = limit
        self._buckets: OrderedDict[KeyT, TokenBucket] = OrderedDict()

    def bucket(self, key: KeyT, now: float) -> TokenBucket:
        """Return the bucket of ``key``, full if it is new or was forgotten."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self.rate, self.burst, now)
            if len(self._buckets) > self.limit:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket

    def forget(self, key: KeyT) -> None:
        """Drop the bucket of ``key``, if there is one."""
        self._buckets.pop(key, None)

    def __len__(self) -> int:
        return len(self._buckets)
