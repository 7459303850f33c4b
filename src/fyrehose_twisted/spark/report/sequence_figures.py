"""Plots over sequence numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from fyrehose_twisted.spark.report.axis import Axis, Bar, BinCount, make_bars, thin_ticks
from fyrehose_twisted.spark.report.binning import FindingLane
from fyrehose_twisted.spark.report.page_data import SequencePlotData, severity
from fyrehose_twisted.spark.report.style import (
    BAND,
    BLUE,
    GREEN,
    GREY,
    INK,
    OLIVE,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    LegendEntry,
    Plot,
    apply_layout,
)
from fyrehose_twisted.spark.report.text import ellipsize, finding_text
from fyrehose_twisted.wording import pluralize

COLOURS = {
    "divergence/payload": RED,
    "missing/nobody": INK,
    "missing/damaged": PURPLE,
    "missing/lost": ORANGE,
    "missing/before": GREY,
    "missing/after": GREY,
    "duplicate/stored-twice": SKY,
    "order/segment": GREEN,
    "order/epoch": GREEN,
    "clock/backwards": OLIVE,
}
OPACITY = (0.6, 0.75, 0.9, 1.0)
MAX_PAIRS = 15
"""Maximum of journal pairs with lines."""

CoveredRanges = Mapping[str, tuple[int, int]]


class BarChart:
    """Chart of labelled rows of bars over one number axis."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis
        self._rows = 0.0
        self._bars: dict[str, dict[str, list[Any]]] = {}
        self._labels: list[tuple[float, str]] = []
        self._bands: list[tuple[float, float, float, float]] = []

    def add_label(self, text: str) -> None:
        """Begin a group of rows with a label."""
        self._rows += 0.25 if self._rows else 0
        self._labels.append((self._rows + 0.5, text))
        self._rows += 1

    def add_bars(self, group: str, bars: Sequence[Bar], hover_text: str) -> None:
        """Add a row of bars with ``hover_text``."""
        axis, into = self._axis, self._bars.setdefault(group, {"base": [], "x": [], "y": [], "text": [], "opacity": []})
        for bar in bars:
            low, high = bar.first * axis.width, min(axis.length, (bar.last + 1) * axis.width)
            first, last = axis.number(low), axis.number(high - 1)
            into["base"].append(low)
            into["x"].append(high - low)
            into["y"].append(self._rows + 0.5)
            where = f"{first:,}" if first == last else f"{first:,} to {last:,}"
            into["text"].append(f"{where}: {pluralize(bar.numbers, 'number')} {hover_text}")
            into["opacity"].append(OPACITY[bar.level - 1])
        self._rows += 1

    def add_band(self, first: int, last: int, lines: int) -> None:
        """Shade a range of numbers behind the next rows."""
        self._bands.append(
            (self._axis.place(first), self._axis.place(last) + 1, self._rows, self._rows + max(1, lines))
        )
        self._rows += 0 if lines else 1

    def figure(self) -> Any:
        """Build the figure."""
        figure = apply_layout(go.Figure(), round(60 + 20 * self._rows))
        for group, bars in self._bars.items():
            colour = COLOURS.get(group, GREY)
            figure.add_trace(
                go.Bar(
                    orientation="h",
                    base=bars["base"],
                    x=bars["x"],
                    y=bars["y"],
                    width=0.7,
                    marker={"color": colour, "opacity": bars["opacity"], "line": {"color": colour, "width": 1}},
                    customdata=[escape(text) for text in bars["text"]],
                    hovertemplate="%{customdata}<extra></extra>",
                    legendgroup=group,
                )
            )
        if not self._bars:
            figure.add_trace(go.Scatter(x=[0, self._axis.length], y=[0, 0], mode="lines", opacity=0, hoverinfo="skip"))
        for low, high, top, bottom in self._bands:
            figure.add_shape(
                type="rect", x0=low, x1=high, y0=top, y1=bottom, fillcolor=BAND, line_width=0, layer="below"
            )
        for row, text in self._labels:
            figure.add_annotation(
                x=0,
                xref="paper",
                xanchor="left",
                y=row,
                yanchor="middle",
                text=escape(text),
                showarrow=False,
                font={"color": INK},
            )
        _number_axis(figure, self._axis)
        figure.update_yaxes(visible=False, range=[self._rows, 0])
        figure.update_layout(barmode="overlay", hovermode="closest", margin={"l": 14, "r": 14, "b": 46})
        return figure


def lane_chart(
    numbers: SequencePlotData,
    name: str,
    journals: Mapping[str, str],
    covered: CoveredRanges,
    totals: Mapping[FindingLane, int],
) -> Plot:
    """Plot the findings over sequence numbers, in rows for all journals together and for each journal.

    :param journals: journals of this stream with their labels.
    :param covered: first and last number that each journal has or should have.
    :param totals: counts of affected numbers, including numbers omitted from the axis.
    """
    axis = numbers.axis
    plot = Plot(f"gaps-{name}", "Gaps and other findings", "")
    if not numbers.lanes:
        plot.caption = "Nothing is missing or wrong here." if covered else "No gap is known here."
        return plot
    board = BarChart(axis)
    order = sorted(numbers.lanes, key=lambda lane: severity(lane.kind, lane.reason))
    words = []
    for journal in (None, *journals):
        mine = [lane for lane in order if lane.journal == journal]
        if journal is None and not mine:
            continue
        label = "all journals" if journal is None else journals[journal]
        sums = [f"{totals[lane]:,} {finding_text(*lane[:2]).name}" for lane in mine]
        board.add_label(ellipsize(label, 40))
        if journal is not None and journal in covered:
            board.add_band(*covered[journal], len(mine))
        for lane in mine:
            board.add_bars(
                _group(lane), make_bars(axis, numbers.lanes[lane]), f"{finding_text(*lane[:2]).name}, {label}"
            )
        words.append(f"{label}: {', '.join(sums) or 'nothing found'}")
    plot.figure = board.figure()
    groups = {
        _group(lane): LegendEntry(_group(lane), COLOURS.get(_group(lane), GREY), finding_text(*lane[:2]).name)
        for lane in order
    }
    plot.legend = list(groups.values())
    shade = " What a journal covers is shaded." if covered else ""
    plot.caption = f"{'; '.join(words)}.{shade} {_scale(axis)}"
    return plot


