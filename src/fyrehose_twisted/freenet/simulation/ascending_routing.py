"""Routing policy of the scenario ``freenet.routing-policy``."""

from __future__ import annotations

from typing import Any

from zope.interface import classImplements

from fyrehose_twisted.interfaces import IRoutingPolicy


class AscendingRouting:
    """Policy that goes around the ring in ascending direction, as in Chord, instead of the shorter way."""

    def cost(self, here: Any, target: Any, neighbour: Any) -> Any:
        """See :meth:`~fyrehose_twisted.interfaces.IRoutingPolicy.cost`."""
        return (target - neighbour) % 1.0


classImplements(AscendingRouting, IRoutingPolicy)
