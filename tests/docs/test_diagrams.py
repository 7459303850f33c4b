"""The diagrams of the pages match the transition tables of the code."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from fyrehose_twisted.freenet.node.stream import TRANSITIONS, StreamPhase
from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node import roles
from fyrehose_twisted.parcels.node import modes
from fyrehose_twisted.parcels.wire.messages import Mode

DOCS = Path(__file__).resolve().parents[2] / "docs"

PHASES = {(phase, change.name.lower()): following for (phase, change), following in TRANSITIONS.items()}
PLANTED: dict[str, tuple[dict[Any, Any], tuple[Any, str], tuple[Any, str], Any]] = {
    "modes": (modes.TRANSITIONS, (Mode.ERR, "broke"), (Mode.WRK, "answered"), Mode.DSC),
    "roles": (roles.TRANSITIONS, (Role.VOTER, "led"), (Role.OUTSIDER, "pledged"), Role.GONE),
    "phases": (PHASES, (StreamPhase.RESTARTING, "found"), (StreamPhase.RESTARTING, "torn_down"), StreamPhase.SEARCHING),
}
"""By drawing: the transition table, one transition to omit and one to add."""

each = pytest.mark.parametrize("kind", PLANTED)


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    """Import ``docs/diagrams.py``, which belongs to no package."""
    spec = spec_from_file_location("diagrams", DOCS / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(diagrams: ModuleType, kind: str, *moves: Any) -> str:
    svg: str = getattr(diagrams, f"draw_{kind}")(*moves)
    return svg


def drawn(svg: str) -> list[tuple[str, str, str]]:
    moves = []
    for line in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}line"):
        for move in line.attrib["data-moves"].split(","):
            source, cause, target = move.split(" ")
            moves.append((source, cause, target))
    return sorted(moves)


def named(moves: dict[Any, Any]) -> list[tuple[str, str, str]]:
    return sorted((source.value, cause, target.value) for (source, cause), target in moves.items())


@each
def test_state_diagram_has_every_transition_exactly_once(diagrams: ModuleType, kind: str) -> None:
    assert drawn(draw(diagrams, kind)) == named(PLANTED[kind][0])


@each
def test_state_diagram_changes_with_the_transition_table(diagrams: ModuleType, kind: str) -> None:
    original, less, more, target = PLANTED[kind]
    assert less in original
    moves = {key: value for key, value in original.items() if key != less} | {more: target}
    assert drawn(draw(diagrams, kind, moves)) == named(moves)


@each
def test_state_diagram_names_every_cause(diagrams: ModuleType, kind: str) -> None:
    texts = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", draw(diagrams, kind)))
    assert {cause for _, cause in PLANTED[kind][0] if cause.replace("_", " ") not in texts} == set()


@each
def test_state_diagram_on_disk_is_up_to_date(diagrams: ModuleType, kind: str) -> None:
    path = getattr(diagrams, kind.upper())
    assert path.read_text(encoding="utf-8") == draw(diagrams, kind), "run make docs to redraw it"


@pytest.mark.parametrize(
    ("kind", "name"), [("modes", "one-order.md"), ("roles", "one-leader.md"), ("phases", "protocol/freenet.md")]
)
def test_documentation_page_shows_its_state_diagram(diagrams: ModuleType, kind: str, name: str) -> None:
    assert f"{getattr(diagrams, kind.upper()).name})" in (DOCS / name).read_text(encoding="utf-8")


def ways_to(moves: dict[Any, Any], first: Any) -> dict[Any, list[str]]:
    """Return a path of causes from ``first`` to every state."""
    states: Any = type(first)
    ways: dict[Any, list[str]] = {first: []}
    for _ in states:
        for (source, cause), target in moves.items():
            if source in ways:
                ways.setdefault(target, [*ways[source], cause])
    assert set(ways) == set(states)
    return ways


def test_mode_machine_follows_its_documented_table() -> None:
    for mode, way in ways_to(modes.TRANSITIONS, Mode.DSC).items():
        for cause in [name for name in vars(modes.ModeInputs) if not name.startswith("_")]:
            machine = modes.ModeMachine()
            for step in way:
                machine.fire(step, "", 0.0)
            assert machine.mode is mode
            machine.fire(cause, "", 0.0)
            assert machine.mode is modes.TRANSITIONS.get((mode, cause), mode), (mode, cause)


def test_role_machine_follows_its_documented_table() -> None:
    for role, way in ways_to(roles.TRANSITIONS, Role.OUTSIDER).items():
        for cause in [name for name in vars(roles.RoleInputs) if not name.startswith("_")]:
            machine = roles.RoleMachine()
            for step in way:
                machine.apply(step, "")
            assert machine.role is role
            assert machine.apply(cause, "") == (roles.TRANSITIONS.get((role, cause), role) is not role)
            assert machine.role is roles.TRANSITIONS.get((role, cause), role), (role, cause)
