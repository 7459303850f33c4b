"""What the pages draw is what the code does."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fyrehose_twisted.parcels.messages import Mode
from fyrehose_twisted.parcels.modes import MOVES, Modes, Phases

DOCS = Path(__file__).resolve().parents[2] / "docs"
CAUSES = [name for name in vars(Phases) if not name.startswith("_")]


@pytest.fixture(scope="module")
def diagrams() -> Any:
    """``docs/diagrams.py``, which is in no package."""
    spec = spec_from_file_location("diagrams", DOCS / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(svg: str) -> list[tuple[str, str, str]]:
    moves = []
    for line in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}line"):
        for move in line.attrib["data-moves"].split(","):
            source, cause, target = move.split(" ")
            moves.append((source, cause, target))
    return sorted(moves)


def named(moves: dict[tuple[Mode, str], Mode]) -> list[tuple[str, str, str]]:
    return sorted((source.value, cause, target.value) for (source, cause), target in moves.items())


def test_drawing_has_every_move_once_and_no_other(diagrams: Any) -> None:
    assert drawn(diagrams.draw_modes()) == named(MOVES)


def test_drawing_follows_the_table(diagrams: Any) -> None:
    moves = {key: target for key, target in MOVES.items() if key != (Mode.ERR, "broke")}
    moves[Mode.WRK, "answered"] = Mode.DSC
    assert drawn(diagrams.draw_modes(moves)) == named(moves)


def test_drawing_says_why(diagrams: Any) -> None:
    texts = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", diagrams.draw_modes()))
    assert {cause for _, cause in MOVES if cause.replace("_", " ") not in texts} == set()


def test_file_is_what_the_code_draws(diagrams: Any) -> None:
    assert diagrams.MODES.read_text(encoding="utf-8") == diagrams.draw_modes(), "make docs draws it anew"


def test_page_uses_the_drawing(diagrams: Any) -> None:
    assert f"]({diagrams.MODES.name})" in (DOCS / "one-order.md").read_text(encoding="utf-8")


def test_machine_moves_as_the_table_says() -> None:
    ways: dict[Mode, list[str]] = {Mode.DSC: []}
    for _ in Mode:
        for (source, cause), target in MOVES.items():
            if source in ways:
                ways.setdefault(target, [*ways[source], cause])
    assert set(ways) == set(Mode)
    for mode, way in ways.items():
        for cause in CAUSES:
            modes = Modes()
            for step in way:
                modes.happened(step, "", 0.0)
            assert modes.mode is mode
            modes.happened(cause, "", 0.0)
            assert modes.mode is MOVES.get((mode, cause), mode), (mode, cause)
