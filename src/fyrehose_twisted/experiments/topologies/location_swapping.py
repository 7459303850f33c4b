"""Swapping of locations, which makes given links suitable for greedy routing.

Two nodes compare the products of their link lengths before and after a swap. They swap if the product becomes smaller,
and otherwise with the ratio of the products as probability. This is the Metropolis-Hastings algorithm for the
distribution in which the probability of a link is in inverse proportion to its length.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fyrehose_twisted.experiments.topologies.adjacency import Locations, Nodes, Starts, neighbour_positions

WALK_LENGTH = 10
"""Hops of the random walk to the partner of a swap."""
RESET_PROBABILITY = 2 / 16_000
"""Probability that a node draws a new location instead of attempting a swap."""
_MIN_LENGTH = 2.0**-64
"""Minimum length of a link, for nodes at the same location."""
_NODES_PER_ATTEMPT = 4
"""Nodes per node that a batch of attempts touches. With fewer, most attempts would wait for each other."""

_Numbers = NDArray[np.int64]


def swap_locations(
    indptr: Starts,
    indices: Nodes,
    locations: Locations,
    rounds: int,
    rng: Generator,
    *,
    walk: int = WALK_LENGTH,
    reset: float = RESET_PROBABILITY,
) -> Locations:
    """Return the locations after ``rounds`` attempts per node on average.

    Each attempt is made by a random node, with the end of a random walk from it. The result equals that of sequential
    attempts in the order they were drawn; independent attempts are computed at once.

    :param walk: hops of the walk.
    :param reset: probability that a node draws a new location instead.
    """
    now = locations.copy()
    n = len(now)
    batch = max(1, int(n / (_NODES_PER_ATTEMPT * (len(indices) // n + 1))))
    for _ in range(rounds):
        ones, others, chances = draw_attempts(indptr, indices, rng, walk=walk, reset=reset)
        waiting = np.empty(0, np.int64)
        begun = 0
        while begun < n or len(waiting):
            until = min(n, begun + max(0, batch - len(waiting)))
            tried = np.concatenate((waiting, np.arange(begun, until)))
            begun = until
            free = _find_independent(indptr, indices, ones[tried], others[tried])
            waiting, tried = tried[~free], tried[free]
            _make_attempts(indptr, indices, now, ones[tried], others[tried], chances[tried])
    return now


def draw_attempts(
    indptr: Starts, indices: Nodes, rng: Generator, *, walk: int, reset: float
) -> tuple[_Numbers, _Numbers, NDArray[np.float64]]:
    """Return the attempts of one round: nodes, partners, and random numbers that a swap's ratio must exceed.

    A partner is -1 if the node draws a new location instead, which is then the random number.
    """
    n = len(indptr) - 1
    ones = rng.integers(0, n, n)
    others = ones.copy()
    for _ in range(walk):
        first = indptr[others]
        counts = indptr[others + 1] - first
        steps = (rng.random(n) * counts).astype(np.int64)
        linked = counts > 0
        others[linked] = indices[(first + steps)[linked]]
    others[rng.random(n) < reset] = -1
    return ones, others, rng.random(n)


def _find_independent(indptr: Starts, indices: Nodes, ones: _Numbers, others: _Numbers) -> NDArray[np.bool_]:
    """Return for each attempt whether no earlier one may move its nodes or their neighbours.

    Since links are symmetric, no earlier one then reads what it may move either.
    """
    count = len(ones)
    moves = np.concatenate((ones, np.where(others < 0, ones, others)))
    order = np.tile(np.arange(count), 2)
    mover = np.full(len(indptr) - 1, count)
    np.minimum.at(mover, moves, order)
    places, owners, _ = neighbour_positions(indptr, moves)
    earliest = mover[moves]
    np.minimum.at(earliest, owners, mover[indices[places]])
    independent: NDArray[np.bool_] = np.minimum(earliest[:count], earliest[count:]) >= order[:count]
    return independent


def _make_attempts(
    indptr: Starts,
    indices: Nodes,
    now: Locations,
    ones: _Numbers,
    others: _Numbers,
    chances: NDArray[np.float64],
) -> None:
    new = others < 0
    now[ones[new]] = chances[new]
    ones, others, chances = ones[~new], others[~new], chances[~new]
    gain = _gain(indptr, indices, now, ones, others)
    with np.errstate(divide="ignore"):
        swap = np.log(chances) < gain
    left, right = ones[swap], others[swap]
    now[left], now[right] = now[right], now[left]


def _gain(indptr: Starts, indices: Nodes, now: Locations, ones: _Numbers, others: _Numbers) -> NDArray[np.float64]:
    """Return the logarithms of the ratios of the products of link lengths before and after a swap."""
    left, right = np.concatenate((ones, others)), np.concatenate((others, ones))
    places, owners, _ = neighbour_positions(indptr, left)
    ends = indices[places]
    # The length of a link between the two does not change.
    kept = ends != right[owners]
    owners, at = owners[kept], now[ends[kept]]
    gain = np.log(_link_lengths(now[left][owners], at) / _link_lengths(now[right][owners], at))
    total: NDArray[np.float64] = np.bincount(owners % max(1, len(ones)), gain, minlength=len(ones)).astype(np.float64)
    return total


def _link_lengths(one: Locations, other: Locations) -> NDArray[np.float64]:
    straight = np.abs(one - other)
    return np.maximum(np.minimum(straight, 1.0 - straight), _MIN_LENGTH)
