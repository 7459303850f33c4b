"""Report of a sweep as a self-contained HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from fyrehose_twisted.experiments.sweep.figures import band_colour, format_number, make_plot
from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS
from fyrehose_twisted.experiments.sweep.sweep_data import GridReport, Panel, SweepData, format_value
from fyrehose_twisted.process.atomic_file import replace_file
from fyrehose_twisted.spark.report.html import render_figure, render_page, render_table, render_verdict
from fyrehose_twisted.spark.report.style import DARK, SERIES, Plot
from fyrehose_twisted.wording import pluralize

MAX_ERROR_KINDS = 10
"""Maximum number of kinds of errors shown."""
COLUMNS = ("networks", "mean", "95 % from", "to", "lowest", "highest")


def write_page(sweep: SweepData, out: Path, title: str, now: datetime) -> None:
    """Write the page, and replace an existing file atomically.

    :param now: current time in UTC.
    :raises OSError: if the file cannot be written.
    """
    # File names may contain bytes that are not text.
    replace_file(out, render(sweep, title, now).encode("utf-8", "replace"))


def render(sweep: SweepData, title: str, now: datetime) -> str:
    """Return the page. Nothing in the data can become markup or script."""
    sections, plots = [_verdict(sweep)], []
    for index, part in enumerate(sweep.parts):
        grid_plots = [make_plot(panel, part, f"{panel.metric}-{index}") for panel in part.panels]
        plots += grid_plots
        sections += _grid_sections(part, sweep.replicas, grid_plots)
    dark = DARK | {band_colour(colour): band_colour(colour, dark=True) for colour in SERIES}
    made = ", ".join(f"{name} {one}" for name, one in sweep.versions.items())
    footer = f"Made {now:%Y-%m-%d %H:%M:%S} UTC from {sweep.where}, which was simulated by {made}."
    return render_page(title, sections, plots, footer, dark=dark)


def _verdict(sweep: SweepData) -> str:
    failed, violated = sweep.errors.total(), sweep.violations.total()
    expected = sum(part.expected for part in sweep.parts)
    several = f" in {len(sweep.parts)} grids" if len(sweep.parts) > 1 else ""
    level = "divergence" if violated else "losses" if failed else "good"
    headline = f"{pluralize(sweep.networks, 'network')}{several}"
    sentences = [f"{pluralize(sweep.replicas, 'replica')} of each cell, from seed {sweep.seed}."]
    if sweep.conditions:
        sentences.append(f"Only those with {' and '.join(sweep.conditions)}.")
    elif sweep.networks < expected:
        level = "unknown" if level == "good" else level
        sentences.append(f"{expected - sweep.networks:,} of {expected:,} are not simulated yet.")
    sentences.append(f"They kept a core busy for {format_number(sweep.took)} s.")
    sentences.append(f"{failed:,} failed; in {violated:,} an invariant was broken." if failed or violated else
                     "None failed, and no invariant was broken.")  # fmt: skip
    items = _outcome_items(sweep.violations, "broke an invariant") + _outcome_items(sweep.errors, "failed")
    return render_verdict(level, headline, sentences, items)


def _outcome_items(counts: Counter[str], verb: str) -> list[str]:
    items = [f"{pluralize(count, 'network')} {verb}: {text}" for text, count in counts.most_common(MAX_ERROR_KINDS)]
    rest = sum(counts.values()) - sum(count for _, count in counts.most_common(MAX_ERROR_KINDS))
    return items + ([f"{pluralize(rest, 'network')} {verb} in other ways"] if rest else [])


def _grid_sections(part: GridReport, replicas: int, plots: Sequence[Plot]) -> list[str]:
    title = f"Grid {part.name}" if part.name else "The grid"
    others = ", ".join(
        f"{name}={format_value(value)}" for name, value in DEFAULTS.items() if name not in part.axes and value != ""
    )
    note = f"{pluralize(part.networks, 'network')} of {part.expected:,}. Lines go over {part.axis}."
    rows = [[f"{name}", ", ".join(map(format_value, values))] for name, values in part.axes.items()]
    sections = [f"<h2>{escape(title)}</h2>", _table(f"grid-{title}", "Settings", note, ("setting", "values"), rows)]
    sections.append(
        f'<details class="soft"><summary>All else is as it is by default</summary>{escape(others)}</details>'
    )
    for panel, plot in zip(part.panels, plots, strict=True):
        sections += [render_figure(plot), _number_table(panel, part, plot.name)]
    if part.unmeasured:
        names = ", ".join(METRICS[name].title.lower() for name in part.unmeasured)
        sections.append(f'<p class="soft">There was nothing to measure for: {escape(names)}.</p>')
    return sections


def _number_table(panel: Panel, part: GridReport, name: str) -> str:
    rows = []
    for series in panel.series:
        settings = [format_value(value) for value in series.settings.values()]
        for x, interval in series.points:
            numbers = interval.mean, interval.low, interval.high, interval.minimum, interval.maximum
            rows.append([*settings, format_value(x), f"{interval.networks:,}", *map(format_number, numbers)])
    metric = METRICS[panel.metric]
    title = f"{metric.title}, in numbers"
    columns = (*part.varied, panel.axis, *COLUMNS)
    return _table(f"{name}-numbers", title, metric.unit, columns, rows, words=len(part.varied) + 1)


def _table(
    name: str, title: str, note: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: int | None = None
) -> str:
    """Return a table whose first ``words`` columns are text, and whose other columns are numbers."""
    kinds = ["" if words is None or index < words else ' class="number"' for index in range(len(columns))]
    head = "".join(f'<th scope="col"{kind}>{escape(one)}</th>' for one, kind in zip(columns, kinds, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>\n" for row in rows)
    return render_table(name, title, note, head, body)


def _cell(value: str, kind: str) -> str:
    kind = kind or (' class="text"' if len(value) > 24 else "")
    return f"<td{kind}><bdi>{escape(value)}</bdi></td>"
