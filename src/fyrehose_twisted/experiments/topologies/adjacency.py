"""Adjacency arrays (compressed sparse rows): the neighbours of all nodes, and the start of each node's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Locations = NDArray[np.float64]
Starts = NDArray[np.int64]
Nodes = NDArray[np.int32]
LinkKeys = NDArray[np.int64]
"""Links as numbers: the lower node times the number of nodes, plus the higher node."""

MAX_NODES = 2**31 - 1


def link_keys(ones: NDArray[np.integer], others: NDArray[np.integer], n: int) -> LinkKeys:
    """Return the links between ``ones`` and ``others`` as numbers, in the given order."""
    keys: LinkKeys = np.minimum(ones, others).astype(np.int64)
    keys *= n
    keys += np.maximum(ones, others)
    return keys


def build_adjacency(keys: LinkKeys, n: int) -> tuple[Starts, Nodes]:
    """Return the start of each node's neighbours, and the neighbours, in ascending order per node.

    :param keys: distinct links, none from a node to itself.
    """
    low, high = np.divmod(keys, n)
    both = np.concatenate((keys, high * n + low))
    both.sort()
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(low, minlength=n) + np.bincount(high, minlength=n), out=indptr[1:])
    both %= n
    return indptr, both.astype(np.int32)


def neighbour_positions(
    indptr: Starts, nodes: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of all neighbours of ``nodes``, their owners, and the number of neighbours of each node.

    Positions index the array of neighbours, in the order of ``nodes``. Owners index ``nodes``.
    """
    first = indptr[nodes]
    counts = indptr[nodes + 1] - first
    ends = np.cumsum(counts)
    owners = np.repeat(np.arange(len(nodes)), counts)
    places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + counts, counts)
    return places, owners, counts


def path_lengths(indptr: Starts, indices: Nodes, start: int, wanted: Nodes) -> NDArray[np.int32]:
    """Return the length of the shortest path from one node to each ``wanted`` one; -1 if there is none."""
    lengths = np.full(len(indptr) - 1, -1, np.int32)
    lengths[start] = length = 0
    frontier = np.array([start])
    while len(frontier) and (lengths[wanted] < 0).any():
        length += 1
        near = indices[neighbour_positions(indptr, frontier)[0]]
        lengths[near[lengths[near] < 0]] = length
        frontier = np.flatnonzero(lengths == length)
    return lengths[wanted]
