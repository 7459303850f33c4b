"""Invariants of a quiet network."""

from __future__ import annotations

from typing import NoReturn

from fyrehose_twisted.experiments.measures.tree_metrics import TreeMetrics
from fyrehose_twisted.experiments.measures.trees import find_all_streams, trace_to_roots
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.sim.invariants import InvariantViolated


def check_network(network: SimulatedNetwork, measures: TreeMetrics) -> None:
    """See :meth:`~fyrehose_twisted.experiments.trials.experiment.TreeExperiment.check`."""
    for key, streams in sorted(find_all_streams(network).items()):
        _check_tree(network, key, streams)
    limit = network.policy.max_streams
    for number, node in network.nodes.items():
        if len(node.streams) > limit:
            _raise_violation(network, "limits", f"{len(node.streams)} streams exceed the limit of {limit}", number)
    if measures.duplicate_deliveries:
        number, key, packet = measures.duplicate_deliveries[0]
        _raise_violation(
            network, "delivered at most once", f"packet {packet} of {key.hex()} was delivered twice", number
        )


def _check_tree(network: SimulatedNetwork, key: bytes, streams: dict[int, Stream]) -> None:
    tree = {number: None if stream.parent is None else stream.parent.node for number, stream in streams.items()}
    tops, _, cyclic = trace_to_roots(tree)
    if cyclic:
        _raise_violation(network, "no cycle", f"{key.hex()}: nodes form a cycle", *cyclic)
    for number, stream in streams.items():
        parent = tree[number]
        if parent is not None:
            above = streams.get(parent)
            if above is None or number not in {subscriber.node for subscriber in above.subscribers}:
                _raise_violation(
                    network, "symmetry", f"{key.hex()}: {number} is not a subscriber of its parent", number, parent
                )
        for subscriber in stream.subscribers:
            if subscriber.link is not None and tree.get(subscriber.node, -1) != number:
                detail = f"{key.hex()}: {subscriber.node} is listed as a subscriber of {number} but has another parent"
                _raise_violation(network, "symmetry", detail, number, subscriber.node)
        if number not in tops or not streams[tops[number]].is_root:
            _raise_violation(
                network, "every member reaches a root", f"{key.hex()}: {number} does not reach one", number
            )


def _raise_violation(network: SimulatedNetwork, invariant: str, detail: str, *nodes: int) -> NoReturn:
    raise InvariantViolated(invariant, network.now, [f"node {node}" for node in nodes[:10]], detail)
