"""Rendering of the report as a self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from fyrehose_twisted.process.atomic_file import replace_file
from fyrehose_twisted.spark.report.binning import FindingLane
from fyrehose_twisted.spark.report.figures import latency_plots, loss_plot, rate_plot
from fyrehose_twisted.spark.report.html import render_figure, render_page, render_table, render_verdict
from fyrehose_twisted.spark.report.page_data import MAX_JOURNALS, ReportData, SequencePlotData
from fyrehose_twisted.spark.report.rows import Cell, ReportTable, report_tables
from fyrehose_twisted.spark.report.sequence_figures import divergence_chart, lane_chart, repair_chart
from fyrehose_twisted.spark.report.style import Plot
from fyrehose_twisted.spark.report.text import short_names, summary_verdict
from fyrehose_twisted.wording import pluralize


def write_page(found: ReportData, out: Path, title: str, now: datetime) -> None:
    """Write the page, replacing an existing file atomically.

    :param now: creation time in UTC.
    :raises OSError: if the file cannot be written.
    """
    # File names may contain bytes that are not valid text.
    replace_file(out, render(found, title, now).encode("utf-8", "replace"))


def render(found: ReportData, title: str, now: datetime) -> str:
    """Render the page; all data is escaped, so none can become markup or script."""
    sections, plots = _sections(found)
    footer = f"Made {now:%Y-%m-%d %H:%M:%S} UTC. All times are UTC. What was read:"
    return render_page(title, sections, plots, footer, _sources(found))


def _sections(found: ReportData) -> tuple[list[str], list[Plot]]:
    said = summary_verdict(found)
    verdict = render_verdict(said.level, said.headline, said.sentences, said.findings)
    parts = [verdict, *map(_render_table, report_tables(found))]
    plots = [
        rate_plot(found.traffic, found.streams),
        loss_plot(found.traffic),
        *latency_plots(found.latency, found.streams),
    ]
    parts.append("<h2>Over time</h2>")
    parts += [render_figure(plot) for plot in plots]
    for index, numbers in enumerate(found.sequence_plots):
        heading = f"Sequence numbers of {numbers.axis.stream}"
        if numbers.axis.epoch:
            heading += f", epoch {numbers.axis.epoch}"
        some = _render_sequence_plots(found, numbers, str(index))
        parts += [f"<h2>{escape(heading)}</h2>", *map(render_figure, some)]
        plots += some
    if not found.sequence_plots:
        parts.append("<h2>Sequence numbers</h2><p>There are no numbers to show: the tables are empty.</p>")
    if found.further_axes:
        parts.append(f'<p class="soft">{found.further_axes:,} more, in which there is less to see, have no plots.</p>')
    return parts, plots


def _render_sequence_plots(found: ReportData, numbers: SequencePlotData, name: str) -> list[Plot]:
    axis = numbers.axis
    covered: dict[str, tuple[int, int]] = {}
    for _, one in found.tables.verdicts:
        for journal in one.get("journals", []):
            ends = journal.get("first"), journal.get("next")
            here = (journal.get("stream"), journal.get("epoch")) == (axis.stream, axis.epoch)
            if here and None not in ends and ends[0] < ends[1]:
                covered[str(journal.get("journal"))] = ends[0], ends[1] - 1
    known = list(dict.fromkeys([*covered, *(lane.journal for lane in numbers.lanes if lane.journal is not None)]))
    disagreeing = [journal for pair in numbers.pairs for journal in pair]
    names = short_names([*known, *disagreeing])
    totals = {
        FindingLane(one.kind, one.reason, one.journal): one.numbers
        for one in found.groups
        if (one.stream, one.epoch) == (axis.stream, axis.epoch)
    }
    seen = {lane.journal for lane in totals}
    shown = [one for one in known if one in found.journals or one not in seen][:MAX_JOURNALS]
    plots = [lane_chart(numbers, name, {one: names[one] for one in shown}, covered, totals)]
    plots.append(
        divergence_chart(numbers, name, names, compared=found.tables.has("findings") or bool(found.tables.verdicts))
    )
    if found.tables.has("silver"):
        plots.insert(1, repair_chart(numbers, name))
    return plots


def _render_table(listing: ReportTable) -> str:
    if not listing.rows:
        return f'<section class="card"><h3>{escape(listing.title)}</h3><p>{escape(listing.note)}</p></section>'
    head = "".join(
        f'<th scope="col"{_class("number" if _is_number(listing.rows, column) else "")}>{escape(name)}</th>'
        for column, name in enumerate(listing.columns)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in listing.rows)
    return render_table(listing.name, listing.title, listing.note, head, body)


def _cell(value: Cell) -> str:
    if isinstance(value, int):
        return f"<td{_class('number' + (' zero' if not value else ''))}>{value:,}</td>"
    if value is None:
        return '<td class="number zero">-</td>'
    return f"<td{_class('text' if len(value) > 24 else '')}><bdi>{escape(value)}</bdi></td>"


def _is_number(rows: Sequence[Sequence[Cell]], column: int) -> bool:
    return not any(isinstance(row[column], str) for row in rows)


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _sources(found: ReportData) -> list[str]:
    tables = found.tables
    rows: dict[str, Any] = {
        "findings": sum(one.runs for one in found.groups),
        "silver": sum(one.rows for one in found.silver_epochs),
        "gold/traffic": sum(one.windows for one in found.streams),
        "gold/gaps": found.gaps[0],
    }
    sources = [f"{path}/verify.json" for path, _ in tables.verdicts]
    for name, places in tables.table_directories.items():
        for index, place in enumerate(places):
            count = f": {pluralize(rows[name], 'row')}" if name in rows and len(places) == 1 else ""
            count = count or (f": {pluralize(rows[name], 'row')} in all" if name in rows and not index else "")
            sources.append(f"{place}{count}")
    sources += [f"{place}: not shown, for it is of a query of yours" for place in tables.user_tables]
    return sources
