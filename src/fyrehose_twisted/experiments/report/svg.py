"""Drawing of a tree at one time as SVG, legible in colour and in black and white."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import cos, inf, isnan, pi, sin

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.experiments.report.tree_state import TreeState
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.wording import pluralize

INK, SOFT, LINE, ADRIFT, WAITING, LINK = "#17202b", "#53606e", "#b7c0c9", "#c4122f", "#a65300", "#c3cbd3"
RAMP = ((53, 21, 95), (58, 79, 154), (42, 120, 142), (31, 148, 117), (90, 154, 28))
"""Colours of depths from the root down, from dark to light in greyscale."""

_MARGIN = 46.0
_LINE = 19.0
_MIN_WIDTH, _MAX_WIDTH = 240, 10_000


def draw(recording: Recording, key: bytes, t: float, *, width: int = 720, links: bool = False) -> str:
    """Return an SVG document of a tree ``t`` seconds after the start.

    Nodes are placed at their locations on a ring, clockwise with 0 at the top. Each kind of node and edge has its own
    shape, so the drawing is legible without colours. The document is ASCII, without scripts or external references.

    :param width: width in pixels, which determines the height.
    :param links: also draw the links between nodes, faintly.
    :raises ConfigurationError: if the recording has no such stream, or ``t`` or ``width`` is out of range.
    """
    if not 0.0 <= t < inf:
        raise ConfigurationError(f"t={t!r}: the time must be 0 or more seconds after the start")
    if not _MIN_WIDTH <= width <= _MAX_WIDTH:
        raise ConfigurationError(f"width={width!r} is outside {_MIN_WIDTH} to {_MAX_WIDTH:,} pixels")
    text = _Drawing(recording.state_at(key, t), key, float(width)).text(links)
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


class _Drawing:
    def __init__(self, state: TreeState, key: bytes, width: float) -> None:
        self._state = state
        self._key = key
        self._width = width
        self._centre = width / 2
        self._radius = width / 2 - _MARGIN
        self._depths = state.depths
        self._deepest = max(self._depths.values(), default=0)
        self._size = max(2.0, min(4.5, 2.9 * self._radius / max(1, len(state.members))))
        self._parents = set(state.parents.values())

    def text(self, links: bool) -> str:
        legend, height = self._legend()
        summary = escape(self._summary())
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_number(self._width)} {_number(height)}" '
            f'width="{_number(self._width)}" height="{_number(height)}" role="img" aria-label="{summary}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12">',
            f"<title>{summary}</title>",
            f'<rect width="{_number(self._width)}" height="{_number(height)}" fill="#ffffff"/>',
            self._ring(),
            self._links() if links else "",
            self._edges(),
            self._nodes(),
            legend,
            "</svg>\n",
        ]
        return "\n".join(part for part in parts if part)

    def _summary(self) -> str:
        moment = self._state
        alive = len(moment.subscribers - moment.down)
        reach = "none" if isnan(moment.reach) else f"{moment.reach:.1%}"
        return (
            f"Key {self._key.hex()[:12]} after {moment.t:g} s: {pluralize(len(moment.members), 'member')}, "
            f"{pluralize(alive, 'subscriber')}, {pluralize(len(moment.roots), 'root')}, "
            f"{len(moment.unrooted)} cut off, reach {reach}"
        )

    def _point(self, location: float, radius: float | None = None) -> tuple[float, float]:
        angle = 2 * pi * location
        away = self._radius if radius is None else radius
        return self._centre + away * sin(angle), self._centre - away * cos(angle)

    def _ring(self) -> str:
        key = key_location(self._key)
        parts = [
            f'<circle cx="{_number(self._centre)}" cy="{_number(self._centre)}" r="{_number(self._radius)}" '
            f'fill="none" stroke="{LINE}"/>'
        ]
        for tick in (0.0, 0.25, 0.5, 0.75):
            if min(abs(tick - key), 1 - abs(tick - key)) > 0.035:
                parts.append(self._label(f"{tick:g}", tick, SOFT))
        angle = _number(360 * key)
        x, y = self._point(key, self._radius + 7)
        parts.append(
            f'<path d="M0 0L-5 -11L5 -11Z" transform="translate({_number(x)} {_number(y)}) rotate({angle})" '
            f'fill="{INK}"/>'
        )
        parts.append(self._label("key", key, INK))
        return f'<g class="ground">{"".join(parts)}</g>'

    def _label(self, text: str, location: float, colour: str) -> str:
        # Text is wider than high, so labels beside the ring need more room.
        x, y = self._point(location, self._radius + 23 + 7 * abs(sin(2 * pi * location)))
        return f'<text x="{_number(x)}" y="{_number(y + 4)}" text-anchor="middle" fill="{colour}">{text}</text>'

    def _links(self) -> str:
        paths = "".join(f'<path d="{self._curve(one, other)}"/>' for one, other in sorted(self._state.links))
        return f'<g class="links" fill="none" stroke="{LINK}" stroke-width="0.4">{paths}</g>'

    def _edges(self) -> str:
        parents = self._state.parents
        # Deepest first, so that edges near the root lie above them; edges cut off from the root lie on top.
        order = sorted(parents, key=lambda node: (node not in self._depths, -self._depths.get(node, 0), node))
        paths = []
        for node in order:
            depth = self._depths.get(node)
            dashes = ' stroke-dasharray="5 3"' if depth is None else ""
            paths.append(
                f'<path class="edge" d="{self._curve(node, parents[node])}" stroke="{self._ink(node)}"{dashes}/>'
            )
        wide = max(0.7, min(1.5, 260 / max(1, len(parents))))
        return f'<g class="edges" fill="none" stroke-width="{wide:.2f}">{"".join(paths)}</g>'

    def _curve(self, node: int, parent: int) -> str:
        """Return a curve that bends towards the centre, more so for distant ends."""
        one, other = self._state.locations[node], self._state.locations[parent]
        apart = (other - one + 0.5) % 1.0 - 0.5
        bend = self._point(one + apart / 2, self._radius * (0.92 - 0.92 * (2 * abs(apart)) ** 0.6))
        points = (self._point(one), bend, self._point(other))
        start, middle, end = (f"{_number(x)} {_number(y)}" for x, y in points)
        return f"M{start}Q{middle} {end}"

    def _ink(self, node: int) -> str:
        depth = self._depths.get(node)
        return ADRIFT if depth is None else _depth_colour(depth, self._deepest)

    def _nodes(self) -> str:
        moment = self._state
        members = moment.members
        shown = members | moment.subscribers | moment.down
        marks = []
        for node in sorted(range(len(moment.locations)), key=lambda node: (node in moment.roots, node in members)):
            x, y = self._point(moment.locations[node])
            if node not in shown:
                marks.append(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="1" fill="{LINE}"/>')
            else:
                marks.append(_translated(self._mark(node), x, y))
        return f'<g class="nodes">{"".join(marks)}</g>'

    def _mark(self, node: int) -> str:
        moment, size = self._state, self._size
        if node in moment.down:
            return _cross(size, ADRIFT if node in self._parents else SOFT)
        if node not in moment.members:
            return _triangle(size)
        hollow = node not in moment.subscribers
        if node in moment.roots:
            return _diamond(size + 4, hollow=hollow)
        mark = _disc(size, self._ink(node), hollow=hollow)
        return mark + _halo(size + 3, ADRIFT) if node in moment.detached else mark

    def _legend(self) -> tuple[str, float]:
        """Return the legend of the shapes in use, and the height of the drawing."""
        moment = self._state
        alive = moment.members - moment.down
        middle = _depth_colour(1, max(2, self._deepest))
        entries: list[tuple[bool, str, Callable[[], str]]] = [
            (bool(moment.roots), "root", lambda: _diamond(6.5, hollow=False)),
            (bool(alive & moment.subscribers), "subscriber", lambda: _disc(4.0, middle, hollow=False)),
            (bool(alive - moment.subscribers), "relay", lambda: _disc(4.0, middle, hollow=True)),
            (
                bool(moment.subscribers - moment.members - moment.down),
                "subscriber without a parent",
                lambda: _triangle(4.5),
            ),
            (
                bool(moment.detached),
                "searches for a parent",
                lambda: _disc(3.5, ADRIFT, hollow=False) + _halo(6.5, ADRIFT),
            ),
            (
                bool(moment.unrooted),
                "cut off from the root",
                lambda: f'<path d="M-9 5Q0 -9 9 5" fill="none" stroke="{ADRIFT}" stroke-dasharray="5 3"/>',
            ),
            (bool(moment.down), "down", lambda: _cross(4.0, SOFT)),
            (bool(moment.down & self._parents), "down, not yet detected by its children", lambda: _cross(4.5, ADRIFT)),
            (self._deepest > 0, f"depth 0 to {self._deepest}", self._scale),
        ]
        parts, x, y = [], 12.0, self._width + 10
        for shown, text, mark in entries:
            if not shown:
                continue
            ahead = 58.0 if text.startswith("depth") else 14.0
            wide = ahead + 6.4 * len(text) + 20
            if x > 12.0 and x + wide > self._width:
                x, y = 12.0, y + _LINE
            start = x + (0 if text.startswith("depth") else 9)
            parts.append(_translated(mark(), start, y))
            parts.append(f'<text x="{_number(x + ahead + 8)}" y="{_number(y + 4)}" fill="{INK}">{text}</text>')
            x += wide
        summary = self._summary()
        # The width of the text is an estimate, since fonts differ.
        lines = _wrap(summary, max(20, int((self._width - 24) / 6.6)))
        for line in lines:
            y += _LINE
            parts.append(f'<text x="12" y="{_number(y + 4)}" fill="{SOFT}">{escape(line)}</text>')
        return f'<g class="legend">{"".join(parts)}</g>', y + 14

    def _scale(self) -> str:
        steps = min(self._deepest, 11)
        wide = 54 / (steps + 1)
        return "".join(
            f'<rect x="{_number(index * wide)}" y="-4" width="{_number(wide)}" height="8" '
            f'fill="{_depth_colour(index, steps)}"/>'
            for index in range(steps + 1)
        )


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _translated(mark: str, x: float, y: float) -> str:
    return f'<g transform="translate({_number(x)} {_number(y)})">{mark}</g>'


def _disc(size: float, colour: str, *, hollow: bool) -> str:
    fill = "#ffffff" if hollow else colour
    return f'<circle r="{_number(size - 0.6)}" fill="{fill}" stroke="{colour}" stroke-width="1.3"/>'


def _halo(size: float, colour: str) -> str:
    return f'<circle r="{_number(size)}" fill="none" stroke="{colour}" stroke-width="1.3"/>'


def _diamond(size: float, *, hollow: bool) -> str:
    s, fill = _number(size), "#ffffff" if hollow else INK
    return f'<path d="M0 -{s}L{s} 0L0 {s}L-{s} 0Z" fill="{fill}" stroke="{INK}" stroke-width="1.6"/>'


def _cross(size: float, colour: str) -> str:
    s = _number(size)
    return f'<path d="M-{s} -{s}L{s} {s}M{s} -{s}L-{s} {s}" stroke="{colour}" stroke-width="1.5" fill="none"/>'


def _triangle(size: float) -> str:
    s, low = _number(size), _number(0.8 * size)
    return f'<path d="M0 -{s}L{s} {low}L-{s} {low}Z" fill="{WAITING}"/>'


def _depth_colour(depth: int, deepest: int) -> str:
    place = min(depth / max(deepest, 1), 1.0) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    mixed = (round(a + (place - low) * (b - a)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
