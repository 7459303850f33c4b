"""Common style of the report's plots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import plotly.graph_objects as go

INK, SOFT, LINE, CARD, BAND = "#17202b", "#53606e", "#d3dae1", "#ffffff", "#eef2f5"
BLUE, ORANGE, GREEN, PURPLE, SKY, OLIVE = "#1f5fa8", "#b86200", "#00795c", "#9a3f86", "#2b8fb8", "#7a6a00"
RED, GREY = "#c22f12", "#77828e"

DARK = {
    INK: "#e7ecf2",
    SOFT: "#a2afbc",
    LINE: "#2e3843",
    CARD: "#161c24",
    BAND: "#222b35",
    BLUE: "#6fb1ff",
    ORANGE: "#ffb04d",
    GREEN: "#3fd6a8",
    PURPLE: "#e68fd3",
    SKY: "#8fdcff",
    OLIVE: "#e3d24a",
    RED: "#ff7a52",
    GREY: "#98a5b3",
}
"""Replacement of each colour in dark mode."""

SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, OLIVE)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""Dash styles, which distinguish lines without relying on colour."""


class LegendEntry(NamedTuple):
    """Legend entry for the traces whose legend group is ``group``."""

    group: str
    colour: str
    text: str


@dataclass
class Plot:
    """Plot with a caption that states its content in words.

    :ivar name: HTML id.
    :ivar figure: ``None`` if there is nothing to draw; the caption then gives the reason.
    """

    name: str
    title: str
    caption: str
    figure: Any = None
    legend: list[LegendEntry] = field(default_factory=list)


def apply_layout(figure: Any, height: int) -> Any:
    """Apply the common layout to a figure and return it; ``height`` is in pixels."""
    figure.update_layout(
        template=go.layout.Template(),
        height=height,
        margin={"l": 62, "r": 14, "t": 14, "b": 34},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": SOFT, "size": 12},
        showlegend=False,
        hovermode="x",
        hoverlabel={"bgcolor": CARD, "bordercolor": LINE, "font": {"color": INK}, "align": "left"},
        bargap=0,
    )
    lines = {"gridcolor": LINE, "linecolor": LINE, "zerolinecolor": LINE}
    figure.update_xaxes(**lines, showline=True, hoverformat="%Y-%m-%d %H:%M:%S")
    figure.update_yaxes(**lines, fixedrange=True)
    return figure
