"""Current trees of a simulated network."""

from __future__ import annotations

from collections.abc import Mapping

from fyrehose_twisted.experiments.simulated_network import SimulatedNetwork
from fyrehose_twisted.freenet.node.stream import Stream

Tree = dict[int, int | None]
"""Parent of each member; ``None`` for a member without a parent."""


def find_streams(network: SimulatedNetwork, key: bytes) -> dict[int, Stream]:
    """Return the stream ``key`` of each node that has it."""
    found = {}
    for number, node in network.nodes.items():
        stream = node.streams.get(key)
        if stream is not None:
            found[number] = stream
    return found


def find_all_streams(network: SimulatedNetwork) -> dict[bytes, dict[int, Stream]]:
    """Return the streams of all keys, as :func:`find_streams` does for one."""
    found: dict[bytes, dict[int, Stream]] = {}
    for number, node in network.nodes.items():
        for key, stream in node.streams.items():
            found.setdefault(key, {})[number] = stream
    return found


def find_tree(network: SimulatedNetwork, key: bytes) -> Tree:
    """Return the parent of each node that has the stream ``key``."""
    return {
        number: None if stream.parent is None else stream.parent.node
        for number, stream in find_streams(network, key).items()
    }


def trace_to_roots(tree: Mapping[int, int | None]) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Return the top of each member's path, the length of the path, and the members of cycles.

    A member whose path leads into a cycle, or to a node that is not a member, is in neither mapping.
    """
    tops: dict[int, int] = {}
    depths: dict[int, int] = {}
    rootless: set[int] = set()
    cyclic: set[int] = set()
    for start in tree:
        path: list[int] = []
        index: dict[int, int] = {}
        node: int | None = start
        while node is not None and node not in tops and node not in rootless and node not in index and node in tree:
            index[node] = len(path)
            path.append(node)
            node = tree[node]
        if node is None:
            top, depth = path[-1], -1
        elif node in tops:
            top, depth = tops[node], depths[node]
        else:
            if node in index:
                cyclic.update(path[index[node] :])
            rootless.update(path)
            continue
        for member in reversed(path):
            depth += 1
            tops[member], depths[member] = top, depth
    return tops, depths, sorted(cyclic)
