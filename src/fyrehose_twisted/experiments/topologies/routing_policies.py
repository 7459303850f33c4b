"""Routing policies: the order in which a request tries the neighbours of a node."""

from __future__ import annotations

from typing import Any

import numpy as np
from zope.interface import implementer

from fyrehose_twisted.interfaces import IRoutingPolicy


@implementer(IRoutingPolicy)
class GreedyRouting:
    """Policy of document 003: the neighbour nearest to the key is next ("When we get a SubscribeRequest")."""

    def cost(self, here: Any, target: Any, neighbour: Any) -> Any:
        """See :meth:`~fyrehose_twisted.interfaces.IRoutingPolicy.cost`."""
        straight = abs(neighbour - target)
        return np.minimum(straight, 1.0 - straight)


@implementer(IRoutingPolicy)
class ClockwiseRouting:
    """Policy of Chord and Symphony: the neighbour from which the way to the key is shortest in ascending direction."""

    def cost(self, here: Any, target: Any, neighbour: Any) -> Any:
        """See :meth:`~fyrehose_twisted.interfaces.IRoutingPolicy.cost`."""
        return (target - neighbour) % 1.0
