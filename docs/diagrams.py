"""Draws the diagrams of the pages from the code, without any package for it; ``make docs`` calls this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html import escape
from math import hypot
from pathlib import Path

from fyrehose_twisted.parcels.messages import Mode
from fyrehose_twisted.parcels.modes import MOVES

MODES = Path(__file__).with_name("modes.svg")

WIDTH, HEIGHT = 760, 470
FRAME = (16, 16, 728, 344)
"""Around those modes that a node can leave: left, top, width, height."""
PLACES = {
    Mode.DSC: (110, 70),
    Mode.WRK: (600, 70),
    Mode.SEQ_RECOVERY: (230, 190),
    Mode.ERR: (600, 310),
    Mode.SHUTDOWN: (230, 430),
    Mode.PANIC: (530, 430),
}
"""Middles of the boxes."""
BOX = (116, 38)
APART = 9
"""Half of the distance between two arrows that lead to and fro."""

HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"
 font-family="sans-serif" font-size="14" role="img" aria-label="Modes of a node, and what leads from one to another">
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 10 5 0 10z" fill="#444"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fff"/>"""


def draw_modes(moves: dict[tuple[Mode, str], Mode] = MOVES) -> str:
    """Return the modes of a parcels node, and all moves between them, as SVG.

    Each arrow names its moves in ``data-moves``: from, why and to, with blanks between them and commas between moves.
    """
    left, top, width, height = FRAME
    parts = [HEAD, f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="12" fill="none" stroke="#bbb"/>']
    ends = [mode for mode in PLACES if all(source is not mode for source, _ in moves)]
    lives = [mode for mode in PLACES if mode not in ends]
    arrows: dict[tuple[Mode, Mode], list[str]] = defaultdict(list)
    for (source, cause), target in moves.items():
        arrows[source, target].append(cause)
    for end in ends:
        # What leads there from everywhere is one arrow from the frame.
        causes = {cause for (_, cause), target in moves.items() if target is end}
        for cause in sorted(causes):
            if all(moves.get((mode, cause)) is end for mode in lives):
                for mode in lives:
                    arrows[mode, end].remove(cause)
                named = ",".join(sorted(f"{mode.value} {cause} {end.value}" for mode in lives))
                x, y = PLACES[end]
                parts += _arrow((x, top + height), (x, y - BOX[1] / 2), (x + 8, y - 36), "start", [cause], named)
    for (source, target), causes in arrows.items():
        if causes:
            named = ",".join(f"{source.value} {cause} {target.value}" for cause in causes)
            start, stop, middle, anchor = _between(PLACES[source], PLACES[target], (target, source) in arrows)
            parts += _arrow(start, stop, middle, anchor, causes, named)
    for mode, (x, y) in PLACES.items():
        fill = "#eee" if mode in ends else "#e6f0fa"
        parts.append(
            f'<rect x="{x - BOX[0] / 2}" y="{y - BOX[1] / 2}" width="{BOX[0]}" height="{BOX[1]}" rx="8"'
            f' fill="{fill}" stroke="#444"/><text x="{x}" y="{y + 5}" text-anchor="middle"'
            f' font-weight="bold">{escape(mode.value)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


Point = tuple[float, float]


def _between(source: Point, target: Point, both_ways: bool) -> tuple[Point, Point, Point, str]:
    """Return where an arrow begins and ends, and where and how its text stands, which is to the right of it."""
    length = hypot(target[0] - source[0], target[1] - source[1])
    x, y = (target[0] - source[0]) / length, (target[1] - source[1]) / length
    aside = APART if both_ways else 0
    shift = (-y * aside, x * aside)
    start, stop = (
        (middle[0] + shift[0] + sign * x * reach, middle[1] + shift[1] + sign * y * reach)
        for middle, sign in ((source, 1), (target, -1))
        for reach in [min(BOX[0] / 2 / abs(x) if x else 1e9, BOX[1] / 2 / abs(y) if y else 1e9)]
    )
    at = ((start[0] + stop[0]) / 2 - y * 10, (start[1] + stop[1]) / 2 + x * 14 + 4)
    anchor = "middle" if abs(y) < 0.1 else "start" if -y > 0 else "end"
    return start, stop, at, anchor


def _arrow(start: Point, stop: Point, at: Point, anchor: str, causes: list[str], named: str) -> Iterator[str]:
    yield (
        f'<line x1="{start[0]:.0f}" y1="{start[1]:.0f}" x2="{stop[0]:.0f}" y2="{stop[1]:.0f}" stroke="#444"'
        f' stroke-width="1.5" marker-end="url(#tip)" data-moves="{escape(named)}"/>'
    )
    words = ", ".join(cause.replace("_", " ") for cause in causes)
    yield f'<text x="{at[0]:.0f}" y="{at[1]:.0f}" text-anchor="{anchor}" fill="#444">{escape(words)}</text>'


def write() -> None:
    """Put what has changed in its place."""
    drawn = draw_modes()
    if not MODES.exists() or MODES.read_text(encoding="utf-8") != drawn:
        MODES.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    write()
