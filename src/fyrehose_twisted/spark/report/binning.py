"""Spark aggregation of findings, repairs and divergence into the bins of a number axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fyrehose_twisted.spark.report.axis import MAX_BREAKS, Axis, BinCount

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class FindingLane(NamedTuple):
    """Line of a plot: the findings of one kind and reason in one journal, or in all if ``journal`` is ``None``."""

    kind: str
    reason: str
    journal: str | None


class JournalPair(NamedTuple):
    """Pair of journals that disagree; a journal that disagrees with itself is paired with itself."""

    first: str
    second: str


Holes = dict[tuple[str, int], list[tuple[int, int]]]


def widest_holes(missing: DataFrame) -> Holes:
    """Return the widest holes of each stream and epoch; ``missing`` has columns ``first`` and ``last``."""
    from pyspark.sql import functions as f

    length = f.col("last") - f.col("first")
    rows = missing.groupBy("stream", "epoch").agg(
        f.max_by(f.struct("first", "last"), length, MAX_BREAKS).alias("widest")
    )
    return {(row.stream, row.epoch): [(hole["first"], hole["last"]) for hole in row.widest] for row in rows.collect()}


def count_findings(
    findings: DataFrame, axes: Sequence[Axis], journals: Iterable[str]
) -> list[dict[FindingLane, list[BinCount]]]:
    """Count the findings in each lane's bins, for each axis.

    :param journals: journals with lanes of their own; findings of all journals always have lanes.
    """
    from pyspark.sql import functions as f

    counted: list[dict[FindingLane, list[BinCount]]] = [{} for _ in axes]
    if not axes:
        return counted
    named = f.col("journal").isNull() | f.col("journal").isin(list(journals))
    placed = _with_places(findings.where(named), axes, low="first", high="last")
    share = f.least(f.lit(1.0), f.col("count") / (f.col("last") - f.col("first") + f.lit(1.0)))
    binned = placed.select(
        "axis",
        "kind",
        "reason",
        "journal",
        "low",
        "high",
        "width",
        share.alias("share"),
        f.explode(f.expr("sequence(low div width, high div width)")).alias("bin"),
    )
    overlap = f.expr("least(high, (bin + 1) * width - 1) - greatest(low, bin * width) + 1")
    rows = (
        binned.groupBy("axis", "kind", "reason", "journal", "bin")
        .agg(
            f.ceil(f.sum(overlap * f.col("share"))).alias("numbers"),
            f.sum(f.expr("if(low div width = bin, 1, 0)")).alias("runs"),
        )
        .collect()
    )
    for row in rows:
        lane = FindingLane(row["kind"], row["reason"], row["journal"])
        counted[row["axis"]].setdefault(lane, []).append(BinCount(row["bin"], int(row["numbers"]), row["runs"]))
    return counted


def count_repairs(silver: DataFrame, axes: Sequence[Axis]) -> list[list[BinCount]]:
    """Count the late copies and their numbers in each bin, for each axis."""
    from pyspark.sql import functions as f

    counted: list[list[BinCount]] = [[] for _ in axes]
    if not axes:
        return counted
    rows = (
        _with_places(silver.where("late_copies > 0"), axes, place="sequence")
        .groupBy("axis", f.expr("place div width").alias("bin"))
        .agg(f.sum("late_copies").alias("copies"), f.count("*").alias("numbers"))
        .collect()
    )
    for row in rows:
        counted[row["axis"]].append(BinCount(row["bin"], row["copies"], row["numbers"]))
    return counted


def count_pairs(quarantine: DataFrame, axes: Sequence[Axis]) -> list[dict[JournalPair, list[BinCount]]]:
    """Count the numbers on which two journals disagree in each bin, for each axis."""
    from pyspark.sql import functions as f

    counted: list[dict[JournalPair, list[BinCount]]] = [{} for _ in axes]
    if not axes:
        return counted
    version = f.struct("journal", f.sha2("payload", 256).alias("hash"))
    differs = "a.hash != b.hash and (a.journal < b.journal or a.journal = b.journal and a.hash < b.hash)"
    named = "struct(a.journal as one, b.journal as other)"
    pairs = f.expr(
        f"array_distinct(flatten(transform(versions, a -> transform(filter(versions, b -> {differs}), b -> {named}))))"
    )
    versions = (
        quarantine.where("payload is not null and journal is not null")
        .groupBy("stream", "epoch", "sequence")
        .agg(f.collect_set(version).alias("versions"))
    )
    rows = (
        _with_places(versions, axes, place="sequence")
        .select("axis", f.expr("place div width").alias("bin"), f.explode(pairs).alias("pair"))
        .groupBy("axis", "bin", "pair")
        .agg(f.count("*").alias("numbers"))
        .collect()
    )
    for row in rows:
        pair = JournalPair(row["pair"]["one"], row["pair"]["other"])
        counted[row["axis"]].setdefault(pair, []).append(BinCount(row["bin"], row["numbers"], row["numbers"]))
    return counted


def place_column(axis: Axis, number: Column) -> Column:
    """Return the column equivalent of :meth:`Axis.place`."""
    from pyspark.sql import functions as f

    place = number - f.lit(axis.first)
    for low, high in axis.breaks:
        place = place - f.greatest(f.lit(0), f.least(number - f.lit(low), f.lit(high - low + 1)))
    return place


def _with_places(frame: DataFrame, axes: Sequence[Axis], **places: str) -> DataFrame:
    """Add ``axis``, the index of a row's axis, its ``width``, and the places of number columns; drop other rows."""
    from pyspark.sql import functions as f

    def for_each(value: Callable[[int, Axis], Column]) -> Column:
        chosen = f.lit(None)
        for index, axis in enumerate(axes):
            here = (f.col("stream") == axis.stream) & (f.col("epoch") == axis.epoch)
            chosen = f.when(here, value(index, axis)).otherwise(chosen)
        return chosen

    columns = {name: for_each(partial(_place_in, number)) for name, number in places.items()}
    columns["axis"] = for_each(lambda index, axis: f.lit(index))
    columns["width"] = for_each(lambda index, axis: f.lit(axis.width).cast("long"))
    return frame.withColumns(columns).where("axis is not null")


def _place_in(number: str, index: int, axis: Axis) -> Column:
    from pyspark.sql import functions as f

    return place_column(axis, f.col(number))
