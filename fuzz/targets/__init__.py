"""Fuzz targets: one module per codec or parser, with a function ``one`` that takes an input."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

LONGEST = 4_096
"""Default maximum length of an input in bytes."""


@dataclass(frozen=True)
class Target:
    """A codec or parser under test.

    :ivar one: takes an input; any exception is a finding.
    :ivar seeds: returns seed inputs.
    :ivar longest: maximum length of an input in bytes.
    """

    name: str
    one: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    longest: int


def names() -> list[str]:
    """Return the names of all targets."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Target:
    """Return a target. :raises LookupError: if there is none of this name."""
    if name not in names():
        raise LookupError(f"there is no target {name!r}; there are {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    return Target(name, module.one, module.seeds, getattr(module, "LONGEST", LONGEST))
