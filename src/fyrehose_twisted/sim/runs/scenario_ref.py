"""Finding a scenario that somebody names, here and in another process."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.scenario import Scenario

MAIN = "__main__"

LOCAL = "<locals>"
"""Part of the qualified name of a class that is defined in a function."""


class ScenarioRef(NamedTuple):
    """Where a scenario is defined: enough for another process to find it."""

    module: str
    qualname: str
    file: str | None
    """Some modules have a name under which nobody else can import them, such as those that pytest imports."""

    @classmethod
    def of(cls, scenario: type[Scenario]) -> ScenarioRef:
        """Return where ``scenario`` is defined.

        :raises ConfigurationError: if it is defined in a function, where no other process can find it.
        """
        if LOCAL in scenario.__qualname__:
            raise ConfigurationError(
                f"{scenario.__qualname__} is defined in a function, where no other process can find it;"
                " move it to the top of its module, or run it in this process"
            )
        file = getattr(sys.modules.get(scenario.__module__), "__file__", None)
        return cls(scenario.__module__, scenario.__qualname__, None if file is None else os.path.realpath(file))

    def resolve(self) -> type[Scenario]:
        """Return the scenario, in whatever process this is."""
        return scenario_from_module(self._module(), self.qualname)

    def _module(self) -> ModuleType:
        try:
            module = import_module(self.module)
        except ModuleNotFoundError:
            # Perhaps it is something else that is missing; then the file says so again.
            if self.file is None:
                raise
        else:
            if self.file is None or _file_of(module) == self.file:
                return module
        return _load_file(self.file)


def load(reference: str) -> type[Scenario]:
    """Return the scenario with this reference: ``package.module:Class``, or ``directory/file.py:Class``.

    The current directory is searched first, as ``python -m`` does. What the module raises is raised.

    :raises ConfigurationError: if there is no such module, file or scenario.
    """
    name, _, qualname = reference.rpartition(":")
    if not name and qualname.endswith(".py"):
        raise ConfigurationError(f"which scenario in {qualname}? Name its class, as in {qualname}:Class")
    if not name or not qualname:
        raise ConfigurationError(f"{reference!r} names no scenario as my_package.my_scenarios:Ticker does")
    _add_to_sys_path(os.getcwd())
    if not name.endswith(".py"):
        return scenario_from_module(_import_module(name), qualname)
    file = os.path.realpath(name)
    if not os.path.isfile(file):
        raise ConfigurationError(f"there is no file {name}")
    # As if it were a script.
    _add_to_sys_path(os.path.dirname(file))
    return scenario_from_module(_load_file(file), qualname)


def scenario_from_module(module: ModuleType, qualname: str) -> type[Scenario]:
    """Return the scenario of this name in a module. :raises ConfigurationError: if there is none."""
    found: Any = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, type) or not issubclass(found, Scenario):
        others = sorted(name for name, value in vars(module).items() if _is_scenario(value))
        there_are = f"; there are {', '.join(others)}" if others else ""
        raise ConfigurationError(f"{module.__name__} has no scenario {qualname}{there_are}")
    return require_name(found)


def require_name(scenario: type[Scenario]) -> type[Scenario]:
    """Return ``scenario``. :raises ConfigurationError: if it has no name."""
    if not isinstance(getattr(scenario, "name", None), str):
        raise ConfigurationError(f"{scenario.__qualname__} has no name; give it one: name = 'protocol.scenario'")
    return scenario


def _is_scenario(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Scenario) and hasattr(value, "name")


def _add_to_sys_path(directory: str) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{name!r} is not the name of a module")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(f"there is no module {name}, neither installed nor in {os.getcwd()}") from error
        raise


def _load_file(file: str) -> ModuleType:
    name = f"scenarios in {file}"  # Of no other module, so that it takes the place of none.
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{file} is no Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return None if file is None else os.path.realpath(file)
