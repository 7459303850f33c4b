"""Troubles of a publisher with its nodes, told once for each change and not once for each attempt."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.effects import Address

OnNodeWarning = Callable[[Address, str | None], object]
"""Told of a node and its trouble in a few words, ``None`` once it takes events after a trouble of any node."""

NO_ANSWER = "no answer"


class NodeWarnings:
    """Remembers which trouble of which node was told.

    :param tell: told of each change.
    """

    def __init__(self, callback: OnNodeWarning) -> None:
        self._callback = callback
        self._reported: dict[Address, str] = {}
        self._has_failed = False

    def failed(self, node: Address, problem: str) -> None:
        """A node could not be used."""
        self._has_failed = True
        if self._reported.get(node) != problem:
            self._reported[node] = problem
            self._callback(node, problem)

    def recovered(self, node: Address) -> None:
        """A node has taken events."""
        if self._has_failed:
            self._has_failed = False
            self._reported.pop(node, None)
            self._callback(node, None)
