"""Fixtures of small networks with predictable results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment

KEY = bytes(20)
Make = Callable[..., TreeExperiment]


@pytest.fixture
def line() -> Make:
    """Factory of five nodes in a line towards the key of 20 zeros, at 0.714; the last one becomes the root."""

    def made(policy: Policy | None = None, **options: Any) -> TreeExperiment:
        edges = [(0, 1), (1, 2), (2, 3), (3, 4)]
        return TreeExperiment(Topology.from_edges(edges, [0.51, 0.56, 0.61, 0.66, 0.71]), policy, **options)

    return made


@pytest.fixture
def ring() -> Make:
    """Factory of five nodes in a ring, the fourth of which is nearest to the key of 20 zeros."""

    def made(policy: Policy | None = None, **options: Any) -> TreeExperiment:
        edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
        return TreeExperiment(Topology.from_edges(edges, [0.1, 0.3, 0.5, 0.7, 0.9]), policy, **options)

    return made


@pytest.fixture
def result() -> Callable[[Deferred[Any]], Any]:
    """Return the result of a Deferred."""

    def found(done: Deferred[Any]) -> Any:
        results: list[Any] = []
        done.addCallback(results.append)
        (only,) = results
        return only

    return found


@pytest.fixture
def problem() -> Callable[[Deferred[Any], type[Exception]], Any]:
    """Return the error of a Deferred, which must be of a type."""

    def found(done: Deferred[Any], kind: type[Exception]) -> Any:
        failures: list[Failure] = []
        done.addErrback(failures.append)
        (only,) = failures
        assert isinstance(only.value, kind)
        return only.value

    return found


@pytest.fixture
def grown(result: Callable[[Deferred[Any]], Any]) -> Make:
    """Subscribe nodes one after the other."""

    def subscribed(experiment: TreeExperiment, *nodes: int, key: bytes = KEY) -> TreeExperiment:
        for node in nodes:
            done = experiment.subscribe(node, key)
            experiment.run()
            assert result(done).node == node
        return experiment

    return subscribed


@pytest.fixture
def published(result: Callable[[Deferred[Any]], Any]) -> Callable[..., int]:
    """Publish at a node; return the packet number once the network is quiet."""

    def publish(experiment: TreeExperiment, node: int, data: bytes, *, key: bytes = KEY, **options: Any) -> int:
        done = experiment.publish(node, key, data, **options)
        experiment.run()
        number = result(done)
        assert isinstance(number, int)
        return number

    return publish
