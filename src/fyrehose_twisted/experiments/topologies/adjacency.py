"""Who is linked to whom, as arrays: the neighbours of all nodes one after another, and where those of each begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Locations = NDArray[np.float64]
Starts = NDArray[np.int64]
Nodes = NDArray[np.int32]
LinkKeys = NDArray[np.int64]
"""Links, each as one number: the lower of its nodes times the number of nodes, plus the higher one."""

MAX_NODES = 2**31 - 1


def link_keys(ones: NDArray[np.integer], others: NDArray[np.integer], n: int) -> LinkKeys:
    """Return the links between ``ones`` and ``others`` as numbers, in the order in which they are given."""
    keys: LinkKeys = np.minimum(ones, others).astype(np.int64)
    keys *= n
    keys += np.maximum(ones, others)
    return keys


def build_adjacency(keys: LinkKeys, n: int) -> tuple[Starts, Nodes]:
    """Return where the neighbours of each node begin, and the neighbours, those of a node in ascending order.

    :param keys: links, none of them twice and none from a node to itself.
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
    """Return the places of all neighbours of ``nodes``, whose each is (an index into ``nodes``), and how many each has.

    The places are those in the array of neighbours, in the order of ``nodes``.
    """
    first = indptr[nodes]
    counts = indptr[nodes + 1] - first
    ends = np.cumsum(counts)
    owners = np.repeat(np.arange(len(nodes)), counts)
    places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + counts, counts)
    return places, owners, counts
