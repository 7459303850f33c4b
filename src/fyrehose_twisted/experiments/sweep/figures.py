"""The plots of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.sweep_data import GridReport, Panel, Series, format_value
from fyrehose_twisted.spark.report.style import DARK, DASHES, SERIES, LegendEntry, Plot, apply_layout
from fyrehose_twisted.wording import pluralize

MAX_LINES = 12
"""A plot has at most so many lines; the table below has all."""
HEIGHT = 320
MAX_TICKS = 8
"""With at most so many values on an axis, each has a tick."""
LOG_SCALE_RATIO = 8.0
"""If the highest number on the axis is so many times the lowest, its scale is logarithmic."""

_BAND_OPACITY = 0.16


def make_plot(panel: Panel, part: GridReport, name: str) -> Plot:
    """Return the plot of a metric.

    :param name: the id of the plot in the page.
    """
    metric = METRICS[panel.metric]
    plot = Plot(name, metric.title, _caption(panel, part))
    figure = apply_layout(go.Figure(), HEIGHT)
    is_number = not isinstance(panel.series[0].points[0].x, bool | str)
    for index, series in enumerate(panel.series[:MAX_LINES]):
        colour = SERIES[index % len(SERIES)]
        group = f"series-{index}"
        if is_number and len(series.points) > 1:
            _add_band(figure, series, colour, group)
        _add_line(figure, series, colour, DASHES[index // len(SERIES) % len(DASHES)], group, is_number=is_number)
        plot.legend.append(LegendEntry(group, colour, series_label(series)))
    figure.update_yaxes(title_text=metric.unit or None, rangemode="tozero")
    if metric.minimum or metric.maximum <= 1.0:
        # Where 0 says nothing, it would only press together what differs; plotly has it on the axis beside bars.
        figure.update_yaxes(range=_range(panel))
    figure.update_xaxes(title_text=panel.axis, hoverformat=None, fixedrange=True, zeroline=False)
    figure.update_layout(margin={"b": 48}, hovermode="closest")
    places = list(dict.fromkeys(point.x for series in panel.series for point in series.points))
    if is_number:
        _number_axis(figure, sorted(map(float, places)))
    else:
        # Points of one place would hide one another.
        figure.update_layout(scattermode="group", scattergap=0.4)
        figure.update_xaxes(type="category", categoryarray=[format_value(at) for at in places], categoryorder="array")
    plot.figure = figure
    return plot


def series_label(series: Series) -> str:
    """Return what a line is called."""
    return ", ".join(f"{name}={format_value(value)}" for name, value in series.settings.items()) or "all"


def format_number(value: float | None) -> str:
    """Return a number as the page writes it, with four digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == 0 else f"{value:#.4g}"


def band_colour(colour: str, *, dark: bool = False) -> str:
    """Return the colour of the band around a line."""
    hexadecimal = DARK[colour] if dark else colour
    red, green, blue = (int(hexadecimal[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{_BAND_OPACITY})"


def _add_band(figure: Any, series: Series, colour: str, group: str) -> None:
    bounded = [
        (point.x, point.interval.low, point.interval.high) for point in series.points if point.interval.low is not None
    ]
    if len(bounded) > 1:
        figure.add_trace(
            go.Scatter(
                x=[at for at, _, _ in bounded] + [at for at, _, _ in reversed(bounded)],
                y=[high for _, _, high in bounded] + [low for _, low, _ in reversed(bounded)],
                mode="lines",
                line={"width": 0, "color": colour},
                fill="toself",
                fillcolor=band_colour(colour),
                hoverinfo="skip",
                legendgroup=group,
            )
        )


def _add_line(figure: Any, series: Series, colour: str, dash: str, group: str, *, is_number: bool) -> None:
    points = series.points
    said = [point.interval for point in points]
    hovers = [_hover(series, index) for index in range(len(points))]
    bars = None
    if not (is_number and len(points) > 1):
        bars = {
            "type": "data",
            "symmetric": False,
            "array": [(one.high or one.mean) - one.mean for one in said],
            "arrayminus": [one.mean - (one.mean if one.low is None else one.low) for one in said],
            "color": colour,
            "thickness": 1.5,
            "width": 5,
        }
    figure.add_trace(
        go.Scatter(
            x=[point.x if is_number else format_value(point.x) for point in points],
            y=[one.mean for one in said],
            error_y=bars,
            mode="lines+markers" if is_number else "markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"color": colour, "size": 7},
            customdata=hovers,
            hovertemplate="%{customdata}<extra></extra>",
            legendgroup=group,
            offsetgroup=None if is_number else group,
        )
    )


def _hover(series: Series, index: int) -> str:
    at, said = series.points[index]
    bounds = "" if said.low is None else f" ({format_number(said.low)} to {format_number(said.high)})"
    settings = f"<br>{series_label(series)}" if series.settings else ""
    escaped = settings.replace("<", "&lt;").replace("&lt;br>", "<br>")
    return (
        f"<b>{format_number(said.mean)}</b>{bounds}<br>at {format_value(at)}, "
        f"{pluralize(said.networks, 'network')}{escaped}"
    )


def _number_axis(figure: Any, places: Sequence[float]) -> None:
    if places[0] > 0 and places[-1] >= LOG_SCALE_RATIO * places[0]:
        figure.update_xaxes(type="log")
    if len(places) <= MAX_TICKS:
        figure.update_xaxes(tickvals=places, ticktext=[f"{at:,g}" for at in places])


def _range(panel: Panel) -> list[float]:
    said = [point.interval for series in panel.series[:MAX_LINES] for point in series.points]
    low = min(one.mean if one.low is None else one.low for one in said)
    high = max(one.mean if one.high is None else one.high for one in said)
    margin = 0.06 * (high - low) or 0.1
    return [low - margin, high + margin]


def _has_bars(panel: Panel) -> bool:
    points = panel.series[0].points
    return len(points) < 2 or isinstance(points[0].x, bool | str)


def _caption(panel: Panel, part: GridReport) -> str:
    counts = [point.interval.networks for series in panel.series for point in series.points]
    each = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    networks = "network" if max(counts) == 1 else "networks"
    parts = [METRICS[panel.metric].description, f"Each point is the mean of {each} {networks}."]
    if max(counts) > 1:
        shape = "The bar" if _has_bars(panel) else "What is shaded"
        parts.append(f"{shape} is its 95 % confidence interval.")
    if len(panel.series) > MAX_LINES:
        parts.append(f"{len(panel.series) - MAX_LINES:,} more lines are only in the table.")
    return " ".join(one for one in parts if one)
