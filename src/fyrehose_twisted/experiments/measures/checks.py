"""What must hold in a network that is quiet."""

from __future__ import annotations

from typing import NoReturn

from fyrehose_twisted.experiments.measures.tree_metrics import Measures
from fyrehose_twisted.experiments.measures.trees import ends, streams_of
from fyrehose_twisted.experiments.simulated_network import World
from fyrehose_twisted.sim.invariants import InvariantViolated


def check_world(world: World, measures: Measures) -> None:
    """See :meth:`~fyrehose_twisted.experiments.trials.experiment.TreeExperiment.check`."""
    keys = sorted({key for node in world.nodes.values() for key in node.streams})
    for key in keys:
        _check_tree(world, key)
    limit = world.policy.max_streams
    for number, node in world.nodes.items():
        if len(node.streams) > limit:
            _violated(world, "limits", f"{len(node.streams)} streams are over the limit of {limit}", number)
    if measures.delivered_twice:
        number, key, packet = measures.delivered_twice[0]
        _violated(world, "delivered once", f"packet {packet} of {key.hex()} was delivered twice", number)


def _check_tree(world: World, key: bytes) -> None:
    streams = streams_of(world, key)
    tree = {number: None if one.parent is None else one.parent.node for number, one in streams.items()}
    tops, _, cyclic = ends(tree)
    if cyclic:
        _violated(world, "no cycle", f"{key.hex()}: they are above themselves", *cyclic)
    for number, stream in streams.items():
        parent = tree[number]
        if parent is not None:
            above = streams.get(parent)
            if above is None or number not in {one.node for one in above.subscribers}:
                _violated(world, "symmetry", f"{key.hex()}: the parent of {number} does not know of it", number, parent)
        for subscriber in stream.subscribers:
            if subscriber.link is not None and tree.get(subscriber.node, -1) != number:
                what = f"{key.hex()}: {subscriber.node} is no subscriber of {number} any more, which does not know that"
                _violated(world, "symmetry", what, number, subscriber.node)
        if number not in tops or not streams[tops[number]].is_root:
            _violated(world, "everybody reaches a root", f"{key.hex()}: {number} does not", number)


def _violated(world: World, invariant: str, what: str, *nodes: int) -> NoReturn:
    raise InvariantViolated(invariant, world.now, [f"node {node}" for node in nodes[:10]], what)
