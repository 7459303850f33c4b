"""Bounded set of recently seen keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class LruSet:
    """Set that evicts its oldest key when it grows beyond a limit.

    A key's age counts from when it was added. Adding it again does not renew it.

    :param limit: maximum number of keys.
    """

    __slots__ = ("_keys", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def add(self, key: Hashable) -> bool:
        """Add a key; return whether it is new."""
        keys = self._keys
        if key in keys:
            return False
        keys[key] = None
        if len(keys) > self._limit:
            keys.popitem(last=False)
        return True

    def discard(self, key: Hashable) -> None:
        """Remove a key if it is present."""
        self._keys.pop(key, None)
