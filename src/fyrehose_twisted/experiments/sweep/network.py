"""Simulation of one network of a sweep."""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fyrehose_twisted.errors import TooManyStreams
from fyrehose_twisted.experiments.sweep.grid import Cell, Seeds
from fyrehose_twisted.experiments.sweep.metrics import RENAMED_METRICS
from fyrehose_twisted.experiments.sweep.settings import NetworkSettings
from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.sim.invariants import InvariantViolated

if TYPE_CHECKING:
    from fyrehose_twisted.experiments.topologies.topology import Topology
    from fyrehose_twisted.experiments.trials.experiment import TreeExperiment

PACKET_SIZE = 100
HOUR = 3_600.0
POLL_INTERVAL = 1.0
"""Simulated seconds between two checks for the outcome of a subscription, in networks that lose messages."""


def run_network(cell: Cell) -> dict[str, Any]:
    """Simulate a network and return its metrics.

    They include ``took_topology``, the seconds taken to create the links, and ``violation``, the broken invariant.

    Random nodes subscribe to each key, and random subscribers publish. If a share of the nodes is to be killed, that
    happens next, and remaining subscribers publish again once the trees have healed. Churn follows, with packets
    published at even intervals. Finally the network becomes quiet; one that loses messages gets a fixed time to settle
    instead. All random choices derive from the seeds of the network.
    """
    from fyrehose_twisted.experiments.trials.experiment import TreeExperiment

    settings, seeds = cell.settings, cell.seeds()
    began = perf_counter()
    topology = make_topology(settings, seeds)
    took = perf_counter() - began
    experiment = TreeExperiment(
        topology, settings.policy, latency=settings.latency, loss=settings.loss, seed=seeds.experiment
    )
    run = _NetworkRun(experiment, settings, np.random.default_rng(seeds.choices))
    run.subscribe()
    run.publish()
    if settings.kill:
        run.kill()
        run.publish()
    if settings.churn:
        run.churn()
    measured = {RENAMED_METRICS.get(name, name): value for name, value in experiment.metrics().items()}
    return {**measured, **run.counts(), "violation": run.violation(), "took_topology": took}


def make_topology(settings: NetworkSettings, seeds: Seeds) -> Topology:
    """Return the topology of a network."""
    from fyrehose_twisted.experiments.topologies.topology import Topology

    n, degree, seed = settings.n, settings.degree, seeds.topology
    if settings.topology == "random":
        return Topology.random(n, degree, seed)
    if settings.topology == "ring":
        return Topology.ring(n, int(degree) // 2, seed)
    if settings.topology == "file":
        return Topology.from_file(settings.file, seed)
    topology = Topology.kleinberg(n, degree, seed, settings.lattice)
    if settings.topology == "kleinberg":
        return topology
    shuffled = np.random.default_rng(seeds.swapping).permutation(topology.locations)
    return Topology.from_edges(topology.edges(), shuffled).swap(settings.rounds, seeds.swapping)


class _NetworkRun:
    """Steps of one simulation."""

    def __init__(self, experiment: TreeExperiment, settings: NetworkSettings, rng: np.random.Generator) -> None:
        self._experiment, self._settings, self._rng = experiment, settings, rng
        keys = [rng.bytes(KEY_SIZE) for _ in range(settings.keys)]
        self._subscribers = {key: rng.choice(settings.n, settings.subscribers, replace=False).tolist() for key in keys}
        self._refused = self._published = self._attempted = 0

    def subscribe(self) -> None:
        for key, nodes in self._subscribers.items():
            for node in nodes:
                try:
                    answer = self._experiment.subscribe(node, key).addErrback(_ignore_failure)
                except TooManyStreams:
                    self._refused += 1
                    continue
                if not self._settings.concurrent:
                    self._wait_for(answer)
        self._settle()

    def publish(self) -> None:
        for _ in range(self._settings.packets):
            self._publish_to_all()
            self._settle()

    def kill(self) -> None:
        count = round(self._settings.kill * self._settings.n)
        for node in self._rng.choice(self._settings.n, count, replace=False).tolist():
            self._experiment.kill(node)
        self._settle()

    def churn(self) -> None:
        settings, began = self._settings, self._experiment.now
        churn = self._experiment.churn(settings.churn * settings.n / HOUR, HOUR / settings.churn)
        steps = settings.packets + 1
        for step in range(1, steps):
            self._experiment.run(began + settings.duration * step / steps)
            self._publish_to_all()
        self._experiment.run(began + settings.duration)
        churn.stop()
        self._settle()

    def counts(self) -> dict[str, float]:
        """Return the metrics that the experiment does not measure."""
        return {
            "refused": float(self._refused),
            "publish_success": self._published / self._attempted if self._attempted else math.nan,
        }

    def violation(self) -> str | None:
        if self._settings.loss:
            return None  # With message loss, neighbours may disagree for a while.
        try:
            self._experiment.check()
        except InvariantViolated as error:
            return " ".join(str(error).split())
        return None

    def _settle(self) -> None:
        if self._settings.loss:
            self._experiment.run(self._experiment.now + self._settings.settle)
        else:
            self._experiment.run("quiet")

    def _wait_for(self, answer: Any) -> None:
        if not self._settings.loss:
            self._experiment.run("quiet")
            return
        until = self._experiment.now + self._settings.settle
        while not answer.called and self._experiment.now < until:
            self._experiment.run(min(self._experiment.now + POLL_INTERVAL, until))

    def _publish_to_all(self) -> None:
        for key in self._subscribers:
            subscribers = self._experiment.subscribers(key)
            if subscribers:
                node = subscribers[int(self._rng.integers(len(subscribers)))]
                self._attempted += 1
                data = self._rng.bytes(PACKET_SIZE)
                self._experiment.publish(node, key, data).addCallbacks(self._count_published, _ignore_failure)

    def _count_published(self, number: int) -> None:
        self._published += 1


def _ignore_failure(failure: object) -> None:
    """Ignore a failure, which is counted elsewhere."""
