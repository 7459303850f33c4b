"""Data of the report, aggregated by Spark to a size that does not depend on the streams' length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fyrehose_twisted.spark.report.axis import Axis, BinCount
from fyrehose_twisted.spark.report.binning import (
    FindingLane,
    Holes,
    JournalPair,
    count_findings,
    count_pairs,
    count_repairs,
    widest_holes,
)
from fyrehose_twisted.spark.report.tables import TableLocations
from fyrehose_twisted.spark.report.timeline import Timeline, bin_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP_FINDINGS = 10
"""Maximum of findings listed per kind."""

MAX_AXES = 6
"""Maximum of streams and epochs with plots over sequence numbers."""

MAX_JOURNALS = 12
"""Maximum of journals with lines in these plots."""

MAX_LINES = 6
"""Maximum of streams with lines of their own in plots over time."""


class FindingGroup(NamedTuple):
    """Findings of one kind and reason in an epoch of one journal, or of all journals if ``journal`` is ``None``."""

    stream: str
    epoch: int
    kind: str
    reason: str
    journal: str | None
    runs: int
    numbers: int
    first: int
    last: int


class FindingRow(NamedTuple):
    """Row of the findings table."""

    stream: str
    epoch: int
    kind: str
    reason: str
    journal: str | None
    first: int
    last: int
    numbers: int
    detail: str | None


class SilverEpoch(NamedTuple):
    """Range and counts of a stream's epoch in silver."""

    stream: str
    epoch: int
    first: int
    last: int
    rows: int
    lost: int
    copies: int
    late: int
    repeats: int
    bad_json: int


class StreamTraffic(NamedTuple):
    """Totals of a stream over all its gold windows."""

    stream: str
    windows: int
    messages: int
    bytes: int
    lost: int
    gaps: int
    repairs: int
    repeats: int


@dataclass(frozen=True)
class SequencePlotData:
    """Data of the plots on one number axis.

    :ivar lanes: findings.
    :ivar repairs: late copies; ``numbers`` of a count holds copies, and ``runs`` holds numbers.
    :ivar pairs: journals that disagree.
    """

    axis: Axis
    lanes: dict[FindingLane, list[BinCount]]
    repairs: list[BinCount]
    pairs: dict[JournalPair, list[BinCount]]


@dataclass
class ReportData:
    """Data of the report.

    :ivar top_findings: findings, most severe first.
    :ivar gaps: number of gaps in gold, and of the numbers in them.
    :ivar further_axes: count of streams and epochs without a plot.
    :ivar journals: journals with lines in the plots over sequence numbers.
    """

    tables: TableLocations
    groups: list[FindingGroup] = field(default_factory=list)
    top_findings: list[FindingRow] = field(default_factory=list)
    silver_epochs: list[SilverEpoch] = field(default_factory=list)
    streams: list[StreamTraffic] = field(default_factory=list)
    gaps: tuple[int, int] = (0, 0)
    sequence_plots: list[SequencePlotData] = field(default_factory=list)
    further_axes: int = 0
    journals: list[str] = field(default_factory=list)
    traffic: Timeline | None = None
    latency: Timeline | None = None


def load_page_data(
    spark: SparkSession, tables: TableLocations, on_table: Callable[[str], object] = lambda text: None
) -> ReportData:
    """Read the tables.

    :param on_table: called with the name of each table before it is read.
    """
    from pyspark.sql import functions as f

    found = ReportData(tables)
    gaps = tables.read(spark, "gold/gaps")
    if tables.has("gold/gaps"):
        rows, numbers = gaps.agg(f.count("*"), f.sum("length")).collect()[0]
        found.gaps = rows, int(numbers or 0)
    findings = tables.read(spark, "findings")
    if not tables.has("findings"):
        findings = _as_findings(gaps)
    on_table("findings")
    found.groups = _groups(findings)
    found.top_findings = _top_findings(findings) if found.groups else []
    silver = tables.read(spark, "silver")
    if tables.has("silver"):
        on_table("silver")
        found.silver_epochs = _silver_epochs(silver)
    _load_sequence_plots(found, findings, silver, tables.read(spark, "quarantine"))
    if tables.has("gold/traffic"):
        on_table("traffic")
        _load_traffic(found, tables.read(spark, "gold/traffic"))
    if tables.has("gold/latency"):
        on_table("latency")
        _load_latency(found, tables.read(spark, "gold/latency"))
    return found


def severity(kind: str, reason: str) -> int:
    """Return the severity rank of a finding; 0 is the most severe. A loss in all journals outranks a loss in one."""
    order = ("divergence", "nobody", "damaged", "lost", "order", "clock", "duplicate", "before", "after")
    return min((order.index(name) for name in (kind, reason) if name in order), default=len(order))


def _as_findings(gaps: DataFrame) -> DataFrame:
    return gaps.selectExpr(
        "stream",
        "epoch",
        "'missing' as kind",
        "'nobody' as reason",
        "cast(null as string) as journal",
        "first_missing as first",
        "last_missing as last",
        "length as count",
        "concat('closed at ', date_format(closed_at, 'yyyy-MM-dd HH:mm:ss'), ' UTC') as detail",
    )


def _groups(findings: DataFrame) -> list[FindingGroup]:
    from pyspark.sql import functions as f

    rows = (
        findings.groupBy("stream", "epoch", "kind", "reason", "journal")
        .agg(f.count("*"), f.sum("count"), f.min("first"), f.max("last"))
        .collect()
    )
    return sorted((FindingGroup(*row) for row in rows), key=lambda one: (severity(one.kind, one.reason), -one.numbers))


