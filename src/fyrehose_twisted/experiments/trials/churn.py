"""Nodes come and go, and locations are swapped."""

from __future__ import annotations

from math import log
from random import Random
from typing import Protocol

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.wire.location import distance

WALK_LENGTH = 10
"""Hops of the walk that finds a partner for a swap."""
MIN_LINK_LENGTH = 1e-12
"""Shorter links count as this long, or one of length 0 would outweigh all others."""


class ChangingNetwork(Protocol):
    """The network whose nodes fail, restart and swap locations."""

    seed: int
    topology: Topology

    def is_up(self, node: int) -> bool:
        """Return whether a node runs."""

    def kill(self, node: int) -> None:
        """Stop a node that runs."""

    def restart(self, node: int) -> None:
        """Start a node that was stopped."""

    def swap(self, a: int, b: int) -> None:
        """Exchange the locations of two nodes."""


class Churn:
    """Lets nodes die and come back. See
    :meth:`~fyrehose_twisted.experiments.trials.experiment.TreeExperiment.churn`."""

    def __init__(self, network: ChangingNetwork, world: SimulatedNetwork, rate: float, mean_life: float) -> None:
        if not rate >= 0.0 or not mean_life > 0.0:
            raise ConfigurationError(f"rate={rate!r}, mean_life={mean_life!r}: a rate is 0 or more, a life more than 0")
        self._network = network
        self._world = world
        self._rng = Random(f"{network.seed}/churn")
        self._death_rate = network.topology.n / mean_life
        self._rate = rate
        self._stopped = False
        self._schedule_death()
        if rate:
            self._schedule_birth()

    def stop(self) -> None:
        """Let everybody be as they are."""
        self._stopped = True

    def _schedule_death(self) -> None:
        world = self._world
        world.call_at(world.now + self._rng.expovariate(self._death_rate), self._kill_node)

    def _schedule_birth(self) -> None:
        world = self._world
        world.call_at(world.now + self._rng.expovariate(self._rate), self._restart_node)

    def _kill_node(self) -> None:
        if self._stopped:
            return
        # Drawn among all, so that fewer die where fewer live.
        node = self._rng.randrange(self._network.topology.n)
        if self._network.is_up(node) and len(self._world.down) < self._network.topology.n - 1:
            self._network.kill(node)
        self._schedule_death()

    def _restart_node(self) -> None:
        if self._stopped:
            return
        dead = sorted(self._world.down)
        if dead:
            self._network.restart(self._rng.choice(dead))
        self._schedule_birth()


class LocationSwapping:
    """Tries swaps of locations: somebody drawn, and whoever a random walk leads to from there, exchange theirs if their
    links get shorter by that, and sometimes if they get longer.

    :ivar attempted: how often.
    :ivar accepted: how often they did.
    """

    def __init__(self, network: ChangingNetwork, world: SimulatedNetwork, rate: float) -> None:
        if not rate > 0.0:
            raise ConfigurationError(f"rate={rate!r}: a rate is more than 0")
        self._network = network
        self._world = world
        self._rate = rate
        self._rng = Random(f"{network.seed}/swapping")
        self._stopped = False
        self.attempted = 0
        self.accepted = 0
        self._schedule_attempt()

    def stop(self) -> None:
        """Let everybody stay where they are."""
        self._stopped = True

    def _schedule_attempt(self) -> None:
        world = self._world
        world.call_at(world.now + self._rng.expovariate(self._rate), self._attempt_swap)

    def _attempt_swap(self) -> None:
        if self._stopped:
            return
        rng, world = self._rng, self._world
        one = other = rng.randrange(self._network.topology.n)
        for _ in range(WALK_LENGTH):
            others = world.linked_nodes(other)
            if not others or other in world.down:
                break
            other = rng.choice(others)
        if one != other and one not in world.down and other not in world.down:
            self.attempted += 1
            gain = self._log_link_length(one, other, swapped=False) - self._log_link_length(one, other, swapped=True)
            if gain > 0.0 or rng.random() < 2.718281828459045**gain:
                self.accepted += 1
                self._network.swap(one, other)
        self._schedule_attempt()

    def _log_link_length(self, one: int, other: int, *, swapped: bool) -> float:
        """Return the logarithm of the product of the lengths of both nodes' links."""
        world, places = self._world, self._world.locations
        total = 0.0
        for node, partner in ((one, other), (other, one)):
            place = places[partner if swapped else node]
            for neighbour in world.linked_nodes(node):
                if neighbour != partner:
                    total += log(max(distance(place, places[neighbour]), MIN_LINK_LENGTH))
        return total
