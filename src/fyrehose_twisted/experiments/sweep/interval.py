"""Means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Mean of a metric over the replicas of a cell.

    :ivar networks: number of replicas that have a value.
    :ivar low: lower end of the Student's t interval of the mean, clipped to possible values; ``None`` for one value.
    :ivar high: upper end of the interval.
    """

    networks: int
    mean: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float


def confidence_interval(values: Sequence[float], lowest: float = 0.0, highest: float = math.inf) -> Interval:
    """Return the mean of values with its confidence interval, minimum and maximum.

    :param values: at least one value.
    :param lowest: lowest possible value.
    :param highest: highest possible value.
    """
    array = np.asarray(values, np.float64)
    mean, minimum, maximum = float(array.mean()), float(array.min()), float(array.max())
    if len(array) < 2:
        return Interval(1, mean, None, None, minimum, maximum)
    half = t_quantile(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return Interval(
        len(array),
        mean,
        max(min(lowest, minimum), mean - half),
        min(max(highest, maximum), mean + half),
        minimum,
        maximum,
    )


@cache
def t_quantile(freedom: int) -> float:
    """Return the half-width of an interval in standard errors, for some degrees of freedom."""
    low, high = 0.0, 16.0
    while _central_probability(high, freedom) < CONFIDENCE:
        low, high = high, 2.0 * high
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_probability(middle, freedom) < CONFIDENCE else (low, middle)
    return high


def _central_probability(t: float, freedom: int) -> float:
    """Return P(-t < T < t) for Student's t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + odd, freedom, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
