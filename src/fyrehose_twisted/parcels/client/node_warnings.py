"""Warnings about unusable nodes, reported once per change instead of once per attempt."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.effects import Address

OnNodeWarning = Callable[[Address, str | None], object]
"""Callback with a node and its problem, or ``None`` once it accepts events after a problem of any node."""

NO_ANSWER = "no answer"


class NodeWarnings:
    """Last reported problem of each node.

    :param callback: called with each change.
    """

    def __init__(self, callback: OnNodeWarning) -> None:
        self._callback = callback
        self._reported: dict[Address, str] = {}
        self._has_failed = False

    def failed(self, node: Address, problem: str) -> None:
        """Record that a node could not be used."""
        self._has_failed = True
        if self._reported.get(node) != problem:
            self._reported[node] = problem
            self._callback(node, problem)

    def recovered(self, node: Address) -> None:
        """Record that a node accepted events."""
        if self._has_failed:
            self._has_failed = False
            self._reported.pop(node, None)
            self._callback(node, None)
