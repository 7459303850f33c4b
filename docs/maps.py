"""Maps of the architecture page: layers, services, and the path of a message.

They are drawn from the import-linter contracts in ``setup.cfg``, the options of the twistd plugins, and a traced run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from message_path import Turn, follow
from sheet import GAP, HEIGHT, MARGIN, WIDTH, Sheet
from twisted.plugins import fyrehose_twisted_plugins as plugins

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "fyrehose_twisted"
LAYERS, PROTOCOL, SERVICES, MESSAGE = (HERE / f"{name}.svg" for name in ("layers", "protocol", "services", "message"))

PACKAGE, EXAMPLE = "fyrehose_twisted", "fyrehose"
"""The package, and the protocol whose layers are drawn."""
PURE, SHELL = "#e6f0fa", "#fdf0d5"


class Contract(NamedTuple):
    """A layers contract of ``setup.cfg``.

    :ivar layers: from the top; a layer may import the layers below it.
    :ivar pure: patterns of modules that do no I/O; a pattern covers the modules inside what it matches.
    """

    layers: list[list[str]]
    pure: list[str]


def read_contract(name: str, settings: Path = HERE.parent / "setup.cfg") -> Contract:
    """Read a contract by name.

    :raises KeyError: if ``settings`` has no contract of that name.
    """
    parser = ConfigParser(interpolation=None)
    parser.read(settings, encoding="utf-8")
    layers = parser[f"importlinter:contract:{name}"]["layers"].split("\n")
    pure = parser["importlinter:contract:pure"]["source_modules"].split("\n")
    return Contract([re.findall(r"\w+", line) for line in layers if line], [line for line in pure if line])


def _is_pure(module: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches the module or a package that contains it; ``*`` stands for one name."""
    names = module.split(".")
    for pattern in patterns:
        parts = pattern.split(".")
        if len(parts) <= len(names) and all(map(fnmatchcase, names, parts)):
            return True
    return False


def _modules_in(directory: Path) -> list[str]:
    """Return the names of the modules and packages in a directory, sorted, without private ones."""
    return sorted(
        path.stem
        for path in directory.iterdir()
        if (path.suffix == ".py" and not path.stem.startswith("_")) or (path / "__init__.py").exists()
    )


def draw_layers(contract: Contract | None = None, source: Path = SOURCE) -> str:
    """Return the layers of the package, with the modules and packages that exist below ``source``."""
    existing = _modules_in(source)
    layers = [[name for name in layer if name in existing] for layer in (contract or read_contract("packages")).layers]
    layers = [layer for layer in layers if layer]
    sheet = Sheet("Layers of the package: each layer may import the layers below it")
    protocols = next((number for number, layer in enumerate(layers) if EXAMPLE in layer), -1)
    for number, layer in enumerate(layers):
        top, last = sheet.bottom, number == len(layers) - 1
        sheet.bottom += 10
        title = {0: "command line", protocols: "protocols", len(layers) - 1: "shared"}.get(number, "")
        sheet.text(MARGIN + 10, sheet.bottom + 17, title, colour="#444")
        sheet.flow([(name, PURE if number == protocols else "#eee", name) for name in layer], 150, WIDTH - MARGIN - 10)
        sheet.frame(MARGIN, top, WIDTH - 2 * MARGIN, sheet.bottom - top + 4)
        sheet.bottom += 4
        if not last:
            sheet.line(WIDTH / 2, sheet.bottom + 1, WIDTH / 2, sheet.bottom + 19)
            sheet.bottom += 20
    return sheet.render()


def draw_protocol(contract: Contract | None = None, protocol: str = EXAMPLE, source: Path = SOURCE) -> str:
    """Return the layers of a protocol with their modules; modules that do I/O have a colour of their own."""
    layers, pure = contract or read_contract("protocols")
    directory = source / protocol
    sheet = Sheet(f"Layers of the {protocol} protocol: each layer may import the layers below it")
    sheet.flow([("does I/O", SHELL, ""), ("pure: no I/O, no clock", PURE, "")], MARGIN, WIDTH)
    sheet.bottom += 8
    for name in (name for layer in layers for name in layer):
        if (directory / name / "__init__.py").exists():
            modules = [f"{name}.{module}" for module in _modules_in(directory / name)]
        elif (directory / f"{name}.py").exists():
            modules = [name]
        else:
            continue
        sheet.text(MARGIN, sheet.bottom + 17, name, bold=True)
        # A package whose code is all in its __init__ has no modules to show.
        boxes = [
            (module.rpartition(".")[2], PURE if _is_pure(f"{PACKAGE}.{protocol}.{module}", pure) else SHELL, module)
            for module in modules or [name]
        ]
        sheet.flow(boxes, 120, WIDTH - MARGIN)
        sheet.bottom += 8
    return sheet.render()


