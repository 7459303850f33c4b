"""Limits for each client: request rate and concurrent streams."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from fyrehose_twisted.token_bucket import KeyedTokenBuckets

MAX_CLIENTS = 16_384
"""Clients whose budgets are kept. The least recently active one is dropped first."""


class ClientLimits(NamedTuple):
    """Limits for one client, which is one token or, without tokens, one address (an IPv6 /64)."""

    requests: float = 200.0
    """Sustained requests a second."""
    burst: float = 400.0
    """Requests in a burst after a pause."""
    streams: int = 32
    """Concurrent streams."""


class ClientBudgets:
    """Request and stream budgets of all clients.

    :ivar limits: limits for each client; ``None`` for no limits. May be replaced at any time.
    :ivar refused: number of refusals by exhausted budget, ``requests`` or ``streams``.
    """

    def __init__(self, limits: ClientLimits | None, reactor: Any) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self._reactor = reactor
        self._buckets: KeyedTokenBuckets[str] = KeyedTokenBuckets(1.0, 1.0, MAX_CLIENTS)
        self._streams: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, client: str, cost: float = 1.0) -> float:
        """Take ``cost`` from the request budget; return 0, or the seconds until it is available."""
        limits = self.limits
        if limits is None:
            return 0.0
        now = self._reactor.seconds()
        self._buckets.rate, self._buckets.burst = limits.requests, limits.burst
        bucket = self._buckets.bucket(client, now)
        if bucket.take(cost, now):
            return 0.0
        self.refused["requests"] += 1
        return (cost - bucket.available(now)) / limits.requests

    def stream_opened(self, client: str) -> bool:
        """Count a stream of a client; return whether it is permitted."""
        if self.limits is not None and self._streams[client] >= self.limits.streams:
            self.refused["streams"] += 1
            return False
        self._streams[client] += 1
        return True

    def stream_closed(self, client: str) -> None:
        """Count the end of a stream."""
        self._streams[client] -= 1
        if self._streams[client] <= 0:
            del self._streams[client]