def _top_findings(findings: DataFrame) -> list[FindingRow]:
    """Return the largest findings of each kind, since the most severe kind alone could fill the page."""
    from pyspark.sql import functions as f

    columns = [f.col("count").alias("numbers") if name == "numbers" else f.col(name) for name in FindingRow._fields]
    order = f.struct("count", -f.col("first"), "journal")
    rows = (
        findings.groupBy("kind", "reason")
        .agg(f.max_by(f.struct(*columns), order, TOP_FINDINGS).alias("worst"))
        .collect()
    )
    found = [FindingRow(*one) for row in rows for one in row["worst"]]
    return sorted(found, key=lambda one: (severity(one.kind, one.reason), -one.numbers, one.stream, one.first))


def _silver_epochs(silver: DataFrame) -> list[SilverEpoch]:
    from pyspark.sql import functions as f

    rows = silver.groupBy("stream", "epoch").agg(
        f.min("sequence"),
        f.max("sequence"),
        f.count("*"),
        f.count_if(f.col("status") == "lost"),
        f.sum("copies"),
        f.sum("late_copies"),
        f.count_if(f.col("repeat")),
        f.count("bad_json"),
    )
    return sorted(SilverEpoch(*(row[:2]), *(int(value or 0) for value in row[2:])) for row in rows.collect())


def _load_sequence_plots(found: ReportData, findings: DataFrame, silver: DataFrame, quarantine: DataFrame) -> None:
    """Choose the streams and epochs with plots over sequence numbers, and aggregate their data."""
    tables = found.tables
    axes = _axes(found, widest_holes(findings.where("reason = 'nobody'")) if found.groups else {})
    found.further_axes = max(0, len(axes) - MAX_AXES)
    axes = axes[:MAX_AXES]
    shown = {(axis.stream, axis.epoch) for axis in axes}
    names: dict[str, None] = {}
    for group in found.groups:
        if group.journal is not None and (group.stream, group.epoch) in shown:
            names[group.journal] = None
    found.journals = list(names)[:MAX_JOURNALS]
    lanes = count_findings(findings, axes, found.journals) if found.groups else [{} for _ in axes]
    repairs = count_repairs(silver, axes) if any(one.late for one in found.silver_epochs) else [[] for _ in axes]
    pairs = count_pairs(quarantine, axes) if tables.has("quarantine") else [{} for _ in axes]
    found.sequence_plots = [SequencePlotData(*one) for one in zip(axes, lanes, repairs, pairs, strict=True)]


def _axes(found: ReportData, holes: Holes) -> list[Axis]:
    """Return the axis of each stream and epoch, those with the most severe findings first."""
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    weights: dict[tuple[str, int], tuple[int, int]] = {}

    def widen(stream: str, epoch: int, first: int, last: int) -> None:
        low, high = ranges.get((stream, epoch), (first, last))
        ranges[stream, epoch] = min(low, first), max(high, last)

    for _, verdict in found.tables.verdicts:
        for one in verdict.get("journals", []):
            if isinstance(one.get("first"), int) and isinstance(one.get("next"), int) and one["next"] > one["first"]:
                widen(str(one.get("stream")), int(one.get("epoch") or 0), one["first"], one["next"] - 1)
    for group in found.groups:
        widen(group.stream, group.epoch, group.first, group.last)
        rank, most = weights.get((group.stream, group.epoch), (99, 0))
        weights[group.stream, group.epoch] = min(rank, severity(group.kind, group.reason)), max(most, group.numbers)
    for one in found.silver_epochs:
        widen(one.stream, one.epoch, one.first, one.last)

    def order(key: tuple[str, int]) -> tuple[int, int, str, int]:
        rank, most = weights.get(key, (99, 0))
        return rank, -most, *key

    return [Axis.over(*key, *ranges[key], holes.get(key, [])) for key in sorted(ranges, key=order)]


def _load_traffic(found: ReportData, traffic: DataFrame) -> None:
    from pyspark.sql import functions as f

    sums = ("messages", "bytes", "lost", "gaps", "repairs", "repeats")
    rows = traffic.groupBy("stream").agg(f.count("*"), *(f.sum(name) for name in sums)).collect()
    found.streams = [StreamTraffic(row[0], *(int(value or 0) for value in row[1:])) for row in rows]
    found.streams.sort(key=lambda one: (-one.messages, one.stream))
    values = {name: f.sum(name) for name in sums}
    values["all"] = f.sum(f.coalesce("messages", f.lit(0)) + f.coalesce("lost", f.lit(0)))
    found.traffic = bin_windows(traffic, values, "all", _key(found))


def _load_latency(found: ReportData, latency: DataFrame) -> None:
    from pyspark.sql import functions as f

    values = {name: f.max(name) for name in ("p50_us", "p95_us", "p99_us", "max_us")}
    values["copies"] = f.sum("copies")
    if not found.streams:
        rows = latency.groupBy("stream").agg(f.sum("copies").alias("copies")).orderBy(f.desc("copies")).limit(MAX_LINES)
        found.streams = [StreamTraffic(row[0], 0, 0, 0, 0, 0, 0, 0) for row in rows.collect()]
    found.latency = bin_windows(latency.where("copies > 0"), values, "copies", _key(found), found.traffic)


def _key(found: ReportData) -> Any:
    """Build a column with the stream if it has a line of its own, else null."""
    from pyspark.sql import functions as f

    lines = [one.stream for one in found.streams[:MAX_LINES]]
    return f.when(f.col("stream").isin(lines), f.col("stream"))