def repair_chart(numbers: SequencePlotData, name: str) -> Plot:
    """Plot the late copies, which filled gaps, over sequence numbers."""
    axis = numbers.axis
    plot = Plot(f"repairs-{name}", "Repairs", "No copy came after a higher number: nothing was repaired here.")
    if not numbers.repairs:
        return plot
    figure = apply_layout(go.Figure(), 220)
    counts = sorted(numbers.repairs)
    places = [one.bin * axis.width for one in counts]
    widths = [min(axis.width, axis.length - place) for place in places]
    figure.add_trace(
        go.Bar(
            x=[place + width / 2 for place, width in zip(places, widths, strict=True)],
            y=[one.numbers for one in counts],
            width=widths,
            marker={"color": BLUE, "line": {"color": BLUE, "width": 1}},
            customdata=[_range_of(axis, one) for one in counts],
            hovertemplate="%{customdata}: %{y:,} copies came late<extra></extra>",
        )
    )
    _number_axis(figure, axis)
    figure.update_yaxes(title_text="late copies", tickformat="~s", rangemode="tozero")
    if max(one.numbers for one in counts) <= 5:
        figure.update_yaxes(dtick=1)
    figure.update_layout(hovermode="closest")
    plot.figure = figure
    copies, late = sum(one.numbers for one in counts), sum(one.runs for one in counts)
    plot.caption = (
        f"{copies:,} late copies, of {pluralize(late, 'number')}: these came after a higher number had come, "
        "and filled "
        f"gaps. {_scale(axis)}"
    )
    return plot


def divergence_chart(numbers: SequencePlotData, name: str, journals: Mapping[str, str], *, compared: bool) -> Plot:
    """Plot the pairs of journals that disagree over sequence numbers.

    :param journals: labels of the journals.
    :param compared: whether the journals were compared.
    """
    plot = Plot(f"divergence-{name}", "Divergence", "Where journals have the same number, their payloads agree.")
    if not numbers.pairs:
        differ = sum(one.numbers for lane, all in numbers.lanes.items() if lane.kind == "divergence" for one in all)
        if differ:
            plot.caption = f"{pluralize(differ, 'number')} differ; the quarantine does not say in which journals."
        elif not compared:
            plot.caption = "Nothing is in quarantine. To compare journals, run: fyrehose-pipeline verify"
        return plot
    totals = {pair: sum(one.numbers for one in counts) for pair, counts in numbers.pairs.items()}
    pairs = sorted(totals, key=lambda pair: (-totals[pair], pair))
    board = BarChart(numbers.axis)
    words = []
    for pair in pairs[:MAX_PAIRS]:
        one, other = (ellipsize(journals.get(journal, journal), 22) for journal in pair)
        label = f"{one} ≠ {other}" if pair.first != pair.second else f"{one} ≠ itself"
        board.add_label(label)
        board.add_bars("divergence/payload", make_bars(numbers.axis, numbers.pairs[pair]), f"differ, {label}")
        words.append(f"{label}: {pluralize(totals[pair], 'number')}")
    plot.figure = board.figure()
    more = f"; and {pluralize(len(pairs) - MAX_PAIRS, 'further pair')} with fewer" if len(pairs) > MAX_PAIRS else ""
    plot.caption = f"{'; '.join(words)}{more}. {_scale(numbers.axis)}"
    return plot


def _group(lane: FindingLane) -> str:
    return f"{lane.kind}/{lane.reason}"


def _range_of(axis: Axis, count: BinCount) -> str:
    low = count.bin * axis.width
    first, last = axis.number(low), axis.number(min(axis.length, low + axis.width) - 1)
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _scale(axis: Axis) -> str:
    text = (
        f"The axis goes from {axis.first:,} to {axis.last:,}; a mark covers {pluralize(axis.width, 'number')} or more."
    )
    for low, high in axis.breaks:
        text += f" Left out of it: {low:,} to {high:,}, which no journal has."
    return text


def _number_axis(figure: Any, axis: Axis) -> None:
    ticks = thin_ticks(axis.ticks(10), axis, 0.16)
    margin = max(0.5, axis.length / 200)
    figure.update_xaxes(
        range=[-margin, axis.length + margin],
        tickvals=[tick.place + 0.5 for tick in ticks],
        ticktext=[tick.text for tick in ticks],
        tickangle=0,
        title_text="sequence number",
        zeroline=False,
    )
    if axis.breaks:
        figure.update_layout(margin_t=28)
    for low, high in axis.breaks:
        figure.add_vline(x=axis.place(low), line={"color": INK, "width": 1, "dash": "dot"})
        if len(axis.breaks) <= 2:
            figure.add_annotation(
                x=axis.place(low),
                y=1,
                yref="paper",
                yanchor="bottom",
                showarrow=False,
                font={"color": INK, "size": 11},
                text=f"{high - low + 1:,} left out",
                xanchor="right" if axis.place(low) > axis.length / 2 else "left",
            )
