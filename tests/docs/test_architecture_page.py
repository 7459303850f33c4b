"""The maps of the architecture page match the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "architecture.md"
KINDS = "layers", "protocol", "services", "message"

each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def maps() -> Iterator[ModuleType]:
    """Import ``docs/maps.py`` as ``docs/conf.py`` does: it is in no package."""
    sys.path.insert(0, str(DOCS))
    yield import_module("maps")
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def drawings(maps: ModuleType) -> dict[str, str]:
    return {kind: getattr(maps, f"draw_{kind}")() for kind in KINDS}


@pytest.fixture(scope="module")
def turns(maps: ModuleType) -> Any:
    return maps.follow()


def named(svg: str) -> list[str]:
    boxes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    return [box.attrib["data-name"] for box in boxes if "data-name" in box.attrib]


def fills(svg: str) -> dict[str, str]:
    boxes = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")
    return {box.attrib["data-name"]: box.attrib["fill"] for box in boxes if "data-name" in box.attrib}


@each
def test_architecture_map_on_disk_is_up_to_date(maps: ModuleType, drawings: dict[str, str], kind: str) -> None:
    path: Path = getattr(maps, kind.upper())
    assert path.read_text(encoding="utf-8") == drawings[kind], "run make docs to redraw it"


@each
def test_architecture_page_shows_the_map(kind: str) -> None:
    assert re.search(rf"!\[[^\]]+\]\({kind}\.svg\)", PAGE.read_text(encoding="utf-8"))


@each
def test_every_box_is_inside_the_architecture_map(drawings: dict[str, str], kind: str) -> None:
    root = ElementTree.fromstring(drawings[kind])
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(box.attrib.get("x", 0)) + float(box.attrib["width"]) <= width
        assert float(box.attrib.get("y", 0)) + float(box.attrib["height"]) <= height


def existing(directory: Path) -> set[str]:
    """Return the names of the modules and packages in a directory, without private ones."""
    paths = (path for path in directory.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    return {path.stem for path in paths if not path.stem.startswith("_")}


def test_layers_are_drawn_in_the_order_of_the_import_contract(maps: ModuleType, drawings: dict[str, str]) -> None:
    layers = maps.read_contract("packages").layers
    drawn = named(drawings["layers"])
    assert drawn == [name for layer in layers for name in layer if name in drawn]


def test_layers_omit_missing_modules(maps: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    contract = maps.Contract([["missing", "package"], ["absent"], ["there"]], [])
    assert named(maps.draw_layers(contract, tmp_path)) == ["package", "there"]


def test_every_module_of_the_package_is_in_a_layer(maps: ModuleType, drawings: dict[str, str]) -> None:
    assert existing(maps.SOURCE) == set(named(drawings["layers"]))


def test_every_module_of_the_protocol_is_drawn(maps: ModuleType, drawings: dict[str, str]) -> None:
    drawn = named(drawings["protocol"])
    protocol = maps.SOURCE / maps.EXAMPLE
    assert existing(protocol) == {name.partition(".")[0] for name in drawn}
    for layer in existing(protocol):
        if (protocol / layer).is_dir():
            modules = existing(protocol / layer)
            assert {name for name in drawn if name.startswith(f"{layer}.")} == {f"{layer}.{name}" for name in modules}


def test_protocol_map_colours_modules_that_do_io(maps: ModuleType, drawings: dict[str, str]) -> None:
    colours = fills(drawings["protocol"])
    for names, colour in (
        (("service.backbone_tap", "service.metrics", "protocol.journal", "frontend.service"), maps.SHELL),
        (("node.backbone", "node.client", "wire.codec", "config", "simulation.scenarios"), maps.PURE),
    ):
        assert {colours[name] for name in names} == {colour}
    planted = maps.Contract([["config", "events"]], ["fyrehose_twisted.*.events"])
    assert fills(maps.draw_protocol(planted)) == {"config": maps.SHELL, "events": maps.PURE}


@pytest.mark.parametrize(
    ("module", "pattern", "pure"),
    [
        ("package.a.wire", "package.*.wire", True),
        ("package.a.wire.codec", "package.*.wire", True),
        ("package.a.b.wire", "package.*.wire", False),
        ("package.a", "package.a.b", False),
        ("package.ab", "package.a", False),
    ],
)
def test_module_pattern_covers_submodules_of_its_matches(
    maps: ModuleType, module: str, pattern: str, pure: bool
) -> None:
    assert maps._is_pure(module, [pattern]) is pure


def test_every_service_is_drawn(maps: ModuleType, drawings: dict[str, str]) -> None:
    plugins = (DOCS.parent / "src/twisted/plugins/fyrehose_twisted_plugins.py").read_text(encoding="utf-8")
    assert named(drawings["services"]) == re.findall(r'^    "([a-z]+-[a-z]+)",$', plugins, re.MULTILINE)
    for text in ("UDP, --port [2323]", "its backbone, --backbone [2323]", "nodes, --listen [7878]"):
        assert text in drawings["services"]


ELSEWHERE = {"advertise", "dial"}
"""Options that name an address, but neither open a port nor name a peer."""


def test_every_option_that_takes_an_endpoint_is_drawn(maps: ModuleType) -> None:
    known = {*maps.LISTENS, *maps.DIALS, *ELSEWHERE}
    for service in maps.read_services():
        options = {name for name, text in service.help.items() if re.search(r"\bendpoint\b|HOST:PORT", text)}
        assert options - known == set(), f"{service.name}: add them to LISTENS or DIALS in docs/maps.py"


@pytest.mark.parametrize(
    ("turn", "process", "modules"),
    [
        (0, "publisher", ["fyrehose.node.client.client", "fyrehose.wire.codec", "net.udp"]),
        (1, "backbone", ["net.udp", "fyrehose.node.backbone.backbone", "fyrehose.node.backbone.sequencer"]),
        (2, "journal", ["fyrehose.node.client.client", "journal.store", "journal.format.disk"]),
        (3, "publisher", ["net.udp", "fyrehose.node.client.publishing.send_queue", "fyrehose.protocol.publisher"]),
    ],
)
def test_message_path_passes_the_modules_in_order(turns: Any, turn: int, process: str, modules: list[str]) -> None:
    assert turns[turn].process == process
    assert [name for name in turns[turn].modules if name in modules] == modules


def test_message_path_ends_at_the_publisher(turns: Any) -> None:
    assert [turn.process for turn in turns] == ["publisher", "backbone", "journal", "publisher"]
