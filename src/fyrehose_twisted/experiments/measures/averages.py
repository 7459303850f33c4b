"""Mean, maximum and quantiles of samples; NaN if there are none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import nan


def mean(numbers: Collection[float]) -> float:
    """Return the mean of numbers."""
    return sum(numbers) / len(numbers) if numbers else nan


def maximum(numbers: Collection[float]) -> float:
    """Return the largest of several numbers."""
    return float(max(numbers)) if numbers else nan


def quantile(numbers: Sequence[float], share: float) -> float:
    """Return a quantile of numbers in ascending order."""
    return numbers[min(len(numbers) - 1, int(share * len(numbers)))] if numbers else nan
