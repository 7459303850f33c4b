"""Churn of nodes, and swapping of locations."""

from __future__ import annotations

from math import inf, log
from random import Random
from typing import Protocol

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.sessions import Durations, Session
from fyrehose_twisted.freenet.wire.location import distance

WALK_LENGTH = 10
"""Hops of the random walk that finds a partner for a swap."""
MIN_LINK_LENGTH = 1e-12
"""Minimum link length in the product of lengths, which a link of length 0 would otherwise make 0."""


class ChangingNetwork(Protocol):
    """Network whose nodes die, restart and swap locations."""

    seed: int
    topology: Topology

    def is_up(self, node: int) -> bool:
        """Return True if a node is running."""

    def kill(self, node: int) -> None:
        """Kill a running node."""

    def restart(self, node: int) -> None:
        """Restart a node that is down."""

    def swap(self, a: int, b: int) -> None:
        """Exchange the locations of two nodes."""


class Churn:
    """Process that kills and restarts random nodes.

    See :meth:`~fyrehose_twisted.experiments.trials.experiment.TreeExperiment.churn`.
    """

    def __init__(self, network: ChangingNetwork, simulation: SimulatedNetwork, rate: float, mean_life: float) -> None:
        if not rate >= 0.0 or not mean_life > 0.0:
            raise ConfigurationError(
                f"rate={rate!r}, mean_life={mean_life!r}: the rate must be 0 or more, the life more than 0"
            )
        self._network = network
        self._simulation = simulation
        self._rng = Random(f"{network.seed}/churn")
        self._death_rate = network.topology.n / mean_life
        self._rate = rate
        self._stopped = False
        self._schedule_death()
        if rate:
            self._schedule_birth()

    def stop(self) -> None:
        """Stop the churn."""
        self._stopped = True

    def _schedule_death(self) -> None:
        simulation = self._simulation
        simulation.call_at(simulation.now + self._rng.expovariate(self._death_rate), self._kill_node)

    def _schedule_birth(self) -> None:
        simulation = self._simulation
        simulation.call_at(simulation.now + self._rng.expovariate(self._rate), self._restart_node)

    def _kill_node(self) -> None:
        if self._stopped:
            return
        # Drawn among all nodes, so that the death rate is proportional to the number of running nodes.
        node = self._rng.randrange(self._network.topology.n)
        if self._network.is_up(node) and len(self._simulation.down) < self._network.topology.n - 1:
            self._network.kill(node)
        self._schedule_death()

    def _restart_node(self) -> None:
        if self._stopped:
            return
        dead = sorted(self._simulation.down)
        if dead:
            self._network.restart(self._rng.choice(dead))
        self._schedule_birth()


class SessionChurn:
    """Process in which each node runs for a random time, stays away for a random time, and so on.

    The last running node stays.

    :param lives: durations for which nodes run.
    :param pauses: durations for which they stay away.
    :param warm_up: seconds by which the sessions are ahead. With 0, those of the nodes that run begin now; after some
        mean durations, as many nodes are away as later on, and these are killed now.
    """

    def __init__(
        self,
        network: ChangingNetwork,
        simulation: SimulatedNetwork,
        lives: Durations,
        pauses: Durations,
        warm_up: float = 0.0,
    ) -> None:
        if not 0.0 <= warm_up < inf:
            raise ConfigurationError(f"warm_up={warm_up!r}: give 0 or more seconds")
        self._network = network
        self._simulation = simulation
        self._lives = lives
        self._pauses = pauses
        self._rng = Random(f"{network.seed}/sessions")
        self._stopped = False
        for node in range(network.topology.n):
            self._begin(node, warm_up)

    def stop(self) -> None:
        """Stop the churn."""
        self._stopped = True

    def _begin(self, node: int, warm_up: float) -> None:
        runs = self._network.is_up(node)
        change = self._draw(runs)
        while change <= warm_up:
            runs = not runs
            change += self._draw(runs)
        if runs != self._network.is_up(node):
            self._toggle(node)
            if runs != self._network.is_up(node):  # It is the last one, and begins a session.
                change = warm_up + self._draw(True)
        self._simulation.call_at(self._simulation.now + change - warm_up, self._change, node)

    def _draw(self, runs: bool) -> float:
        return (self._lives if runs else self._pauses).draw(self._rng)

    def _change(self, node: int) -> None:
        if not self._stopped:
            self._toggle(node)
            when = self._simulation.now + self._draw(self._network.is_up(node))
            self._simulation.call_at(when, self._change, node)

    def _toggle(self, node: int) -> None:
        if not self._network.is_up(node):
            self._network.restart(node)
        elif len(self._simulation.down) < self._network.topology.n - 1:
            self._network.kill(node)


