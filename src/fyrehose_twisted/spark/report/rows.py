"""Tables of the report."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.spark.report.page_data import ReportData
from fyrehose_twisted.spark.report.text import finding_text
from fyrehose_twisted.wording import pluralize

MAX_ROWS = 100
"""Maximum of rows in a table of journals or streams."""

Cell = str | int | None


@dataclass(frozen=True)
class ReportTable:
    """Table of the report. A table without rows is rendered as its note.

    :ivar name: HTML id.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = ""


def report_tables(found: ReportData) -> list[ReportTable]:
    """Build the tables of the page."""
    made = []
    if found.tables.verdicts:
        made.append(_journals(found))
    made.append(_top_findings(found))
    if found.tables.has("silver"):
        made.append(_silver_epochs(found))
    if found.tables.has("gold/traffic"):
        made.append(_streams(found))
    return made


def _journals(found: ReportData) -> ReportTable:
    counts: dict[tuple[str, int, str | None, str], int] = {}
    for group in found.groups:
        key = group.stream, group.epoch, group.journal, group.kind if group.kind != "missing" else group.reason
        counts[key] = counts.get(key, 0) + group.numbers
    kinds = ("damaged", "before", "after", "duplicate", "order", "clock")
    journals = [one for _, verdict in found.tables.verdicts for one in verdict.get("journals", [])]
    rows: list[list[Cell]] = []
    for one in journals[:MAX_ROWS]:
        of = one.get("stream"), one.get("epoch"), one.get("journal")
        first, following = one.get("first"), one.get("next")
        empty = first is None or following is None or first >= following
        lost = one.get("lost", counts.get((*of, "lost"), 0))
        rows.append(
            [
                str(one.get("journal")),
                str(one.get("stream")),
                one.get("epoch"),
                None if empty else first,
                None if empty else following - 1,
                one.get("records"),
                lost,
                *(counts.get((*of, kind), 0) for kind in kinds),
            ]
        )
    columns: tuple[str, ...] = (
        *("journal", "stream", "epoch", "first", "last", "records"),
        *("lost", "damaged", "before", "after", "stored twice", "order", "clock"),
    )
    # Omit the columns of findings that do not occur.
    shown = [index for index in range(len(columns)) if index < 7 or any(row[index] for row in rows)]
    columns, rows = tuple(columns[index] for index in shown), [[row[index] for index in shown] for row in rows]
    note = "How many numbers each has, or lacks."
    return ReportTable("journals", "Journals", columns, rows, _note(note, len(journals), "journal"))


def _top_findings(found: ReportData) -> ReportTable:
    total = sum(one.runs for one in found.groups)
    rows: list[list[Cell]] = [
        [
            finding_text(one.kind, one.reason).name,
            "all" if one.journal is None else one.journal,
            one.stream,
            one.epoch,
            one.first,
            one.last,
            one.numbers,
            one.detail or "",
        ]
        for one in found.top_findings
    ]
    columns = ("what", "journal", "stream", "epoch", "first", "last", "numbers", "detail")
    note = "There are none." if not rows else ""
    if total > len(rows):
        note = f"The largest {len(rows)} of {pluralize(total, 'finding')}; {total - len(rows):,} more are in the table."
    return ReportTable("findings", "Findings", columns, rows, note)


def _silver_epochs(found: ReportData) -> ReportTable:
    rows: list[list[Cell]] = [list(one) for one in found.silver_epochs[:MAX_ROWS]]
    columns = ("stream", "epoch", "first", "last", "numbers", "lost", "copies", "late copies", "repeats", "bad JSON")
    note = "" if rows else "There are no rows in silver yet."
    return ReportTable("refined", "Refined streams", columns, rows, _note(note, len(found.silver_epochs), "stream"))


def _streams(found: ReportData) -> ReportTable:
    rows: list[list[Cell]] = [list(one) for one in found.streams[:MAX_ROWS]]
    columns = ("stream", "windows", "messages", "bytes", "lost", "gaps", "repairs", "repeats")
    note = "" if rows else "There is no window in gold yet."
    return ReportTable("traffic", "Traffic", columns, rows, _note(note, len(found.streams), "stream"))


def _note(note: str, count: int, what: str) -> str:
    more = f"{pluralize(count - MAX_ROWS, f'further {what}')} not listed." if count > MAX_ROWS else ""
    return f"{note} {more}".strip()
