"""References to scenarios, resolvable in this and in other processes."""

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
"""Part of the qualified name of a class defined in a function."""


class ScenarioRef(NamedTuple):
    """Reference to the definition of a scenario that another process can resolve."""

    module: str
    qualname: str
    file: str | None
    """File of the module. Other processes cannot import some modules by name, such as those that pytest imports."""

    @classmethod
    def of(cls, scenario: type[Scenario]) -> ScenarioRef:
        """Return the reference of ``scenario``.

        :raises ConfigurationError: if it is defined in a function, so that other processes cannot import it.
        """
        if LOCAL in scenario.__qualname__:
            raise ConfigurationError(
                f"{scenario.__qualname__} is defined in a function, where no other process can find it;"
                " move it to the top of its module, or run it in this process"
            )
        file = getattr(sys.modules.get(scenario.__module__), "__file__", None)
        return cls(scenario.__module__, scenario.__qualname__, None if file is None else os.path.realpath(file))

    def resolve(self) -> type[Scenario]:
        """Return the scenario, in any process."""
        return scenario_from_module(self._module(), self.qualname)

    def _module(self) -> ModuleType:
        try:
            module = import_module(self.module)
        except ModuleNotFoundError:
            # An import within the module may be missing instead; loading the file then raises the same error.
            if self.file is None:
                raise
        else:
            if self.file is None or _file_of(module) == self.file:
                return module
        return _load_file(self.file)


def load(reference: str) -> type[Scenario]:
    """Return the scenario with the reference ``package.module:Class`` or ``directory/file.py:Class``.

    The current directory is searched first, as with ``python -m``. Exceptions of the module are passed on.

    :raises ConfigurationError: if the module, file or scenario does not exist.
    """
    name, _, qualname = reference.rpartition(":")
    if not name and qualname.endswith(".py"):
        raise ConfigurationError(f"no scenario class given; use {qualname}:Class")
    if not name or not qualname:
        raise ConfigurationError(f"{reference!r} is not a scenario reference such as my_package.my_scenarios:Ticker")
    _add_to_sys_path(os.getcwd())
    if not name.endswith(".py"):
        return scenario_from_module(_import_module(name), qualname)
    file = os.path.realpath(name)
    if not os.path.isfile(file):
        raise ConfigurationError(f"there is no file {name}")
    # Like a script, so that it can import its neighbours.
    _add_to_sys_path(os.path.dirname(file))
    return scenario_from_module(_load_file(file), qualname)


def scenario_from_module(module: ModuleType, qualname: str) -> type[Scenario]:
    """Return the scenario with this name in a module. :raises ConfigurationError: if there is none."""
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
        raise ConfigurationError(f"{scenario.__qualname__} has no name; define one: name = 'protocol.scenario'")
    return scenario


def _is_scenario(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Scenario) and hasattr(value, "name")


def _add_to_sys_path(directory: str) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{name!r} is not a module name")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(f"there is no module {name}, neither installed nor in {os.getcwd()}") from error
        raise


def _load_file(file: str) -> ModuleType:
    name = f"scenarios in {file}"  # No other module can have this name.
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{file} is not a Python file")
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
