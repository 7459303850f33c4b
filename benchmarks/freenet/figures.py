"""Tables, and fits of growth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import mean, stdev

import numpy as np

# Student's 95 % quantiles, by the number of values minus one.
STUDENT = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 14: 2.145, 19: 2.093}


def over_networks(values: Sequence[float]) -> str:
    """Return the mean over networks and the half-width of its 95 % interval."""
    if len(values) < 3:
        return f"{mean(values):.3f}"
    quantile = STUDENT[max(degrees for degrees in STUDENT if degrees <= len(values) - 1)]
    return f"{mean(values):.3f} ± {quantile * stdev(values) / sqrt(len(values)):.3f}"


def one_network(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % prediction interval of one more network."""
    quantile = STUDENT[max(degrees for degrees in STUDENT if degrees <= len(values) - 1)]
    half = quantile * stdev(values) * sqrt(1 + 1 / len(values))
    return mean(values) - half, mean(values) + half


def fit(sizes: Sequence[int], values: Sequence[float], growth: Callable[[np.ndarray], np.ndarray]) -> tuple[float, ...]:
    """Return the line ``a + b * growth(n)`` through the values, and the root mean square of the residuals."""
    base = growth(np.array(sizes, np.float64))
    matrix = np.column_stack((np.ones(len(base)), base))
    (offset, slope), *_ = np.linalg.lstsq(matrix, np.array(values), rcond=None)
    beside = float(np.sqrt(np.mean((matrix @ [offset, slope] - values) ** 2)))
    return float(offset), float(slope), beside
