"""Plots over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fyrehose_twisted.spark.report.page_data import StreamTraffic
from fyrehose_twisted.spark.report.style import (
    BLUE,
    DASHES,
    GREY,
    OLIVE,
    ORANGE,
    RED,
    SERIES,
    LegendEntry,
    Plot,
    apply_layout,
)
from fyrehose_twisted.spark.report.text import ellipsize, format_delay, format_length, format_utc
from fyrehose_twisted.spark.report.timeline import Timeline
from fyrehose_twisted.wording import pluralize


def rate_plot(traffic: Timeline | None, streams: Sequence[StreamTraffic]) -> Plot:
    """Plot message and byte rates over time."""
    plot = Plot("rate", "Messages and bytes over time", "There is no traffic in gold, so there is no rate to show.")
    if traffic is None or not traffic.rows:
        return plot
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    apply_layout(figure, 420)
    bins = range(traffic.bins)
    times = [format_utc(traffic.middle(bin)) for bin in bins]
    highest = 0.0
    for index, (name, text) in enumerate(_lines(traffic, streams)):
        rows, colour = traffic.rows[name], SERIES[index % len(SERIES)] if name is not None else GREY
        plot.legend.append(LegendEntry(f"stream-{index}", colour, text))
        for row, (value, unit) in enumerate((("messages", "messages/s"), ("bytes", "B/s")), 1):
            rate = [rows.get(bin, {}).get(value, 0) / traffic.seconds(bin) for bin in bins]
            highest = max(highest, *rate) if value == "messages" else highest
            shape = {"color": colour, "width": 2, "dash": DASHES[index % len(DASHES)]}
            hover = f"%{{y:,.3~s}} {unit} %{{customdata}}<extra></extra>"
            figure.add_trace(
                go.Scatter(
                    x=times,
                    y=rate,
                    line=shape,
                    mode=_mode(len(times)),
                    marker={"size": 6, "color": colour},
                    customdata=[escape(ellipsize(text))] * len(times),
                    hovertemplate=hover,
                    legendgroup=f"stream-{index}",
                ),
                row=row,
                col=1,
            )
    figure.update_yaxes(title_text="messages/s", row=1, col=1)
    figure.update_yaxes(title_text="bytes/s", row=2, col=1)
    figure.update_yaxes(rangemode="tozero", tickformat="~s")
    figure.update_xaxes(range=_range(traffic))
    plot.figure = figure
    whole = (traffic.whole.end - traffic.whole.start) / 1_000_000
    messages, size = (sum(getattr(one, name) for one in streams) for name in ("messages", "bytes"))
    when = f" from {format_utc(traffic.whole.start)} to {format_utc(traffic.whole.end)} UTC"
    mean = messages / whole if whole and not traffic.hidden else 0
    plot.caption = (
        f"{pluralize(messages, 'message')} and {pluralize(size, 'byte')}{'' if traffic.hidden else when}"
        f"{f', {mean:,.1f} messages/s on average' if mean else ''}. "
        f"A point covers {format_length(traffic.step)}; the highest is at {highest:,.1f} messages/s.{_hidden(traffic)}"
    )
    return plot


def loss_plot(traffic: Timeline | None) -> Plot:
    """Plot losses, repairs and repeats over time."""
    plot = Plot("troubles", "Losses, repairs and repeats over time", "There is no traffic in gold, so none is known.")
    if traffic is None or not traffic.rows:
        return plot
    sums = {
        name: [sum(rows.get(bin, {}).get(name, 0) for rows in traffic.rows.values()) for bin in range(traffic.bins)]
        for name in ("lost", "repairs", "repeats", "gaps")
    }
    totals = {name: sum(values) for name, values in sums.items()}
    words = f"{totals['lost']:,} lost in {pluralize(totals['gaps'], 'gap')}, {totals['repairs']:,} repaired, "
    words += f"{totals['repeats']:,} repeated"
    if not any(totals.values()):
        plot.caption = f"In the time shown above nothing was lost, repaired or repeated.{_hidden(traffic)}"
        return plot
    figure = apply_layout(go.Figure(), 260)
    times = [format_utc(traffic.middle(bin)) for bin in range(traffic.bins)]
    shapes = (("lost", RED, "x"), ("repairs", BLUE, ""), ("repeats", OLIVE, "/"))
    for name, colour, shape in shapes:
        if not totals[name]:
            continue
        plot.legend.append(LegendEntry(name, colour, name))
        figure.add_trace(
            go.Bar(
                x=times,
                y=sums[name],
                width=[traffic.seconds(bin) * 1_000 for bin in range(traffic.bins)],
                marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": shape, "size": 5}},
                hovertemplate=f"%{{y:,}} {name}<extra></extra>",
                legendgroup=name,
            )
        )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(range=_range(traffic))
    figure.update_yaxes(title_text=f"in {format_length(traffic.step)}", tickformat="~s", rangemode="tozero")
    if max(map(sum, zip(*(sums[name] for name, _, _ in shapes), strict=True))) <= 5:
        figure.update_yaxes(dtick=1)
    plot.figure = figure
    plot.caption = f"In the time shown: {words}. A bar covers {format_length(traffic.step)}.{_hidden(traffic)}"
    return plot


def latency_plots(timeline: Timeline | None, streams: Sequence[StreamTraffic]) -> list[Plot]:
    """Plot latency percentiles over time, for each stream with a line of its own in the traffic plots."""
    title = "Delivery latency over time"
    shown = [name for name, _ in _lines(timeline, streams) if name is not None] if timeline is not None else []
    if timeline is None or not shown:
        return [
            Plot("latency", title, "There is no latency in gold: no copy was delayed, or the pipeline has not run.")
        ]
    plots = []
    for index, name in enumerate(shown):
        heading = title if len(streams) == 1 else f"{title}: {name}"
        plots.append(_latency(timeline, name, Plot(f"latency-{index}", heading, "")))
    return plots


def _latency(timeline: Timeline, stream: str, plot: Plot) -> Plot:
    rows = timeline.rows[stream]
    figure = apply_layout(go.Figure(), 320)
    times = [format_utc(timeline.middle(bin)) for bin in range(timeline.bins)]
    lines = {
        "max_us": ("maximum", GREY),
        "p99_us": ("99 %", RED),
        "p95_us": ("95 %", ORANGE),
        "p50_us": ("median", BLUE),
    }
    worst = {}
    for index, (value, (text, colour)) in enumerate(lines.items()):
        delays = [rows[bin][value] if bin in rows else None for bin in range(timeline.bins)]
        worst[value] = max(delay for delay in delays if delay is not None)
        plot.legend.append(LegendEntry(value, colour, text))
        figure.add_trace(
            go.Scatter(
                x=times,
                y=[None if one is None else max(one, 1) for one in delays],
                customdata=["" if one is None else format_delay(one) for one in delays],
                mode=_mode(len(rows)),
                line={"color": colour, "width": 2, "dash": "solid" if index else "dot"},
                marker={"size": 6, "color": colour},
                hovertemplate=f"%{{customdata}} {text}<extra></extra>",
                legendgroup=value,
            )
        )
    powers = [10**power for power in range(10)]
    texts = ["≤ 1 µs", *(format_delay(power) for power in powers[1:])]
    figure.update_yaxes(type="log", tickvals=powers, ticktext=texts)
    figure.update_xaxes(range=_range(timeline))
    plot.figure = figure
    copies = sum(one["copies"] for one in rows.values())
    covers = f"A point covers {format_length(timeline.step)}"
    if timeline.step > timeline.window:
        covers += f" and shows the worst of its windows of {format_length(timeline.window)}"
    plot.caption = (
        f"{copies:,} copies in the time shown. Highest median {format_delay(worst['p50_us'])}, highest "
        f" 99th percentile {format_delay(worst['p99_us'])}, maximum {format_delay(worst['max_us'])}. {covers}."
    )
    return plot


def _lines(timeline: Timeline, streams: Sequence[StreamTraffic]) -> list[tuple[str | None, str]]:
    """Return the key and label of each line."""
    lines: list[tuple[str | None, str]] = [(one.stream, one.stream) for one in streams if one.stream in timeline.rows]
    if None in timeline.rows:
        lines.append((None, f"{len(streams) - len(lines):,} further streams"))
    return lines


def _range(timeline: Timeline) -> list[str]:
    # Margins on both sides keep the first and the last marker visible in full.
    margin = max(timeline.window // 2, (timeline.end - timeline.start) // 100) if timeline.bins < 60 else 0
    return [format_utc(timeline.start - margin), format_utc(timeline.end + margin)]


def _mode(points: int) -> str:
    return "lines+markers" if points <= 60 else "lines"


def _hidden(timeline: Timeline) -> str:
    if not timeline.hidden:
        return ""
    share = timeline.hidden / timeline.whole.weight
    return (
        f" Clocks jumped, or there were long pauses: {pluralize(timeline.hidden, 'message')}, sent or lost "
        f"({_percent(share)}), between {format_utc(timeline.whole.start)} and {format_utc(timeline.whole.end)} "
        "UTC lie outside "
        f"of the time shown, {format_utc(timeline.start)} to {format_utc(timeline.end)} UTC, which has the other "
        f"{_percent(1 - share, down=True)}."
    )


def _percent(share: float, *, down: bool = False) -> str:
    if down:
        return f"{int(share * 100_000) / 1_000:g} %"
    return "less than 0.001 %" if share < 0.000_01 else f"{share * 100:.3g} %"
