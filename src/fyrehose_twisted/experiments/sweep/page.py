"""Report of a sweep as a self-contained HTML page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from fyrehose_twisted.experiments.sweep.figures import band_colour, format_number, make_plot
from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS
from fyrehose_twisted.experiments.sweep.sweep_data import GridReport, Panel, SweepData, format_value
from fyrehose_twisted.process.atomic_file import replace_file
from fyrehose_twisted.spark.report.style import DARK, SERIES, Plot
from fyrehose_twisted.wording import pluralize

MAX_ERROR_KINDS = 10
"""Maximum number of kinds of errors shown."""
COLUMNS = ("networks", "mean", "95 % from", "to", "lowest", "highest")


class _SweepTemplate(Template):
    # CSS and scripts contain $ and single @.
    delimiter = "@@"


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
    figures = {plot.name: json.loads(plot.figure.to_json()) for plot in plots}
    dark = DARK | {band_colour(colour): band_colour(colour, dark=True) for colour in SERIES}
    data = json.dumps({"figures": figures, "dark": dark}, separators=(",", ":")).replace("<", "\\u003c")
    template = files("fyrehose_twisted.spark.report").joinpath("page.html").read_text("utf-8")
    body = f"<header><h1>{escape(title)}</h1></header>\n<main>\n{''.join(sections)}</main>\n{_footer(sweep, now)}"
    return _SweepTemplate(template).substitute(TITLE=escape(title), BODY=body, FIGURES=data, PLOTLY=get_plotlyjs())


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
    return (
        f'<section class="card verdict {level}" id="verdict" aria-labelledby="headline">'
        f'<h2 id="headline">{escape(headline)}</h2><p>{escape(" ".join(sentences))}</p>{_list(items)}</section>\n'
    )


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
    sections = [f"<h2>{escape(title)}</h2>\n", _table(f"grid-{title}", "Settings", note, ("setting", "values"), rows)]
    sections.append(
        f'<details class="soft"><summary>All else is as it is by default</summary>{escape(others)}</details>\n'
    )
    for panel, plot in zip(part.panels, plots, strict=True):
        sections += [_figure(plot), _number_table(panel, part, plot.name)]
    if part.unmeasured:
        names = ", ".join(METRICS[name].title.lower() for name in part.unmeasured)
        sections.append(f'<p class="soft">There was nothing to measure for: {escape(names)}.</p>\n')
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
    small = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{escape(title)}"><table id="{escape(name)}">'
        f"<caption>{escape(title)}{small}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def _cell(value: str, kind: str) -> str:
    kind = kind or (' class="text"' if len(value) > 24 else "")
    return f"<td{kind}><bdi>{escape(value)}</bdi></td>"


def _figure(plot: Plot) -> str:
    title, caption = escape(plot.title), escape(plot.caption)
    keys = "".join(
        f'<li><button type="button" aria-pressed="true" data-group="{escape(key.group)}">'
        f'<i style="--swatch:{key.colour};--swatch-dark:{DARK[key.colour]}"></i>'
        f"<bdi>{escape(key.text)}</bdi></button></li>"
        for key in plot.legend
    )
    legend = f'<ul class="legend" aria-label="What is shown">{keys}</ul>' if len(plot.legend) > 1 else ""
    height = int(plot.figure.layout.height)
    return (
        f'<figure class="card" id="{escape(plot.name)}"><h3>{title}</h3>{legend}'
        f'<div class="plot" data-figure="{escape(plot.name)}" role="img" aria-label="{title}. {caption}" '
        f'style="min-height:{height}px"></div><figcaption>{caption}</figcaption></figure>\n'
    )


def _footer(sweep: SweepData, now: datetime) -> str:
    made = ", ".join(f"{name} {one}" for name, one in sweep.versions.items())
    said = f"Made {now:%Y-%m-%d %H:%M:%S} UTC from {sweep.where}, which was simulated by {made}."
    return f"<footer><p>{escape(said)}</p></footer>"


def _list(items: Iterable[str]) -> str:
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{listed}</ul>" if listed else ""
