"""Which messages were relayed already."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class LruSet:
    """The last keys that were put in, no more than a limit.

    :param limit: how many keys are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def add(self, key: Hashable) -> bool:
        """Put a key in; return whether it is new."""
        keys = self._keys
        if key in keys:
            return False
        keys[key] = None
        if len(keys) > self._limit:
            keys.popitem(last=False)
        return True

    def discard(self, key: Hashable) -> None:
        """Forget a key."""
        self._keys.pop(key, None)