LISTENS = {
    "port": "UDP",
    "listen": "nodes",
    "peer-listen": "other members",
    "udp-listen": "nodes over UDP",
    "http": "HTTP",
    "lines": "lines over TCP",
    "serve": "journal readers",
    "control": "commands",
    "metrics": "Prometheus",
}
"""Clients of a service by the option that opens a port for them."""
DIALS = {
    "backbone": "its backbone",
    "neighbour": "other nodes",
    "link": "other nodes",
    "peer": "other nodes",
    "irc": "IRC",
}
"""Servers and peers that a service connects to, by option."""
KEEPS = {"state": "state", "journal": "journal", "directory": "journal"}
"""Data that a service stores on disk, by the option that names its path."""


class Service(NamedTuple):
    """A twistd service.

    :ivar options: defaults by option; ``None`` for an option without one.
    :ivar help: help texts by option.
    """

    name: str
    options: dict[str, Any]
    help: dict[str, str]


def read_services() -> list[Service]:
    """Return the services of the plugin file, in its order."""
    services = []
    for maker in vars(plugins).values():
        if type(maker).__name__ == "ServiceMaker":
            options = import_module(maker.module).Options()
            names = [name.rstrip("=") for name in options.longOpt]
            texts = {name: options.docs.get(name) or "" for name in names}
            services.append(Service(maker.tapname, {name: options.get(name) for name in names}, texts))
    return services


def draw_services(services: Sequence[Service] | None = None) -> str:
    """Return the services with the ports they open, the peers they connect to, and the data they store."""
    sheet = Sheet("twistd services: ports they open, peers they connect to, data they store")
    left, middle, right = MARGIN, 300, 480
    for x, text in ((left, "accepts"), (middle, "twistd ..."), (right + 50, "connects to, stores")):
        sheet.text(x, sheet.bottom + 12, text, bold=True)
    sheet.bottom += 24
    for service in read_services() if services is None else services:
        ins = [_endpoint(service, name, peers) for name, peers in LISTENS.items() if name in service.options]
        outs = [_endpoint(service, name, peers) for name, peers in DIALS.items() if name in service.options]
        outs += [f"{data} on disk, --{name}" for name, data in KEEPS.items() if name in service.options]
        rows = max(len(ins), len(outs), 1)
        centre = sheet.bottom + 9 * rows
        sheet.box(middle, centre - HEIGHT / 2, right - middle, service.name, PURE, service.name)
        for lines, x, begin, end in ((ins, left, middle - 40, middle), (outs, right + 50, right, right + 40)):
            top = centre - 9 * len(lines)
            for number, text in enumerate(lines):
                y = top + 18 * number + 9
                sheet.text(x, y + 4, text)
                if lines is ins:
                    sheet.line(begin, y, end, centre)
                else:
                    sheet.line(begin, centre, end, y)
        sheet.bottom += 18 * rows + 22
    return sheet.render()


def _endpoint(service: Service, name: str, peers: str) -> str:
    default = service.options[name]
    port = re.search(r"(?:^|:)(\d+)(?=:|$)", str(default)) if default else None
    return f"{peers}, --{name}" + (f" [{port[1]}]" if port else "")


def draw_message(turns: Sequence[Turn] | None = None) -> str:
    """Return the modules that a message passes on its way into a journal and back, with a column for each turn."""
    turns = follow() if turns is None else turns
    pure = read_contract("protocols").pure
    longest = max(len(module) for turn in turns for module in turn.modules)
    column = 7 * longest + 26
    sheet = Sheet("The path of a message through the modules", 2 * MARGIN + column * len(turns) - 12)
    top, lowest = sheet.bottom, 0
    for number, turn in enumerate(turns):
        x = MARGIN + number * column
        sheet.text(x, top + 12, turn.process, bold=True)
        sheet.text(x, top + 30, turn.trigger)
        for place, module in enumerate(turn.modules):
            y = top + 42 + place * (HEIGHT + GAP)
            fill = PURE if _is_pure(f"{PACKAGE}.{module}", pure) else SHELL
            sheet.box(x, y, column - 24, module, fill, f"{number}:{module}")
            lowest = max(lowest, y + HEIGHT + GAP)
    sheet.bottom = lowest + 10
    sheet.flow([("does I/O", SHELL, ""), ("pure: no I/O, no clock", PURE, "")], MARGIN, sheet.width)
    return sheet.render()


def write() -> None:
    """Write the drawings that have changed."""
    drawings = (
        (LAYERS, draw_layers()),
        (PROTOCOL, draw_protocol()),
        (SERVICES, draw_services()),
        (MESSAGE, draw_message()),
    )
    for path, drawn in drawings:
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            path.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    write()
