"""A mean, and within what it lies if the networks were drawn anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """What replicas of one cell say.

    :ivar networks: how many of them have a value.
    :ivar low: where the interval of Student's t for the mean begins, cut at what is possible; ``None`` for one value.
    :ivar high: where it ends.
    """

    networks: int
    mean: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float


def confidence_interval(values: Sequence[float], lowest: float = 0.0, highest: float = math.inf) -> Interval:
    """Return the mean of values, its confidence interval, and the lowest and highest of them.

    :param values: one at least.
    :param lowest: what none can be below.
    :param highest: what none can be above.
    """
    array = np.asarray(values, np.float64)
    mean, least, most = float(array.mean()), float(array.min()), float(array.max())
    if len(array) < 2:
        return Interval(1, mean, None, None, least, most)
    half = t_quantile(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return Interval(
        len(array), mean, max(min(lowest, least), mean - half), min(max(highest, most), mean + half), least, most
    )


@cache
def t_quantile(freedom: int) -> float:
    """Return how many standard errors an interval reaches to either side, with so many degrees of freedom."""
    low, high = 0.0, 16.0
    while _central_probability(high, freedom) < CONFIDENCE:
        low, high = high, 2.0 * high
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_probability(middle, freedom) < CONFIDENCE else (low, middle)
    return high


def _central_probability(t: float, freedom: int) -> float:
    """Return the chance that Student's t is between ``-t`` and ``t`` (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + odd, freedom, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
