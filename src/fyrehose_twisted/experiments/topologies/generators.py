"""Random links: by Kleinberg's model, or uniformly distributed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fyrehose_twisted.experiments.topologies.adjacency import LinkKeys, link_keys

Ranks = NDArray[np.int64]
Draw = Callable[[Ranks], Ranks]
"""Function that draws another end for each of these ends."""

_MAX_DRAWS = 100
"""Rounds of draws after which the remaining links are drawn from all pairs that are not linked."""


def ring_links(n: int, reach: int) -> LinkKeys:
    """Link each of ``n`` ranks to the next ``reach`` ranks on either side; return the links in ascending order.

    :param reach: at most half of the other ranks.
    """
    ranks = np.arange(n, dtype=np.int64)
    keys: LinkKeys = np.unique(
        np.concatenate([link_keys(ranks, (ranks + step) % n, n) for step in range(1, reach + 1)])
    )
    return keys


def kleinberg_links(n: int, count: int, rng: Generator, given: LinkKeys) -> LinkKeys:
    """Draw ``count`` links besides the ``given`` ones, with P ~ 1/d for a difference d of the ranks on the ring.

    :return: all links, in ascending order.
    """
    ranks = np.arange(1, n, dtype=np.float64)
    weights = 1.0 / np.minimum(ranks, n - ranks)
    chances = np.cumsum(weights)

    def draw(sources: Ranks) -> Ranks:
        steps = np.searchsorted(chances, rng.random(len(sources)) * chances[-1], side="right") + 1
        return _step_along_ring(sources, steps, n)

    return _draw_links(n, count, rng, given, draw, lambda low, high: weights[high - low - 1])


def reference_links(n: int, degree: int, rng: Generator, *, lattice: bool) -> Ranks:
    """Draw links like the simulation behind the reference figures; return pairs, some of them repeated.

    The procedure was found by experiment. No other procedure that was tried reproduces all figures.
    """
    drawn = degree - 2 if lattice else degree
    # With an odd degree, each node has half a link more or less at random.
    counts = np.floor(drawn / 2 + rng.random(n)).astype(np.int64) if drawn % 2 else np.full(n, drawn // 2)
    ones = np.repeat(np.arange(n), counts)
    lengths = np.rint((n / 2) ** rng.random(len(ones))).astype(np.int64)
    others = (ones + np.where(rng.random(len(ones)) < 0.5, lengths, -lengths)) % n
    edges = np.column_stack((ones, others))
    if lattice:
        edges = np.concatenate((edges, np.column_stack((np.arange(n), (np.arange(n) + 1) % n))))
    return edges


def random_links(n: int, count: int, rng: Generator) -> LinkKeys:
    """Draw ``count`` uniformly distributed links, and return them in ascending order."""

    def draw(sources: Ranks) -> Ranks:
        steps = (rng.random(len(sources)) * (n - 1)).astype(np.int64) + 1
        return _step_along_ring(sources, steps, n)

    nothing = np.empty(0, np.int64)
    return _draw_links(n, count, rng, nothing, draw, lambda low, high: np.ones(len(low)))


def _step_along_ring(sources: Ranks, steps: Ranks, n: int) -> Ranks:
    # Rounding may make a step too long by one.
    return (sources + np.minimum(steps, n - 1)) % n


def _draw_links(
    n: int,
    count: int,
    rng: Generator,
    given: LinkKeys,
    draw: Draw,
    weigh: Callable[[Ranks, Ranks], NDArray[np.float64]],
) -> LinkKeys:
    # Each node draws the same number of links, and redraws those that exist already.
    sources = np.repeat(np.arange(n, dtype=np.int64), count // n)
    sources = np.concatenate((sources, np.sort(rng.permutation(n)[: count % n])))
    keys = given
    for _ in range(_MAX_DRAWS):
        if not len(sources):
            return keys
        drawn = link_keys(sources, draw(sources), n)
        found, first = np.unique(drawn, return_index=True)
        if len(keys):
            places = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
            new = keys[places] != found
            found, first = found[new], first[new]
        left = np.ones(len(sources), np.bool_)
        left[first] = False
        sources = sources[left]
        # A stable sort merges the two ascending runs.
        keys = np.sort(np.concatenate((keys, found)), kind="stable")
    low, high = (ends.astype(np.int64) for ends in np.triu_indices(n, 1))
    missing = ~np.isin(link_keys(low, high, n), keys)
    low, high = low[missing], high[missing]
    # The smallest exponential times with these rates are a weighted choice without replacement.
    times = rng.exponential(size=len(low)) / weigh(low, high)
    chosen = np.argpartition(times, len(sources) - 1)[: len(sources)]
    return np.sort(np.concatenate((keys, link_keys(low[chosen], high[chosen], n))))
