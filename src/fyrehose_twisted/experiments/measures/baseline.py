"""Counts of a network at the time from which metrics cover it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fyrehose_twisted.freenet.node.node import FreenetNode

if TYPE_CHECKING:
    from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork

COUNTERS = ("overloads", "requests", "data_same", "restarted_sent", "volunteered")
"""Counters of nodes that metrics stand on."""


class Baseline:
    """Counts of a network now, to be subtracted from later ones.

    :ivar time: seconds since the start.
    """

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self.time = network.now
        self._sent_by_type = Counter(network.sent_by_type)
        self._sent = list(network.sent_by_node)
        self._received = list(network.received_by_node)
        # A restarted node is another object, and counts from 0.
        self._counts = {
            id(node): (node, [node.counters[name] for name in COUNTERS])
            for node in network.all_nodes()
            if any(node.counters[name] for name in COUNTERS)
        }

    def sent_by_type(self) -> Counter[type]:
        """Return the number of messages sent since then, by type."""
        return self._network.sent_by_type - self._sent_by_type

    def sent(self, number: int) -> int:
        """Return the number of messages that a node sent since then."""
        return self._network.sent_by_node[number] - self._sent[number]

    def received(self, number: int) -> int:
        """Return the number of messages that a node received since then."""
        return self._network.received_by_node[number] - self._received[number]

    def count(self, number: int, node: FreenetNode, name: str) -> int:
        """Return by how much one of :data:`COUNTERS` of a node has grown since then."""
        _, before = self._counts.get(id(node), (node, None))
        return node.counters[name] - (before[COUNTERS.index(name)] if before else 0)
