"""Recorder of trees that grow, lose nodes and their roots, and heal.

``python record.py FILE [NODES [DEGREE [SUBSCRIBERS [KEYS [SEED]]]]]``
"""

from __future__ import annotations

import sys
from hashlib import sha256
from random import Random

from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.experiments.trials.experiment import TreeExperiment

GROWN, RETURN, LOSS_OF_INTEREST, END = 40.0, 70.0, 90.0, 110.0


def record(file: str, nodes: int = 60, degree: int = 5, subscribers: int = 16, keys: int = 2, seed: int = 7) -> None:
    """Write a trace, with a publication every ten seconds."""
    rng = Random(seed)
    experiment = TreeExperiment(
        Topology.kleinberg(nodes, degree, seed), seed=seed, latency=lambda a, b, rng: rng.uniform(0.02, 0.3)
    )
    experiment.trace(file)
    plan = []
    streams = [sha256(bytes([number])).digest()[:20] for number in range(keys)]
    for key in streams:
        chosen = rng.sample(range(nodes), subscribers)
        plan += [(rng.uniform(0.0, 25.0), experiment.subscribe, (node, key)) for node in chosen]
        plan += [(t, publish, (experiment, chosen, key)) for t in range(15, 110, 10)]
        plan += [(LOSS_OF_INTEREST + 5 * rng.random(), experiment.unsubscribe, (node, key)) for node in chosen[::4]]
    plan += [
        (GROWN, break_down, (experiment, streams, rng)),
        (RETURN, come_back, (experiment,)),
        (75.0, experiment.swap, (3, nodes - 3)),
        (76.0, experiment.unlink, tuple(experiment.topology.edges()[0].tolist())),
        (77.0, experiment.link, (5, nodes // 2)),
    ]
    for t, call, arguments in sorted(plan, key=lambda one: one[0]):
        experiment.run(until=t)
        done = call(*arguments)
        if done is not None:
            done.addErrback(lambda failure: print(failure.getErrorMessage(), file=sys.stderr))
    experiment.run(until=END)


def publish(experiment: TreeExperiment, nodes: list[int], key: bytes) -> object:
    """Publish a packet at the first running subscriber."""
    return experiment.publish(next(node for node in nodes if experiment.is_up(node)), key, str(experiment.now).encode())


def break_down(experiment: TreeExperiment, streams: list[bytes], rng: Random) -> None:
    """Kill the roots and an eighth of the members."""
    doomed: set[int] = set()
    for key in streams:
        tree = experiment.tree(key)
        doomed.update(node for node, parent in tree.items() if parent is None)
        doomed.update(rng.sample(sorted(tree), len(tree) // 8))
    for node in sorted(doomed):
        experiment.kill(node)
        experiment.run(until=experiment.now + 0.1)


def come_back(experiment: TreeExperiment) -> None:
    """Restart every second dead node."""
    dead = [node for node in range(experiment.topology.n) if not experiment.is_up(node)]
    for node in dead[::2]:
        experiment.restart(node)


if __name__ == "__main__":
    record(sys.argv[1], *map(int, sys.argv[2:]))
