"""Summary of a verification in figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.spark.verify.runs import (
    AFTER,
    BACKWARDS,
    BEFORE,
    CLOCK,
    DAMAGED,
    DECLARED,
    DIVERGENCE,
    DUPLICATE,
    EPOCH,
    MISSING,
    NOBODY,
    ORDER,
    PAYLOAD,
    SEGMENT,
    TWICE,
)
from fyrehose_twisted.spark.verify.verification import Verification

CLEAN, LOSSES, DISAGREEMENT = 0, 1, 2
"""Exit status and the summary's ``status``."""

MAX_EXAMPLES = 5
"""Maximum of examples per finding in a summary."""

FORMAT = "fyrehose verification"

_JOURNAL_COLUMNS = {
    (MISSING, DECLARED): "lost",
    (MISSING, DAMAGED): "damaged",
    (MISSING, BEFORE): "before",
    (MISSING, AFTER): "after",
    (DUPLICATE, TWICE): "duplicates",
    (ORDER, SEGMENT): "disordered",
    (ORDER, EPOCH): "overdue",
    (CLOCK, BACKWARDS): "backwards",
}
"""Names of a journal's counts by finding."""


def summary_of(verification: Verification) -> dict[str, Any]:
    """Return the content of ``verify.json`` without ``seconds``: figures per journal and epoch, and per finding.

    :raises JournalError: if a journal cannot be read; Spark may wrap this error, or raise others.
    """
    counts = _counts(verification)
    findings = _findings(verification, counts)
    journals = _journals(verification, counts)
    nobody, disputed = (
        sum(one["numbers"] for name, one in findings.items() if name == f"{kind}/{reason}")
        for kind, reason in ((MISSING, NOBODY), (DIVERGENCE, PAYLOAD))
    )
    return {
        "format": FORMAT,
        "status": _status(findings),
        "streams": sorted({origin.stream for origin in verification.origins}),
        "journals": journals,
        "findings": findings,
        "numbers": verification.numbers,
        "records": sum(one["records"] for one in journals),
        "healed": verification.numbers - nobody - disputed,
        "tolerance": verification.tolerance / 1_000_000,
    }


def _status(findings: dict[str, Any]) -> int:
    if any(name.startswith((f"{DIVERGENCE}/", f"{ORDER}/")) for name in findings):
        return DISAGREEMENT
    losses = {f"{MISSING}/{reason}" for reason in (DECLARED, DAMAGED, NOBODY)}
    return LOSSES if losses & findings.keys() else CLEAN


def _counts(verification: Verification) -> list[Any]:
    """Count the runs and numbers of each finding of each journal."""
    from pyspark.sql import functions as F

    keys = "stream", "epoch", "journal", "kind", "reason"
    counted = verification.findings().groupBy(*keys)
    return counted.agg(F.count("*").alias("runs"), F.sum("count").alias("numbers")).collect()


def _findings(verification: Verification, counts: Sequence[Any]) -> dict[str, Any]:
    """Return the counts of runs and numbers of each kind and reason, with the first runs as examples."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    found = verification.findings()
    if not counts:
        return {}
    ordered = Window.partitionBy("kind", "reason").orderBy("stream", "epoch", "first", "journal")
    first = found.withColumn("place", F.row_number().over(ordered)).where(F.col("place") <= MAX_EXAMPLES)
    shown: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in first.orderBy("kind", "reason", "place").collect():
        one = {name: row[name] for name in ("stream", "epoch", "journal", "first", "last", "count", "detail")}
        shown.setdefault((row.kind, row.reason), []).append(one)
    totals: dict[str, dict[str, Any]] = {
        f"{kind}/{reason}": {"runs": 0, "numbers": 0, "examples": shown[kind, reason]} for kind, reason in sorted(shown)
    }
    for row in counts:
        total = totals[f"{row.kind}/{row.reason}"]
        total["runs"] += row.runs
        total["numbers"] += int(row.numbers)
    return totals


def _journals(verification: Verification, counts: Sequence[Any]) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    keys = "stream", "epoch", "journal"
    records = verification.edges().groupBy(*keys).agg(F.sum("count").alias("records")).collect()
    held = {(row.stream, row.epoch, row.journal): int(row.records) for row in records}
    counted: dict[tuple[str, int, str], dict[str, int]] = {}
    for row in counts:
        if row.journal is not None:
            name = _JOURNAL_COLUMNS[row.kind, row.reason]
            counted.setdefault((row.stream, row.epoch, row.journal), {})[name] = int(row.numbers)
    found = []
    for extent in verification.extents:
        for share in extent.shares:
            key = extent.stream, extent.epoch, share.location.journal
            one = {
                "journal": share.location.journal,
                "stream": extent.stream,
                "epoch": extent.epoch,
                "first": share.bounds.first,
                "next": share.bounds.next,
                "records": held.get(key, 0),
            }
            found.append(one | dict.fromkeys(_JOURNAL_COLUMNS.values(), 0) | counted.get(key, {}))
    return found
