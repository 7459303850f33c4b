"""Tables of renamed names for the page on upgrading, collected from the code that still accepts the old ones.

``make docs`` writes them between the marks of the page; ``python docs/renames.py`` does the same.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from twisted.plugins import fyrehose_twisted_plugins as plugins

from fyrehose_twisted import _moved
from fyrehose_twisted.cli import main as command_line

PAGE = Path(__file__).parent / "upgrading.md"
SOURCE = Path(_moved.__file__).parent
PACKAGE = "fyrehose_twisted"


class Renamed(NamedTuple):
    """An old name and the one that replaces it, as a user writes them."""

    where: str
    old: str
    new: str


def modules() -> list[Renamed]:
    """Return modules that have moved, by their paths in the package."""
    return [Renamed("", old, new) for old, new in sorted(_moved.MODULES.items())]


def calls(name: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield the module and the arguments of each call of a function of ``_exports``."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
        if module not in ("_exports", "_moved"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                    yield module, node.args


def names() -> list[Renamed]:
    """Return names that have changed, in modules that moved and in those that stayed."""
    moved = [
        Renamed(_moved.MODULES[module], old, new) for module, each in _moved.NAMES.items() for old, new in each.items()
    ]
    stayed = [
        Renamed(module, old, new)
        for module, arguments in calls("renamed")
        for old, new in ast.literal_eval(arguments[1]).items()
    ]
    return sorted(moved + stayed)


def attributes() -> list[Renamed]:
    """Return attributes that have changed."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found += [
            Renamed(owner, old, new)
            for owner, old, new in re.findall(r'(\w+)\.\w+ = renamed_attribute\("(\w+)", "(\w+)"\)', text)
        ]
    return sorted(found)


def service_options() -> list[Renamed]:
    """Return options and letters of twistd services that have changed."""
    found = []
    for plugin in vars(plugins).values():
        if hasattr(plugin, "tapname"):
            aliases = import_module(plugin.module).Options.aliases
            found += [Renamed(plugin.tapname, spell(old), spell(new)) for old, new in aliases.items()]
    return sorted(found)


def spell(name: str) -> str:
    """Return an option as it is written on the command line."""
    return f"-{name}" if len(name) == 1 else f"--{name}"


def command_options() -> list[Renamed]:
    """Return options and letters of the ``fyrehose`` command that are accepted but not listed in its help."""
    return sorted(set(hidden(command_line._parser(), "fyrehose")))


def hidden(parser: argparse.ArgumentParser, command: str) -> Iterator[Renamed]:
    """Yield the hidden options of a command and of the commands below it."""
    shown = {action.dest: action.option_strings[-1] for action in parser._actions if visible(action)}
    for text, action in parser._option_string_actions.items():
        if action.dest in shown and (not visible(action) or text not in action.option_strings):
            yield Renamed(command, text, shown[action.dest])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from hidden(inner, f"{command} {name}")


def visible(action: argparse.Action) -> bool:
    """Return whether the help of a command lists an option."""
    return bool(action.option_strings) and action.help != argparse.SUPPRESS


def scenarios() -> list[Renamed]:
    """Return scenarios of the simulator that have changed."""
    return sorted(
        Renamed("", old, scenario.name)
        for scenario in command_line._scenarios()
        for old in vars(scenario).get("aliases", ())
    )


def table(head: tuple[str, ...], rows: list[Renamed]) -> str:
    """Return a table in Markdown, without the column of places if there are none."""
    width = len(head)
    lines = [head, ("---",) * width, *(tuple(f"`{cell}`" for cell in row[-width:]) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables() -> dict[str, str]:
    """Return each table by its name on the page."""
    return {
        "modules": table(("before, in `fyrehose_twisted`", "now"), modules()),
        "names": table(("module", "before", "now"), names()),
        "attributes": table(("class", "before", "now"), attributes()),
        "services": table(("service", "before", "now"), service_options()),
        "commands": table(("command", "before", "now"), command_options()),
        "scenarios": table(("before", "now"), scenarios()),
    }


def filled(page: str) -> str:
    """Return the text of the page with its tables."""
    for name, text in tables().items():
        mark = f"<!-- renamed: {name} -->\n"
        head, found, rest = page.partition(mark)
        _, end, tail = rest.partition("<!-- end -->")
        if not found or not end:
            raise ValueError(f"{PAGE.name} has no place for the table {name}")
        page = f"{head}{mark}\n{text}\n{end}{tail}"
    return page


def write() -> None:
    """Write the tables into the page if they have changed."""
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if after != before:
        PAGE.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    write()
