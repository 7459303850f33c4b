"""Policies that choose the first client to forward a REQUEST to."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from zope.interface import classImplements

from fyrehose_twisted.effects import Address
from fyrehose_twisted.interfaces import IForwardPolicy


class RandomForward:
    """Policy that chooses a random journal other than the requester (document 000, backbone rule 4)."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def choose(self, journals: Sequence[Address], requester: Address) -> Address | None:
        """See :meth:`~fyrehose_twisted.interfaces.IForwardPolicy.choose`."""
        if not journals:
            return None
        start = int(self._rng.random() * len(journals))
        chosen = journals[start]
        if chosen != requester:
            return chosen
        if len(journals) == 1:
            return None
        # A second draw among the others keeps them equally likely.
        return journals[(start + 1 + int(self._rng.random() * (len(journals) - 1))) % len(journals)]


classImplements(RandomForward, IForwardPolicy)


class RoundRobinForward:
    """Policy that chooses journals in turn, except the requester (documents 000 and 001, introductions)."""

    def __init__(self) -> None:
        self._next_index = 0

    def choose(self, journals: Sequence[Address], requester: Address) -> Address | None:
        """See :meth:`~fyrehose_twisted.interfaces.IForwardPolicy.choose`."""
        for _ in range(min(2, len(journals))):
            chosen = journals[self._next_index % len(journals)]
            self._next_index += 1
            if chosen != requester:
                return chosen
        return None


classImplements(RoundRobinForward, IForwardPolicy)
