"""Windows of time, counted together into as many bins as a plot has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_BINS = 360
"""An axis of time has at most so many bins."""

TRIM_STEPS = ((0.999, 10), (0.99, 1_000), (0.9, 1_000))
"""What part is shown if the rest would make the axis so many times as long. A clock that is wrong for one record in a
thousand would otherwise leave of all others a line; more than that are left out only where they are years away."""

MAX_TRIM_ROUNDS = 8
"""So often the range is narrowed at most: each time, what was one bin can be seen in detail."""


class WeightedSpan(NamedTuple):
    """A range of time, in microseconds since 1970, and how much is in it."""

    start: int
    end: int
    weight: int


@dataclass(frozen=True)
class Timeline:
    """Bins of equal width.

    :ivar start: of the first bin, in microseconds since 1970.
    :ivar step: width of a bin, in microseconds.
    :ivar bins: how many there are.
    :ivar end: where the last window ends, at or before the end of the last bin.
    :ivar window: width of the windows that are counted together, in microseconds.
    :ivar rows: of each key, the values of each of its bins that has any.
    :ivar whole: all there is.
    :ivar hidden: how much of it lies outside of the bins.
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
        """Return the time in the middle of a bin, in microseconds since 1970."""
        return self.start + bin * self.step + round(self.seconds(bin) * 500_000)

    def seconds(self, bin: int) -> float:
        """Return how long a bin is; the last one may have fewer windows than the others."""
        start = self.start + bin * self.step
        return max(self.window, min(self.end, start + self.step) - start) / 1_000_000


def trim_outliers(spans: Sequence[WeightedSpan], total: int, length: int) -> WeightedSpan | None:
    """Return the shortest range that has nearly all, if what is outside of it would stretch the axis beyond reason.

    :param spans: what is shown now, ascending.
    :param total: the weight of all there is, also of what is not shown any more.
    :param length: the length of the axis now, in microseconds.
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
    """Return the width of bins that are whole windows, and how many there are from ``start`` to ``end``."""
    windows = max(1, -(-(end - start) // window))
    width = -(-windows // MAX_BINS)
    return width * window, -(-windows // width)


def bin_windows(
    frame: DataFrame, values: dict[str, Column], weight: str, key: Column, within: Timeline | None = None
) -> Timeline | None:
    """Count windows together.

    :param frame: with ``window_start`` and ``window_end``.
    :param values: how windows are counted together, by the name of the result.
    :param weight: the one of ``values`` that tells how many messages there were.
    :param key: what gets bins of its own.
    :param within: if given, its bins are taken.
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
    """Return bins that may have rows of several keys, each once, ascending."""
    found: dict[int, WeightedSpan] = {}
    for row in rows:
        known = found.get(row["bin"], WeightedSpan(row["_start"], row["_end"], 0))
        found[row["bin"]] = WeightedSpan(
            min(known.start, row["_start"]), max(known.end, row["_end"]), known.weight + int(row[weight] or 0)
        )
    return [found[bin] for bin in sorted(found)]
