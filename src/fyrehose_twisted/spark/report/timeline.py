"""Aggregation of time windows into the bins of a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_BINS = 360
"""Maximum of bins per time axis."""

TRIM_STEPS = ((0.999, 10), (0.99, 1_000), (0.9, 1_000))
"""Fractions of the messages to show, each if the rest would lengthen the axis by the given factor. Otherwise, a wrong
clock on one record in a thousand would compress all others into a line. More records are hidden only if they are very
far away."""

MAX_TRIM_ROUNDS = 8
"""Maximum of steps that narrow the range; each step resolves a former single bin."""


class WeightedSpan(NamedTuple):
    """Time range in microseconds since 1970 with the weight of its contents."""

    start: int
    end: int
    weight: int


@dataclass(frozen=True)
class Timeline:
    """Time axis with bins of equal width.

    :ivar start: start of the first bin, in microseconds since 1970.
    :ivar step: width of a bin, in microseconds.
    :ivar bins: number of bins.
    :ivar end: end of the last window, at or before the end of the last bin.
    :ivar window: width of the aggregated windows, in microseconds.
    :ivar rows: values by key and bin; empty bins are absent.
    :ivar whole: range and weight of all windows.
    :ivar hidden: weight outside the bins.
    """

    start: int
    step: int
    bins: int
    end: int
    window: int
    whole: WeightedSpan
    hidden: int = 0
    rows: dict[str | None, dict[int, dict[str, int]]] = field(default_factory=dict)

    def middle(self, bin: int) -> int:
        """Return the middle of a bin, in microseconds since 1970."""
        return self.start + bin * self.step + round(self.seconds(bin) * 500_000)

    def seconds(self, bin: int) -> float:
        """Return the length of a bin in seconds; the last bin may hold fewer windows."""
        start = self.start + bin * self.step
        return max(self.window, min(self.end, start + self.step) - start) / 1_000_000


def trim_outliers(spans: Sequence[WeightedSpan], total: int, length: int) -> WeightedSpan | None:
    """Return the shortest range with nearly all of the weight if outliers would stretch the axis too far.

    :param spans: currently shown spans, ascending.
    :param total: total weight, including spans no longer shown.
    :param length: current length of the axis, in microseconds.
    """
    for share, ratio in TRIM_STEPS:
        found = _shortest(spans, share * total)
        if found is not None and (found.end - found.start) * ratio < length:
            return found
    return None


def _shortest(spans: Sequence[WeightedSpan], wanted: float) -> WeightedSpan | None:
    best: WeightedSpan | None = None
    low = weight = 0
    for span in spans:
        weight += span.weight
        while low < len(spans) and weight - spans[low].weight >= wanted:
            weight -= spans[low].weight
            low += 1
        if weight >= wanted and low < len(spans):
            found = WeightedSpan(spans[low].start, span.end, weight)
            if best is None or found.end - found.start < best.end - best.start:
                best = found
    return best


def bin_width(start: int, end: int, window: int) -> tuple[int, int]:
    """Return the width of bins of whole windows, and their number from ``start`` to ``end``."""
    windows = max(1, -(-(end - start) // window))
    width = -(-windows // MAX_BINS)
    return width * window, -(-windows // width)


def bin_windows(
    frame: DataFrame, values: dict[str, Column], weight: str, key: Column, within: Timeline | None = None
) -> Timeline | None:
    """Aggregate windows into bins.

    :param frame: table with ``window_start`` and ``window_end``.
    :param values: aggregate columns by result name.
    :param weight: name in ``values`` of the message count.
    :param key: column that separates bins.
    :param within: timeline whose bins are reused.
    :return: ``None`` if there is no window.
    """
    from pyspark.sql import functions as f

    timed = frame.select(
        "*",
        key.alias("key"),
        f.unix_micros("window_start").alias("start"),
        f.unix_micros("window_end").alias("end"),
    ).where("start is not null and end > start")
    if within is None:
        bounds = timed.agg(f.min("start"), f.max("end"), f.max(f.col("end") - f.col("start"))).first()
        if bounds is None or bounds[0] is None:
            return None
        start, end, window = bounds
    else:
        start, end, window = within.start, within.end, within.window
    whole: WeightedSpan | None = None
    for _ in range(MAX_TRIM_ROUNDS):
        step, bins = (bin_width(start, end, window)) if within is None else (within.step, within.bins)
        where = f.floor((f.col("start") - start) / step).alias("bin")
        counted = (
            timed.where((f.col("start") >= start) & (f.col("start") < start + step * bins))
            .groupBy("key", where)
            .agg(f.min("start").alias("_start"), f.max("end").alias("_end"), *(values[n].alias(n) for n in values))
            .collect()
        )
        spans = _spans(counted, weight)
        shown = sum(span.weight for span in spans)
        if whole is None:
            whole = WeightedSpan(start, end, shown)
        inner = trim_outliers(spans, whole.weight, end - start) if within is None and whole.weight else None
        if inner is None:
            break
        start, end = inner.start, inner.end
    assert whole is not None
    rows: dict[str | None, dict[int, dict[str, int]]] = {}
    for row in counted:
        rows.setdefault(row["key"], {})[int(row["bin"])] = {name: int(row[name] or 0) for name in values}
    return Timeline(start, step, bins, end, window, whole, whole.weight - shown, rows)


def _spans(rows: Sequence[Any], weight: str) -> list[WeightedSpan]:
    """Merge the rows of all keys into one span per bin, in ascending order."""
    found: dict[int, WeightedSpan] = {}
    for row in rows:
        known = found.get(row["bin"], WeightedSpan(row["_start"], row["_end"], 0))
        found[row["bin"]] = WeightedSpan(
            min(known.start, row["_start"]), max(known.end, row["_end"]), known.weight + int(row[weight] or 0)
        )
    return [found[bin] for bin in sorted(found)]
