"""Plots of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.sweep_data import GridReport, Panel, Series, format_value
from fyrehose_twisted.spark.report.style import DARK, DASHES, SERIES, LegendEntry, Plot, apply_layout
from fyrehose_twisted.wording import pluralize

MAX_LINES = 12
"""Maximum number of lines in a plot. The table below it has all."""
HEIGHT = 320
MAX_TICKS = 8
"""Maximum number of values on an axis that get a tick each."""
LOG_SCALE_RATIO = 8.0
"""Ratio of the highest to the lowest value from which an axis is logarithmic."""

_BAND_OPACITY = 0.16


def make_plot(panel: Panel, part: GridReport, name: str) -> Plot:
    """Return the plot of a metric.

    :param name: id of the plot in the page.
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
        # If 0 is not meaningful, including it would only compress the differences. Plotly includes it beside bars.
        figure.update_yaxes(range=_range(panel))
    figure.update_xaxes(title_text=panel.axis, hoverformat=None, fixedrange=True, zeroline=False)
    figure.update_layout(margin={"b": 48}, hovermode="closest")
    places = list(dict.fromkeys(point.x for series in panel.series for point in series.points))
    if is_number:
        _number_axis(figure, sorted(map(float, places)))
    else:
        # Points of the same category would hide each other.
        figure.update_layout(scattermode="group", scattergap=0.4)
        figure.update_xaxes(type="category", categoryarray=[format_value(at) for at in places], categoryorder="array")
    plot.figure = figure
    return plot


def series_label(series: Series) -> str:
    """Return the label of a line."""
    return ", ".join(f"{name}={format_value(value)}" for name, value in series.settings.items()) or "all"


def format_number(value: float | None) -> str:
    """Return a number as text with four significant digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == 0 else f"{value:#.4g}"


def band_colour(colour: str, *, dark: bool = False) -> str:
    """Return the colour of the confidence band of a line."""
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
    intervals = [point.interval for point in points]
    hovers = [_hover(series, index) for index in range(len(points))]
    bars = None
    if not (is_number and len(points) > 1):
        bars = {
            "type": "data",
            "symmetric": False,
            "array": [(interval.high or interval.mean) - interval.mean for interval in intervals],
            "arrayminus": [
                interval.mean - (interval.mean if interval.low is None else interval.low) for interval in intervals
            ],
            "color": colour,
            "thickness": 1.5,
            "width": 5,
        }
    figure.add_trace(
        go.Scatter(
            x=[point.x if is_number else format_value(point.x) for point in points],
            y=[interval.mean for interval in intervals],
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
    x, interval = series.points[index]
    bounds = "" if interval.low is None else f" ({format_number(interval.low)} to {format_number(interval.high)})"
    settings = f"<br>{series_label(series)}" if series.settings else ""
    escaped = settings.replace("<", "&lt;").replace("&lt;br>", "<br>")
    return (
        f"<b>{format_number(interval.mean)}</b>{bounds}<br>at {format_value(x)}, "
        f"{pluralize(interval.networks, 'network')}{escaped}"
    )


def _number_axis(figure: Any, places: Sequence[float]) -> None:
    if places[0] > 0 and places[-1] >= LOG_SCALE_RATIO * places[0]:
        figure.update_xaxes(type="log")
    if len(places) <= MAX_TICKS:
        figure.update_xaxes(tickvals=places, ticktext=[f"{at:,g}" for at in places])


def _range(panel: Panel) -> list[float]:
    intervals = [point.interval for series in panel.series[:MAX_LINES] for point in series.points]
    low = min(interval.mean if interval.low is None else interval.low for interval in intervals)
    high = max(interval.mean if interval.high is None else interval.high for interval in intervals)
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
        shape = "The bar" if _has_bars(panel) else "The shaded band"
        parts.append(f"{shape} is its 95 % confidence interval.")
    if len(panel.series) > MAX_LINES:
        parts.append(f"{len(panel.series) - MAX_LINES:,} more lines are only in the table.")
    return " ".join(filter(None, parts))
