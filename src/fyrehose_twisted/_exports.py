"""Public names of packages, imported when they are asked for: codecs stay importable without a reactor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from fyrehose_twisted._moved import warn


def renamed(module: str, names: dict[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``module`` that knows some of its names by their old names.

    :param names: new names by old ones.
    """

    def lookup(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is called {names[name]} now")
        return getattr(sys.modules[module], names[name])

    return lookup


def renamed_attribute(old: str, new: str) -> property:
    """Return a property that gives attribute ``new`` under its old name."""

    def lookup(self: object) -> Any:
        warn(f"{type(self).__name__}.{old} is called {new} now")
        return getattr(self, new)

    return property(lookup)


def exports(package: str, names: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``, which import its public names when they are asked for.

    :param names: module of each name, relative to ``package``.
    """

    def lookup(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{names[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return lookup, listing
