"""Rate limits per client of the frontend."""

from __future__ import annotations

from typing import Any

from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.token_bucket import KeyedTokenBuckets, TokenBucket

MAX_CLIENTS = 16_384
"""Maximum number of budgets. The budget of the client that was idle for longest is evicted first."""


class ClientRateLimiter:
    """Budgets of messages and bytes by client. A batch may overdraw a budget, and the client then has to wait.

    :ivar config: limits; may be replaced at any time.
    """

    def __init__(self, config: FrontendConfig, reactor: Any) -> None:
        self.config = config
        self._reactor = reactor
        self._messages: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 1.0, MAX_CLIENTS)
        self._bytes: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 1.0, MAX_CLIENTS)

    def __len__(self) -> int:
        return len(self._messages)

    def wait_time(self, client: str) -> float:
        """Return the seconds until a client may publish; 0 if it may publish now."""
        now = self._reactor.seconds()
        return max(0.0, *(-bucket.available(now) / bucket.rate for bucket in self._buckets(client, now)))

    def charge(self, client: str, messages: int, size: int) -> None:
        """Charge published messages to the budget of a client."""
        now = self._reactor.seconds()
        for bucket, amount in zip(self._buckets(client, now), (messages, size), strict=True):
            bucket.available(now)
            bucket.spend(amount)

    def _buckets(self, client: str, now: float) -> tuple[TokenBucket, TokenBucket]:
        config = self.config
        for buckets, rate in ((self._messages, config.messages_per_client), (self._bytes, config.bytes_per_client)):
            buckets.rate, buckets.burst = rate, rate * config.burst
        return self._messages.bucket(client, now), self._bytes.bucket(client, now)
