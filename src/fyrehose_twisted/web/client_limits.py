"""What each client may have: so many requests a second, and so many streams at once."""

from __future__ import annotations

from collections import Counter, OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

MAX_CLIENTS = 16_384
"""Clients whose budgets are remembered; the one that was quiet for longest is forgotten first."""


class ClientLimits(NamedTuple):
    """Limits for one client: that is one token or, without tokens, one address (of IPv6, a /64)."""

    requests: float = 200.0
    """Requests a second, in the long run."""
    burst: float = 400.0
    """Requests at once, after a pause."""
    streams: int = 32
    """Streams open at once."""


class _Budget:
    __slots__ = ("tokens", "updated_at")

    def __init__(self, left: float, at: float) -> None:
        self.tokens = left
        self.updated_at = at


class ClientBudgets:
    """Keeps the budgets.

    :ivar limits: may be replaced at any time.
    :ivar refused: how many requests were refused, by what was used up: ``requests`` or ``streams``.
    """

    def __init__(self, limits: ClientLimits | None, reactor: Any) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self._reactor = reactor
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()
        self._streams: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._budgets)

    def acquire(self, client: str, cost: float = 1.0) -> float:
        """Take ``cost`` from the budget of requests; return 0, or in how many seconds it can be taken."""
        limits = self.limits
        if limits is None:
            return 0.0
        now = self._reactor.seconds()
        budget = self._budgets.get(client)
        if budget is None:
            budget = self._budgets[client] = _Budget(limits.burst, now)
            if len(self._budgets) > MAX_CLIENTS:
                self._budgets.popitem(last=False)
        else:
            self._budgets.move_to_end(client)
            budget.tokens = min(limits.burst, budget.tokens + max(0.0, now - budget.updated_at) * limits.requests)
            budget.updated_at = now
        if budget.tokens < cost:
            self.refused["requests"] += 1
            return (cost - budget.tokens) / limits.requests
        budget.tokens -= cost
        return 0.0

    def stream_opened(self, client: str) -> bool:
        """Count a stream; say whether the client may have it."""
        if self.limits is not None and self._streams[client] >= self.limits.streams:
            self.refused["streams"] += 1
            return False
        self._streams[client] += 1
        return True

    def stream_closed(self, client: str) -> None:
        """A stream has ended."""
        self._streams[client] -= 1
        if self._streams[client] <= 0:
            del self._streams[client]


def client_key(host: str) -> str:
    """Return what an address is counted as: whoever has one of IPv6 has a whole /64."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> 64 << 64)) + "/64"
    return host
