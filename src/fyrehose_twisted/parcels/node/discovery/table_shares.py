"""Quotas of tables that remote nodes fill, so that unauthenticated nodes cannot crowd out members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fyrehose_twisted.host_addresses import source_network

UNTRUSTED_DIVISOR = 4
"""With a secret, unauthenticated nodes may take at most one in this many entries."""
SOURCE_DIVISOR = 2
"""One IP address may take at most one in this many of the entries open to unauthenticated nodes."""


class TableEntry(NamedTuple):
    """An existing or requested entry.

    :ivar source: IP address of the node.
    :ivar trusted: whether the node proved the secret or is configured by the operator.
    """

    source: str
    trusted: bool


class TableQuota:
    """Limits of one table: in total, for unauthenticated nodes, and for one IPv4 address or IPv6 /64.

    :param limit: maximum number of entries.
    :param secret: whether the cluster has a secret.
    """

    def __init__(self, limit: int, *, secret: bool) -> None:
        self.limit = limit
        self.max_untrusted = max(1, limit // UNTRUSTED_DIVISOR) if secret else limit
        self.max_per_source = max(1, self.max_untrusted // SOURCE_DIVISOR)

    def has_room(self, taken: Iterable[TableEntry], wanted: TableEntry) -> bool:
        """Return whether ``wanted`` fits the quota."""
        entries = list(taken)
        if len(entries) >= self.limit:
            return False
        if wanted.trusted:
            return True
        sources = [source_network(entry.source) for entry in entries if not entry.trusted]
        taken_by_source = sources.count(source_network(wanted.source))
        return len(sources) < self.max_untrusted and taken_by_source < self.max_per_source
