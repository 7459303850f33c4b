"""Metrics of the current trees of a simulated network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from fyrehose_twisted.experiments.measures.averages import maximum, mean
from fyrehose_twisted.experiments.measures.trees import find_all_streams, trace_to_roots
from fyrehose_twisted.experiments.topologies.adjacency import path_lengths

if TYPE_CHECKING:
    from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork


class TreeShapes:
    """Figures of the trees of several keys at one moment."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._streams = find_all_streams(network)
        self._keys = self._subscribers = self._members = self._reached = self._cycles = 0
        self._roots: list[int] = []
        self._depths: list[int] = []
        self._stretches: list[float] = []
        self._stress: Counter[tuple[int, int]] = Counter()
        self._fan_outs: list[int] = []

    def add(self, key: bytes, subscribers: Sequence[int]) -> None:
        """Add the tree of a key with these running subscribers."""
        streams = self._streams.get(key, {})
        tree = {number: None if one.parent is None else one.parent.node for number, one in streams.items()}
        tops, heights, cyclic = trace_to_roots(tree)
        self._keys += 1
        self._members += len(tree)
        self._cycles += len(cyclic)
        self._subscribers += len(subscribers)
        if subscribers:
            # A node that is searching for a parent is not counted in any tree.
            sizes = Counter(tops[node] for node in subscribers if node in tops and streams[tops[node]].is_root)
            self._roots.append(sum(one.is_root for one in streams.values()))
            self._reached += max(sizes.values(), default=0)
        self._depths += [heights[node] for node in subscribers if node in heights]
        self._stretches += _path_stretches(self._network, subscribers, tops, heights)
        for number, parent in tree.items():
            if parent is not None:
                self._stress[min(number, parent), max(number, parent)] += 1
        # Counted from parents, since nodes also remember subscribers whose links are down.
        self._fan_outs += Counter(parent for parent in tree.values() if parent is not None).values()

    def metrics(self) -> dict[str, float]:
        """Return the metrics over all keys; :mod:`~fyrehose_twisted.experiments.measures.tree_metrics` lists them."""
        per_node = [len(node.streams) for node in self._network.nodes.values() if node.streams]
        stress = self._stress.values()
        return {
            "keys": float(self._keys),
            "subscribers": float(self._subscribers),
            "members": float(self._members),
            "members_per_subscriber": self._members / self._subscribers if self._subscribers else nan,
            "roots_per_key": mean(self._roots),
            "reach": self._reached / self._subscribers if self._subscribers else nan,
            "depth_mean": mean(self._depths),
            "depth_max": maximum(self._depths),
            "stretch": mean(self._stretches),
            "link_stress_mean": mean(stress),
            "link_stress_max": maximum(stress),
            "fan_out_mean": mean(self._fan_outs),
            "fan_out_max": maximum(self._fan_outs),
            "streams_per_node_mean": mean(per_node),
            "streams_per_node_max": maximum(per_node),
            "cycles": float(self._cycles),
        }


def _path_stretches(
    network: SimulatedNetwork, nodes: Iterable[int], tops: Mapping[int, int], heights: Mapping[int, int]
) -> list[float]:
    by_root: dict[int, list[int]] = {}
    for node in nodes:
        if heights.get(node, 0) > 0:
            by_root.setdefault(tops[node], []).append(node)
    found: list[float] = []
    indptr, indices = network.adjacency()
    for root, below in by_root.items():
        shortest = path_lengths(indptr, indices, root, np.array(below)).tolist()
        found += [heights[node] / length for node, length in zip(below, shortest, strict=True) if length > 0]
    return found
