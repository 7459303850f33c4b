"""Reports of the faults of peers: counts, and warnings without repetitions."""

from __future__ import annotations

from collections import Counter

from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.node.output import NodeOutput

WARNING_INTERVAL = 60.0
"""Seconds for which a repeated warning about one host is suppressed."""


class PeerFaults:
    """Dropped messages and refused peers of one node.

    :param max_warnings: maximum number of warnings in one interval.
    :ivar counts: counts by reason.
    """

    def __init__(self, output: NodeOutput, max_warnings: int, now: float) -> None:
        self.counts: Counter[str] = Counter()
        self._output = output
        self._max_warnings = max_warnings
        self._warned: set[tuple[Address, str]] = set()
        self._since = now

    @property
    def warnings(self) -> int:
        """Number of warnings in the current interval."""
        return len(self._warned)

    def tick(self, now: float) -> None:
        """Begin a new interval if the current one has passed."""
        if now - self._since > WARNING_INTERVAL:
            self._warned.clear()
            self._since = now

    def count(self, reason: str) -> None:
        """Count a dropped message or a refused peer."""
        self.counts[reason] += 1

    def warn(self, address: Address, text: str) -> None:
        """Warn about a host, unless the same warning is recent."""
        if (address, text) in self._warned or len(self._warned) >= self._max_warnings:
            return
        self._warned.add((address, text))
        self._output.warn(text)
