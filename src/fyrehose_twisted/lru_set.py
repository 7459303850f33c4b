"""Bounded set for the deduplication of relayed messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class LruSet:
    """A set of the most recently added keys.

    :param limit: number of keys; the oldest is evicted first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def add(self, key: Hashable) -> bool:
        """Add a key and return whether it is new."""
        keys = self._keys
        if key in keys:
            return False
        keys[key] = None
        if len(keys) > self._limit:
            keys.popitem(last=False)
        return True

    def discard(self, key: Hashable) -> None:
        """Remove a key, if present."""
        self._keys.pop(key, None)
