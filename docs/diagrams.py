"""Draws the diagrams of the pages from the code, without any package for it; ``make docs`` calls this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from html import escape
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

from fyrehose_twisted.freenet.node.stream import TRANSITIONS, StreamPhase
from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node import roles
from fyrehose_twisted.parcels.node import modes
from fyrehose_twisted.parcels.wire.messages import Mode

MODES = Path(__file__).with_name("modes.svg")
ROLES = Path(__file__).with_name("roles.svg")
PHASES = Path(__file__).with_name("phases.svg")

Point = tuple[float, float]
Moves = Mapping[tuple[Any, str], Any]

BOX = (116, 38)
APART = 9
"""Half of the distance between two arrows that lead to and fro."""


class Frame(NamedTuple):
    """Drawn around states; what leads from all of them to one state is one arrow from the frame."""

    left: float
    top: float
    width: float
    height: float
    states: tuple[Enum, ...]


class Drawing(NamedTuple):
    """How states and moves are drawn.

    :ivar places: middles of the boxes.
    :ivar frames: outer ones first.
    """

    title: str
    size: tuple[int, int]
    places: Mapping[Any, Point]
    frames: tuple[Frame, ...]


OF_MODES = Drawing(
    "Modes of a node, and what leads from one to another",
    (760, 470),
    {
        Mode.DSC: (110, 70),
        Mode.WRK: (600, 70),
        Mode.SEQ_RECOVERY: (230, 190),
        Mode.ERR: (600, 310),
        Mode.SHUTDOWN: (230, 430),
        Mode.PANIC: (530, 430),
    },
    (Frame(16, 16, 728, 344, (Mode.DSC, Mode.WRK, Mode.SEQ_RECOVERY, Mode.ERR)),),
)
_MEMBERS = (Role.COHORT, Role.VOTER, Role.NOMINEE, Role.LEADER)
OF_ROLES = Drawing(
    "Roles of a node, and what leads from one to another",
    (760, 470),
    {
        Role.OUTSIDER: (100, 190),
        Role.COHORT: (360, 110),
        Role.VOTER: (610, 110),
        Role.LEADER: (360, 270),
        Role.NOMINEE: (610, 270),
        Role.GONE: (380, 430),
    },
    (Frame(16, 16, 728, 344, (Role.OUTSIDER, *_MEMBERS)), Frame(240, 36, 488, 304, _MEMBERS)),
)

OF_PHASES = Drawing(
    "Phases of a stream at a node, and what leads from one to another",
    (640, 200),
    {StreamPhase.SEARCHING: (90, 60), StreamPhase.SETTLED: (330, 60), StreamPhase.RESTARTING: (330, 165)},
    (),
)
_PHASES = {(phase, change.name.lower()): following for (phase, change), following in TRANSITIONS.items()}


def draw_modes(moves: Moves = modes.TRANSITIONS) -> str:
    """Return the modes of a parcels node, and all moves between them, as SVG; see :func:`draw`."""
    return draw(OF_MODES, moves)


def draw_roles(moves: Moves = roles.TRANSITIONS) -> str:
    """Return the roles of a hydra node, and all moves between them, as SVG; see :func:`draw`."""
    return draw(OF_ROLES, moves)


def draw_phases(moves: Moves = _PHASES) -> str:
    """Return the phases of a stream of a freenet node, and all moves between them, as SVG; see :func:`draw`."""
    return draw(OF_PHASES, moves)


def draw(drawing: Drawing, moves: Moves) -> str:
    """Return states and moves between them as SVG.

    Each arrow names its moves in ``data-moves``: from, why and to, with blanks between them and commas between moves.
    """
    parts = [_head(drawing)]
    for frame in drawing.frames:
        parts.append(
            f'<rect x="{frame.left}" y="{frame.top}" width="{frame.width}" height="{frame.height}" rx="12"'
            ' fill="none" stroke="#bbb"/>'
        )
    arrows: dict[tuple[Any, Any], list[str]] = defaultdict(list)
    for (source, cause), target in moves.items():
        arrows[source, target].append(cause)
    for frame in drawing.frames:
        for target in drawing.places:
            common = sorted(set.intersection(*(set(arrows[state, target]) for state in frame.states)))
            for cause in common:
                for state in frame.states:
                    arrows[state, target].remove(cause)
                named = ",".join(sorted(_name(state, cause, target) for state in frame.states))
                parts += _arrow(*_from_frame(frame, drawing.places[target]), [cause], named)
    for (source, target), causes in arrows.items():
        if causes:
            named = ",".join(_name(source, cause, target) for cause in causes)
            where = _between(drawing.places[source], drawing.places[target], bool(arrows.get((target, source))))
            parts += _arrow(*where, causes, named)
    ends = {state for state in drawing.places if all(source is not state for source, _ in moves)}
    parts += _boxes(drawing.places, ends)
    return "\n".join([*parts, "</svg>", ""])


def _head(drawing: Drawing) -> str:
    width, height = drawing.size
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"
 font-family="sans-serif" font-size="14" role="img" aria-label="{escape(drawing.title)}">
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 10 5 0 10z" fill="#444"/></marker></defs>
<rect width="{width}" height="{height}" rx="6" fill="#fff"/>"""


def _boxes(places: Mapping[Any, Point], ends: Iterable[Any]) -> Iterator[str]:
    for state, (x, y) in places.items():
        fill = "#eee" if state in ends else "#e6f0fa"
        yield (
            f'<rect x="{x - BOX[0] / 2}" y="{y - BOX[1] / 2}" width="{BOX[0]}" height="{BOX[1]}" rx="8"'
            f' fill="{fill}" stroke="#444"/><text x="{x}" y="{y + 5}" text-anchor="middle"'
            f' font-weight="bold">{escape(state.value)}</text>'
        )


def _name(source: Any, cause: str, target: Any) -> str:
    return f"{source.value} {cause} {target.value}"


def _from_frame(frame: Frame, place: Point) -> tuple[Point, Point, Point, str]:
    """The same as :func:`_between`, from the side of a frame that is nearest to a box, inside or outside."""
    x, y = place
    right, bottom = frame.left + frame.width, frame.top + frame.height
    sides = [(x, frame.top), (x, bottom)] if frame.left < x < right else []
    sides += [(frame.left, y), (right, y)] if frame.top < y < bottom else []
    start = min(sides, key=lambda side: hypot(side[0] - x, side[1] - y))
    if start[0] == x:
        stop = (x, y - BOX[1] / 2 if start[1] < y else y + BOX[1] / 2)
        return start, stop, (x + 8, (start[1] + stop[1]) / 2 + 8), "start"
    stop = (x - BOX[0] / 2 if start[0] < x else x + BOX[0] / 2, y)
    return start, stop, ((start[0] + stop[0]) / 2, y - 8), "middle"


def _between(source: Point, target: Point, both_ways: bool) -> tuple[Point, Point, Point, str]:
    """Return where an arrow begins and ends, and where and how its text stands, which is to the right of it."""
    if source == target:
        x, y = source[0] + BOX[0] / 2, source[1]
        return (x + 24, y), (x, y), (x + 28, y + 5), "start"
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
    for path, drawn in ((MODES, draw_modes()), (ROLES, draw_roles()), (PHASES, draw_phases())):
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            path.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    write()
