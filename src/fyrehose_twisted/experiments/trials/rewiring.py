"""Links that nodes of an experiment choose by a policy while their trees grow."""

from __future__ import annotations

from math import inf
from typing import Protocol

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.growth.growing_network import GrowingNetwork
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.interfaces import ILinkPolicy


class RewiredNetwork(Protocol):
    """Network whose links change."""

    seed: int
    topology: Topology

    def is_up(self, node: int) -> bool:
        """Return True if a node is running."""

    def link(self, a: int, b: int) -> None:
        """Add a link between two nodes."""

    def unlink(self, a: int, b: int) -> None:
        """Remove the link between two nodes."""


class Rewiring:
    """Process that runs a round of a link policy at regular times, and changes the links accordingly.

    A node that died loses its links at the next round. One that returns joins again there, with links to two random
    nodes. Until then it has none.

    :param every: simulated seconds between two rounds.
    :ivar linked: number of links that were added.
    :ivar unlinked: number of links that were removed.
    """

    def __init__(
        self, network: RewiredNetwork, simulation: SimulatedNetwork, policy: ILinkPolicy, every: float
    ) -> None:
        if not 0.0 < every < inf:
            raise ConfigurationError(f"every={every!r}: give a number of more than 0 seconds")
        if simulation.links() != network.topology.edges().tolist():
            raise ConfigurationError("links were changed before; start the rewiring first, and only once")
        self._network = network
        self._simulation = simulation
        self._every = every
        self._stopped = False
        self.linked = self.unlinked = 0
        self._links = {(one, other) for one, other in simulation.links()}
        self._growing = GrowingNetwork.of_topology(policy, network.topology, network.seed)
        self._apply()
        self._schedule()

    def stop(self) -> None:
        """Stop the rewiring."""
        self._stopped = True

    def _schedule(self) -> None:
        self._simulation.call_at(self._simulation.now + self._every, self._run_round)

    def _run_round(self) -> None:
        if self._stopped:
            return
        absent = self._growing.absent
        for node in range(self._network.topology.n):
            if self._network.is_up(node) == (node in absent):
                if node in absent:
                    self._growing.rejoin(node)
                else:
                    self._growing.leave(node)
        self._growing.run_round()
        self._apply()
        self._schedule()

    def _apply(self) -> None:
        """Change the links to those of the growing network."""
        wanted = {
            (node, other) for node in range(self._growing.n) for other in self._growing.neighbours(node) if node < other
        }
        for one, other in sorted(self._links - wanted):
            self._network.unlink(one, other)
            self.unlinked += 1
        for one, other in sorted(wanted - self._links):
            self._network.link(one, other)
            self.linked += 1
        self._links = wanted