class SessionReplay:
    """Process that starts and kills nodes at recorded times. Nodes without sessions are left alone.

    :param sessions: sessions by node and time, none of which overlap.
    """

    def __init__(self, network: ChangingNetwork, simulation: SimulatedNetwork, sessions: list[Session]) -> None:
        self._network = network
        self._stopped = False
        began = simulation.now
        absent = {session.node for session in sessions} - {session.node for session in sessions if not session.join}
        for node in sorted(absent):
            if network.is_up(node):
                network.kill(node)
        for session in sessions:
            simulation.call_at(began + session.join, self._start, session.node)
        # A session that begins when another ends continues it.
        following = {(session.node, session.join) for session in sessions}
        for session in sessions:
            if session.leave < inf and (session.node, session.leave) not in following:
                simulation.call_at(began + session.leave, self._end, session.node)

    def stop(self) -> None:
        """Stop the replay."""
        self._stopped = True

    def _start(self, node: int) -> None:
        if not self._stopped and not self._network.is_up(node):
            self._network.restart(node)

    def _end(self, node: int) -> None:
        if not self._stopped and self._network.is_up(node):
            self._network.kill(node)


class LocationSwapping:
    """Process that attempts location swaps (Metropolis-Hastings).

    A random node and the end of a random walk from it swap locations if their links become shorter, and sometimes if
    they become longer.

    :ivar attempted: number of attempts.
    :ivar accepted: number of swaps.
    """

    def __init__(self, network: ChangingNetwork, simulation: SimulatedNetwork, rate: float) -> None:
        if not rate > 0.0:
            raise ConfigurationError(f"rate={rate!r}: the rate must be more than 0")
        self._network = network
        self._simulation = simulation
        self._rate = rate
        self._rng = Random(f"{network.seed}/swapping")
        self._stopped = False
        self.attempted = 0
        self.accepted = 0
        self._schedule_attempt()

    def stop(self) -> None:
        """Stop the swapping."""
        self._stopped = True

    def _schedule_attempt(self) -> None:
        simulation = self._simulation
        simulation.call_at(simulation.now + self._rng.expovariate(self._rate), self._attempt_swap)

    def _attempt_swap(self) -> None:
        if self._stopped:
            return
        rng, simulation = self._rng, self._simulation
        one = other = rng.randrange(self._network.topology.n)
        for _ in range(WALK_LENGTH):
            others = simulation.linked_nodes(other)
            if not others or other in simulation.down:
                break
            other = rng.choice(others)
        if one != other and one not in simulation.down and other not in simulation.down:
            self.attempted += 1
            gain = self._log_link_length(one, other, swapped=False) - self._log_link_length(one, other, swapped=True)
            if gain > 0.0 or rng.random() < 2.718281828459045**gain:
                self.accepted += 1
                self._network.swap(one, other)
        self._schedule_attempt()

    def _log_link_length(self, one: int, other: int, *, swapped: bool) -> float:
        """Return the logarithm of the product of the link lengths of both nodes."""
        simulation, places = self._simulation, self._simulation.locations
        total = 0.0
        for node, partner in ((one, other), (other, one)):
            place = places[partner if swapped else node]
            for neighbour in simulation.linked_nodes(node):
                if neighbour != partner:
                    total += log(max(distance(place, places[neighbour]), MIN_LINK_LENGTH))
        return total
