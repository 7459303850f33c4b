"""Plain-text result of a verification for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fyrehose_twisted.spark.verify.summary import CLEAN, DISAGREEMENT, MAX_EXAMPLES
from fyrehose_twisted.wording import pluralize

MAX_ROWS = 40
"""Maximum of rows shown, one per journal and epoch."""

DESCRIPTIONS = {
    "missing/lost": "declared lost by the journal",
    "missing/damaged": "damaged: the bytes are not what was written",
    "missing/before": "before the beginning of the journal: it began later, or dropped them",
    "missing/after": "beyond the end of the journal, where others are further",
    "missing/nobody": "missing everywhere: no journal has them",
    "duplicate/stored-twice": "stored more than once by the journal, each time the same",
    "divergence/payload": "DIVERGENCE: different payloads under the same number",
    "order/segment": "not in order within a segment",
    "order/epoch": "received after a later epoch had begun",
    "clock/backwards": "the clock went back",
}

SEVERITY_ORDER = (
    "divergence/payload",
    "order/segment",
    "order/epoch",
    "missing/nobody",
    "missing/damaged",
    "missing/lost",
    "missing/before",
    "missing/after",
    "duplicate/stored-twice",
    "clock/backwards",
)
"""Order in which findings are printed."""


def verdict(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines to print."""
    for stream in summary["streams"]:
        yield stream
        rows = [one for one in summary["journals"] if one["stream"] == stream]
        yield from _table(rows) if rows else ["  no journal of it has any number yet"]
    for name in SEVERITY_ORDER:
        if name in summary["findings"]:
            yield from _finding(name, summary["findings"][name], len(summary["streams"]) > 1)
    yield conclusion(summary)


def conclusion(summary: Mapping[str, Any]) -> str:
    """Return the last line, which states the overall result."""
    findings, of_all = summary["findings"], pluralize(summary["numbers"], "number")
    if summary["status"] == DISAGREEMENT:
        disputed = findings.get("divergence/payload", {}).get("numbers", 0)
        if disputed:
            return f"The journals DISAGREE on {disputed:,} of {of_all}."
        return f"Records are not in order, among {of_all}; no payloads differ."
    gone = findings.get("missing/nobody", {}).get("numbers", 0)
    if summary["status"] == CLEAN:
        return f"All is well: {summary['healed']:,} of {of_all} are there, and no payloads differ."
    if gone:
        return f"Losses: no journal has {gone:,} of {of_all}; no payloads differ."
    return f"Losses, but together the journals have all {of_all}; no payloads differ."


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    epochs = len({row["epoch"] for row in rows}) > 1 or rows[0]["epoch"] != 0
    heads = ["journal", *(["epoch"] if epochs else []), "numbers", "records", "lost", "damaged", "before", "after"]
    lines = [heads]
    for row in rows[:MAX_ROWS]:
        span = f"{row['first']:,} to {row['next'] - 1:,}" if row["next"] > row["first"] else "none"
        figures = [f"{row[name]:,}" for name in heads[-5:]]
        lines.append([row["journal"], *([str(row["epoch"])] if epochs else []), span, *figures])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()
    if len(rows) > MAX_ROWS:
        yield f"  … and {len(rows) - MAX_ROWS:,} more"


def _finding(name: str, found: Mapping[str, Any], with_stream: bool) -> Iterator[str]:
    ranges = f"{found['runs']:,} range{'' if found['runs'] == 1 else 's'}"
    numbers = f"{found['numbers']:,} number{'' if found['numbers'] == 1 else 's'}"
    yield f"{DESCRIPTIONS[name]}: {numbers} in {ranges}"
    for one in found["examples"]:
        where = f"{one['first']:,}" if one["first"] == one["last"] else f"{one['first']:,} to {one['last']:,}"
        if one["epoch"]:
            where += f" of epoch {one['epoch']}"
        if with_stream:
            where += f" of {one['stream']}"
        whose = f"{one['journal']}: " if one["journal"] is not None else ""
        why = f" ({one['detail']})" if one["detail"] else ""
        yield f"  {whose}{where}{why}"
    if found["runs"] > MAX_EXAMPLES:
        yield f"  … and {found['runs'] - MAX_EXAMPLES:,} more"
