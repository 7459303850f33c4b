"""What was seen lately."""

from __future__ import annotations

DEFAULT_LIMIT = 10_000
"""Requests and packets that a node knows again."""


class RecentIds:
    """The last uids that came by.

    :param limit: how many are remembered.
    """

    __slots__ = ("_ids", "_limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._ids: dict[int, None] = {}

    def add(self, uid: int) -> bool:
        """Remember a uid; say whether it is new."""
        seen = self._ids
        if uid in seen:
            return False
        seen[uid] = None
        if len(seen) > self._limit:
            del seen[next(iter(seen))]
        return True
