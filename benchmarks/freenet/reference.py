"""Reference figures of greedy routing, and networks drawn as those were that they were measured on.

These differ from :meth:`Topology.kleinberg` in two ways. Lengths of links, in places on the ring, are powers of n / 2
with an exponent that is drawn evenly, rounded: that makes links to the next node 2.5 times as rare as P ~ 1/d does, and
leaves the longer ones as they are. And a link that is drawn again is not replaced, so that nodes have fewer links than
they are said to have. Both were found by trying: no other way that was tried gives all the figures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fyrehose_twisted.freenet.experiments import Topology


class Reference(NamedTuple):
    """A row of the table: of 2,000 routes on one network with and one without a lattice.

    ``hops``, ``p95``, ``within_10`` and ``within_18`` are with the lattice, where all routes succeed.
    """

    n: int
    degree: int
    hops: float
    p95: int
    within_10: float
    within_18: float
    success: float
    hops_without: float


TABLE = (
    Reference(1_000, 10, 6.3, 11, 0.95, 1.0, 0.39, 4.8),
    Reference(1_000, 20, 4.1, 7, 1.0, 1.0, 0.72, 3.8),
    Reference(10_000, 10, 10.4, 17, 0.55, 0.97, 0.26, 7.4),
    Reference(10_000, 27, 5.5, 8, 1.0, 1.0, 0.72, 5.2),
)


def as_referred(n: int, degree: int, seed: int, lattice: bool) -> Topology:
    """Return a network that is drawn as the reference must have drawn its own."""
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = degree - 2 if lattice else degree
    # Half a link more or less, where the degree is odd, falls to a node by chance.
    counts = np.floor(drawn / 2 + rng.random(n)).astype(np.int64) if drawn % 2 else np.full(n, drawn // 2)
    ones = np.repeat(np.arange(n), counts)
    lengths = np.rint((n / 2) ** rng.random(len(ones))).astype(np.int64)
    others = (ones + np.where(rng.random(len(ones)) < 0.5, lengths, -lengths)) % n
    edges = np.column_stack((ones, others))
    if lattice:
        edges = np.concatenate((edges, np.column_stack((np.arange(n), (np.arange(n) + 1) % n))))
    return Topology.from_edges(edges, np.sort(rng.random(n)), n=n)
