"""Draws the maps of the architecture page: layers, rooms, services, and the path of a message.

All of them are made from what the project says of itself: the contracts of import-linter in ``setup.cfg``, the plugins
of twistd and their options, and a run that is followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from fnmatch import fnmatchcase
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from message_path import Turn, follow
from twisted.plugins import fyrehose_twisted_plugins as plugins

HERE = Path(__file__).parent
LAYERS, ROOMS, SERVICES, MESSAGE = (HERE / f"{name}.svg" for name in ("layers", "rooms", "services", "message"))

PACKAGE, WING = "fyrehose_twisted", "fyrehose"
WIDTH = 760
PURE, SHELL, MARGIN = "#e6f0fa", "#fdf0d5", 16
HEIGHT, GAP = 26, 6
"""Of a box, and between boxes, in pixels."""


class Contract(NamedTuple):
    """What ``setup.cfg`` says of a package.

    :ivar layers: from the top; each may import what is below it.
    :ivar shells: patterns of modules that may do I/O, with their package.
    """

    layers: list[list[str]]
    shells: list[str]


def read_contract(name: str, settings: Path = HERE.parent / "setup.cfg") -> Contract:
    """Return the contract of that name. :raises KeyError: if there is none."""
    parser = ConfigParser(interpolation=None)
    parser.read(settings, encoding="utf-8")
    layers = [
        re.findall(r"\w+", line) for line in parser[f"importlinter:contract:{name}"]["layers"].split("\n") if line
    ]
    ignored = parser["importlinter:contract:pure"]["ignore_imports"].split("\n")
    return Contract(layers, [line.partition(" -> ")[0] for line in ignored if line.endswith("-> **")])


class Sheet:
    """An SVG that grows downwards."""

    def __init__(self, title: str, width: int = WIDTH) -> None:
        self.title, self.width, self.bottom = title, width, MARGIN
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, text: str, fill: str, data: str = "") -> None:
        """Draw a box with text in its middle; ``data`` names it for tests."""
        self._parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="5" fill="{fill}" stroke="#444"'
            f"{f' data-name={data!r}' if data else ''}/>".replace("'", '"')
        )
        self.text(x + width / 2, y + 17, text, anchor="middle")

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, colour: str = "#222"
    ) -> None:
        """Write a line."""
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw an arrow."""
        self._parts.append(
            f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}" stroke="#444" stroke-width="1.5"'
            ' marker-end="url(#tip)"/>'
        )

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a frame around what belongs together."""
        self._parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="8" fill="none"'
            ' stroke="#bbb"/>'
        )

    def flow(self, texts: Sequence[tuple[str, str, str]], left: float, right: float) -> None:
        """Draw boxes from left to right, in as many rows as they need: text, colour and name of each."""
        x = left
        for text, fill, name in texts:
            width = 14 + 7.2 * len(text)
            if x > left and x + width > right:
                x, self.bottom = left, self.bottom + HEIGHT + GAP
            self.box(x, self.bottom, width, text, fill, name)
            x += width + GAP
        self.bottom += HEIGHT + GAP

    def render(self) -> str:
        """Return it; the ground is white, so that it can be read on pages of any colour."""
        height = self.bottom + MARGIN - GAP
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" width="{self.width}"'
                f' height="{height}" font-family="sans-serif" font-size="13" role="img"'
                f' aria-label="{escape(self.title)}">',
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
                ' orient="auto"><path d="M0 0 10 5 0 10z" fill="#444"/></marker></defs>',
                f'<rect width="{self.width}" height="{height}" rx="6" fill="#fff"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )


def _is_shell(module: str, shells: Iterable[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in shells)


def draw_layers(contract: Contract | None = None) -> str:
    """Return the layers of the house: what stands above may import what stands below."""
    layers = (contract or read_contract("house")).layers
    sheet = Sheet("Layers of the package: whatever stands above may import what stands below")
    wings = next(number for number, layer in enumerate(layers) if WING in layer)
    for number, layer in enumerate(layers):
        top, last = sheet.bottom, number == len(layers) - 1
        sheet.bottom += 10
        title = {0: "entrances", wings: "wings", len(layers) - 1: "what they share"}.get(number, "")
        sheet.text(MARGIN + 10, sheet.bottom + 17, title, colour="#444")
        sheet.flow([(name, PURE if number == wings else "#eee", name) for name in layer], 150, WIDTH - MARGIN - 10)
        sheet.frame(MARGIN, top, WIDTH - 2 * MARGIN, sheet.bottom - top + 4)
        sheet.bottom += 4
        if not last:
            sheet.line(WIDTH / 2, sheet.bottom + 1, WIDTH / 2, sheet.bottom + 19)
            sheet.bottom += 20
    return sheet.render()


def draw_rooms(contract: Contract | None = None, wing: str = WING) -> str:
    """Return the rooms of a wing, those that do I/O in another colour."""
    layers, shells = contract or read_contract(f"{wing}-rooms")
    sheet = Sheet(f"Rooms of the {wing} wing: whatever stands above may import what stands below")
    sheet.flow([("does I/O, with Twisted or files", SHELL, ""), ("pure: no I/O, no clock", PURE, "")], MARGIN, WIDTH)
    sheet.bottom += 8
    for layer in layers:
        rooms = [(name, _is_shell(f"{PACKAGE}.{wing}.{name}", shells)) for name in layer]
        sheet.flow([(name, SHELL if shell else PURE, name) for name, shell in rooms], MARGIN, WIDTH - MARGIN)
    return sheet.render()


LISTENS = {
    "port": "UDP",
    "listen": "nodes",
    "udp-listen": "nodes over UDP",
    "http": "HTTP",
    "lines": "lines over TCP",
    "serve": "readers of frames",
    "control": "commands",
    "metrics": "Prometheus",
}
"""Options by which a service opens a port, and for whom."""
DIALS = {
    "backbone": "its backbone",
    "neighbour": "other nodes",
    "link": "other nodes",
    "peer": "other nodes",
    "irc": "IRC",
}
"""Options that name whom a service talks to."""
KEEPS = {"state": "state", "journal": "journal", "directory": "journal"}
"""Options that name where on disk a service keeps what."""


class Service(NamedTuple):
    """A service of twistd.

    :ivar options: the default of each, or ``None``.
    :ivar told: what the help says of each.
    """

    name: str
    options: dict[str, Any]
    told: dict[str, str]


def read_services() -> list[Service]:
    """Return the services that are plugged in, in their order in the file."""
    services = []
    for maker in vars(plugins).values():
        if type(maker).__name__ == "ServiceMaker":
            options = import_module(maker.module).Options()
            names = [name.rstrip("=") for name in options.longOpt]
            told = {name: options.docs.get(name) or "" for name in names}
            services.append(Service(maker.tapname, {name: options.get(name) for name in names}, told))
    return services


def draw_services(services: Sequence[Service] | None = None) -> str:
    """Return each service with what it listens on, whom it talks to, and what it keeps."""
    sheet = Sheet("Services of twistd: who comes in, whom they talk to, what they keep")
    left, middle, right = MARGIN, 300, 480
    for x, text in ((left, "comes in"), (middle, "twistd ..."), (right + 50, "goes out, and is kept")):
        sheet.text(x, sheet.bottom + 12, text, bold=True)
    sheet.bottom += 24
    for service in read_services() if services is None else services:
        ins = [_endpoint(service, name, who) for name, who in LISTENS.items() if name in service.options]
        outs = [_endpoint(service, name, who) for name, who in DIALS.items() if name in service.options]
        outs += [f"{what} on disk, --{name}" for name, what in KEEPS.items() if name in service.options]
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


def _endpoint(service: Service, name: str, who: str) -> str:
    default = service.options[name]
    port = re.search(r"(?:^|:)(\d+)(?=:|$)", str(default)) if default else None
    return f"{who}, --{name}" + (f" [{port[1]}]" if port else "")


def draw_message(turns: Sequence[Turn] | None = None) -> str:
    """Return which modules a message passes on its way into a journal and back to its publisher, column by column."""
    turns = follow() if turns is None else turns
    shells = read_contract("fyrehose-rooms").shells
    longest = max(len(module) for turn in turns for module in turn.modules)
    column = 7 * longest + 26
    sheet = Sheet("The path of a message through the modules", 2 * MARGIN + column * len(turns) - 12)
    top, lowest = sheet.bottom, 0
    for number, turn in enumerate(turns):
        x = MARGIN + number * column
        sheet.text(x, top + 12, turn.process, bold=True)
        sheet.text(x, top + 30, turn.what)
        for place, module in enumerate(turn.modules):
            y = top + 42 + place * (HEIGHT + GAP)
            outside = not module.startswith("fyrehose.") or _is_shell(f"{PACKAGE}.{module}", shells)
            fill = SHELL if outside and module != "ranges" else PURE
            sheet.box(x, y, column - 24, module, fill, f"{number}:{module}")
            lowest = max(lowest, y + HEIGHT + GAP)
    sheet.bottom = lowest + 10
    sheet.flow([("around the node", SHELL, ""), ("the node: no I/O, no clock", PURE, "")], MARGIN, sheet.width)
    return sheet.render()


def write() -> None:
    """Put what has changed in its place."""
    drawings = (LAYERS, draw_layers()), (ROOMS, draw_rooms()), (SERVICES, draw_services()), (MESSAGE, draw_message())
    for path, drawn in drawings:
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            path.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    write()
