"""The maps on the page about the architecture are those of the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "architecture.md"
KINDS = "layers", "rooms", "services", "message"

each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def maps() -> Iterator[Any]:
    """``docs/maps.py``, which is in no package, as ``docs/conf.py`` gets it."""
    sys.path.insert(0, str(DOCS))
    yield import_module("maps")
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def drawings(maps: Any) -> dict[str, str]:
    return {kind: getattr(maps, f"draw_{kind}")() for kind in KINDS}


def named(svg: str) -> list[str]:
    boxes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    return [box.attrib["data-name"] for box in boxes if "data-name" in box.attrib]


def fills(svg: str) -> dict[str, str]:
    boxes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    return {box.attrib["data-name"]: box.attrib["fill"] for box in boxes if "data-name" in box.attrib}


@each
def test_file_is_what_the_code_draws(maps: Any, drawings: dict[str, str], kind: str) -> None:
    path: Path = getattr(maps, kind.upper())
    assert path.read_text(encoding="utf-8") == drawings[kind], "make docs draws it anew"


@each
def test_page_uses_the_map(kind: str) -> None:
    assert re.search(rf"!\[[^\]]+\]\({kind}\.svg\)", PAGE.read_text(encoding="utf-8"))


@each
def test_everything_is_on_the_sheet(drawings: dict[str, str], kind: str) -> None:
    root = ElementTree.fromstring(drawings[kind])
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        at = box.attrib
        assert float(at.get("x", 0)) + float(at["width"]) <= width
        assert float(at.get("y", 0)) + float(at["height"]) <= height


def test_layers_are_those_of_the_contract(maps: Any, drawings: dict[str, str]) -> None:
    layers = maps.read_contract("house").layers
    assert named(drawings["layers"]) == [name for layer in layers for name in layer]
    planted = [*layers[:-1], [*layers[-1], "planted"]]
    assert named(maps.draw_layers(maps.Contract(planted, [])))[-1] == "planted"


def test_every_part_of_the_package_is_in_a_layer(drawings: dict[str, str]) -> None:
    package = DOCS.parent / "src" / "fyrehose_twisted"
    there = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__"} <= set(named(drawings["layers"]))


def test_rooms_show_who_does_io(maps: Any, drawings: dict[str, str]) -> None:
    coloured = fills(drawings["rooms"])
    assert {coloured[name] for name in ("tap", "service", "protocol", "state")} == {maps.SHELL}
    assert {coloured[name] for name in ("backbone", "client", "codec", "messages", "scenarios")} == {maps.PURE}
    everybody = maps.Contract([["tap", "client"]], ["fyrehose_twisted.*.client"])
    assert fills(maps.draw_rooms(everybody)) == {"tap": maps.PURE, "client": maps.SHELL}


def test_every_service_is_drawn(maps: Any, drawings: dict[str, str]) -> None:
    plugins = (DOCS.parent / "src/twisted/plugins/fyrehose_twisted_plugins.py").read_text(encoding="utf-8")
    assert named(drawings["services"]) == re.findall(r'^    "([a-z]+-[a-z]+)",$', plugins, re.MULTILINE)
    for told in ("UDP, --port [2323]", "its backbone, --backbone [2323]", "nodes, --listen [7878]"):
        assert told in drawings["services"]


ELSEWHERE = {"advertise", "dial"}
"""Options that name an address and neither open a port nor say whom to talk to."""


def test_no_way_in_or_out_is_left_out(maps: Any) -> None:
    known = {*maps.LISTENS, *maps.DIALS, *ELSEWHERE}
    for service in maps.read_services():
        named = {name for name, told in service.told.items() if re.search(r"\bendpoint\b|HOST:PORT", told)}
        assert named - known == set(), f"{service.name}: give them a place in docs/maps.py"


def test_path_goes_from_publisher_to_journal_and_back(maps: Any) -> None:
    turns = maps.follow()
    assert [turn.process for turn in turns] == ["publisher", "backbone", "journal", "publisher"]
    sent, numbered, kept, told = [list(turn.modules) for turn in turns]
    assert sent.index("fyrehose.client") < sent.index("fyrehose.codec") < sent.index("net.udp")
    assert numbered.index("net.udp") < numbered.index("fyrehose.backbone") < numbered.index("fyrehose.numbering")
    assert kept.index("fyrehose.client") < kept.index("journal.store") < kept.index("journal.disk")
    assert told.index("net.udp") < told.index("fyrehose.outbox") < told.index("fyrehose.protocol")
