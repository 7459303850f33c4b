"""Troubles of a publisher with its nodes, told once for each change and not once for each attempt."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.effects import Address

OnTrouble = Callable[[Address, str | None], object]
"""Told of a node and its trouble in a few words, ``None`` once it takes events after a trouble of any node."""

NO_ANSWER = "no answer"


class NodeTroubles:
    """Remembers which trouble of which node was told.

    :param tell: told of each change.
    """

    def __init__(self, tell: OnTrouble) -> None:
        self._tell = tell
        self._told: dict[Address, str] = {}
        self._troubled = False

    def failed(self, node: Address, trouble: str) -> None:
        """A node could not be used."""
        self._troubled = True
        if self._told.get(node) != trouble:
            self._told[node] = trouble
            self._tell(node, trouble)

    def works(self, node: Address) -> None:
        """A node has taken events."""
        if self._troubled:
            self._troubled = False
            self._told.pop(node, None)
            self._tell(node, None)
