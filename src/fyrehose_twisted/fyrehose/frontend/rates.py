"""Rate limits per client of the frontend."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig

MAX_CLIENTS = 16_384
"""Maximum number of budgets. The budget of the client that was idle for longest is evicted first."""


class _Budget:
    __slots__ = ("messages", "size", "updated_at")

    def __init__(self, messages: float, size: float, updated_at: float) -> None:
        self.messages = messages
        self.size = size
        self.updated_at = updated_at


class ClientRateLimiter:
    """Budgets of messages and bytes by client. A batch may overdraw a budget, and the client then has to wait.

    :ivar config: limits; may be replaced at any time.
    """

    def __init__(self, config: FrontendConfig, reactor: Any) -> None:
        self.config = config
        self._reactor = reactor
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    def __len__(self) -> int:
        return len(self._budgets)

    def wait_time(self, client: str) -> float:
        """Return the seconds until a client may publish; 0 if it may publish now."""
        budget, config = self._budget_for(client), self.config
        return max(0.0, -budget.messages / config.messages_per_client, -budget.size / config.bytes_per_client)

    def charge(self, client: str, messages: int, size: int) -> None:
        """Charge published messages to the budget of a client."""
        budget = self._budget_for(client)
        budget.messages -= messages
        budget.size -= size

    def _budget_for(self, client: str) -> _Budget:
        config, now = self.config, self._reactor.seconds()
        max_messages, max_size = config.messages_per_client * config.burst, config.bytes_per_client * config.burst
        budget = self._budgets.get(client)
        if budget is None:
            budget = self._budgets[client] = _Budget(max_messages, max_size, now)
            if len(self._budgets) > MAX_CLIENTS:
                self._budgets.popitem(last=False)
            return budget
        self._budgets.move_to_end(client)
        passed = max(0.0, now - budget.updated_at)
        budget.messages = min(max_messages, budget.messages + passed * config.messages_per_client)
        budget.size = min(max_size, budget.size + passed * config.bytes_per_client)
        budget.updated_at = now
        return budget
