"""What was seen lately."""

from __future__ import annotations

REMEMBERED = 10_000
"""Requests and packets that a node knows again."""


class Recent:
    """The last uids that came by.

    :param limit: how many are remembered.
    """

    __slots__ = ("_limit", "_seen")

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._seen: dict[int, None] = {}

    def add(self, uid: int) -> bool:
        """Remember a uid; say whether it is new."""
        seen = self._seen
        if uid in seen:
            return False
        seen[uid] = None
        if len(seen) > self._limit:
            del seen[next(iter(seen))]
        return True
