"""Reference figures of greedy routing."""

from __future__ import annotations

from typing import NamedTuple


class Reference(NamedTuple):
    """A row of the table: 2,000 routes on one network with a lattice and one without.

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
