"""Shortest paths between the running nodes of a simulated network."""

from __future__ import annotations

from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.experiments import Policy, Topology
from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.experiments.topologies.adjacency import path_lengths


@given(
    seed=st.integers(0, 9),
    cut=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=30),
    down=st.sets(st.integers(1, 39), max_size=10),
)
def test_path_lengths_are_those_of_a_search_node_by_node(seed: int, cut: list[tuple[int, int]], down: set[int]) -> None:
    network = SimulatedNetwork(Topology.kleinberg(40, 3, seed), Policy(), 0.05, 0.0, seed, lambda number, event: None)
    for one, other in cut:
        if other in network.linked_nodes(one):
            network.unlink(one, other)
    for node in down:
        network.kill(node)
    known, queue = {0: 0}, deque([0])
    while queue:
        node = queue.popleft()
        for other in network.linked_nodes(node):
            if other not in known:
                known[other] = known[node] + 1
                queue.append(other)
    found = path_lengths(*network.adjacency(), 0, np.arange(40)).tolist()
    assert found == [known.get(node, -1) for node in range(40)]
