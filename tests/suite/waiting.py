"""Conditions that a test waits for without polling."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet import reactor
from twisted.internet.defer import Deferred

DEADLINE = 120.0
"""Seconds after which a condition that does not hold fails the test; reached only on failure."""


class Waiting:
    """Awaited conditions, which are evaluated again after each change."""

    def __init__(self) -> None:
        self._conditions: list[tuple[Callable[[], object], Deferred[None]]] = []

    def until(self, condition: Callable[[], object]) -> Deferred[None]:
        """Return a Deferred that fires once a condition holds."""
        holds: Deferred[None] = Deferred()
        self._conditions.append((condition, holds))
        self.look()
        return holds.addTimeout(DEADLINE, reactor)

    def look(self) -> None:
        """Evaluate all awaited conditions."""
        for condition, holds in tuple(self._conditions):
            if condition():
                self._conditions.remove((condition, holds))
                holds.callback(None)
