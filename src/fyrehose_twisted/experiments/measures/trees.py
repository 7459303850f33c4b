"""Trees as the nodes have them at the moment."""

from __future__ import annotations

from collections.abc import Mapping

from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.freenet.node.stream import Stream

Tree = dict[int, int | None]
"""The parent of each member; ``None`` for who has none."""


def find_streams(network: SimulatedNetwork, key: bytes) -> dict[int, Stream]:
    """Return the streams of all nodes that have one for ``key``."""
    found = {}
    for number, node in network.nodes.items():
        stream = node.streams.get(key)
        if stream is not None:
            found[number] = stream
    return found


def find_tree(network: SimulatedNetwork, key: bytes) -> Tree:
    """Return the parents of all that have a stream for ``key``."""
    return {
        number: None if stream.parent is None else stream.parent.node
        for number, stream in find_streams(network, key).items()
    }


def trace_to_roots(tree: Mapping[int, int | None]) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Return for each member where its way up ends and how long it is, and the members of cycles.

    A way that leads into a cycle, or to somebody who is no member, ends nowhere: then the member is in neither.
    """
    tops: dict[int, int] = {}
    depths: dict[int, int] = {}
    nowhere: set[int] = set()
    cyclic: set[int] = set()
    for start in tree:
        way: list[int] = []
        on_way: dict[int, int] = {}
        one: int | None = start
        while one is not None and one not in tops and one not in nowhere and one not in on_way and one in tree:
            on_way[one] = len(way)
            way.append(one)
            one = tree[one]
        if one is None:
            top, depth = way[-1], -1
        elif one in tops:
            top, depth = tops[one], depths[one]
        else:
            if one in on_way:
                cyclic.update(way[on_way[one] :])
            nowhere.update(way)
            continue
        for member in reversed(way):
            depth += 1
            tops[member], depths[member] = top, depth
    return tops, depths, sorted(cyclic)
