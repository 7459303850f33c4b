"""Shares of a table that other nodes fill: a node that has proven nothing may not keep a member out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

UNTRUSTED_DIVISOR = 4
"""With a secret, this part of a table at most is for nodes that have not proven that they know it: one in four."""
SOURCE_DIVISOR = 2
"""Of what is left to such nodes, or of the table where there is no secret, the part that one address may take."""


class TableEntry(NamedTuple):
    """One entry, taken or wanted.

    :ivar max_per_source: IP address of the node.
    :ivar trusted: whether the node has proven that it knows the secret, or the operator named it.
    """

    source: str
    trusted: bool


class TableQuota:
    """How many entries of a table each kind of node may take.

    :param limit: entries of the table.
    :param secret: whether there is one that nodes can prove to know.
    """

    def __init__(self, limit: int, *, secret: bool) -> None:
        self.limit = limit
        self.max_untrusted = max(1, limit // UNTRUSTED_DIVISOR) if secret else limit
        self.max_per_source = max(1, self.max_untrusted // SOURCE_DIVISOR)

    def has_room(self, taken: Iterable[TableEntry], wanted: TableEntry) -> bool:
        """Return whether one entry more fits."""
        places = list(taken)
        if len(places) >= self.limit:
            return False
        if wanted.trusted:
            return True
        strangers = [place.source for place in places if not place.trusted]
        return len(strangers) < self.max_untrusted and strangers.count(wanted.source) < self.max_per_source
