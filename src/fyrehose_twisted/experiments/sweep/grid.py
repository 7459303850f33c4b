"""Grid of a sweep: settings with one or several values, and all their combinations.

::

    seed = 7
    replicas = 20

    n = [1000, 10000]
    accept = ["root", "own"]

    [[grid]]
    name = "trees"

    [[grid]]
    name = "repair"
    kill = [0.1, 0.3]

Settings outside of a ``[[grid]]`` apply to each grid. A file without ``[[grid]]`` is a single grid.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from itertools import product
from json import dumps
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS, NetworkSettings, Value, coerce_value

MAX_NETWORKS = 1_000_000
"""Maximum number of networks in a sweep."""

_TOP_LEVEL_KEYS = ("seed", "replicas", "grid")


class Seeds(NamedTuple):
    """Seeds of one network, each from 0 to 2**63 - 1."""

    topology: int
    swapping: int
    experiment: int
    choices: int


class Cell(NamedTuple):
    """One network: a replica of a combination of settings.

    :ivar grid: name of its grid, or ``""``.
    :ivar number: number of the combination, from 0, over all grids of the file.
    :ivar replica: number of the replica, from 0.
    :ivar sweep_seed: seed of the sweep.
    """

    grid: str
    number: int
    replica: int
    sweep_seed: int
    settings: NetworkSettings

    def seeds(self) -> Seeds:
        """Return the seeds, which depend only on the seed of the sweep, the number and the replica."""
        state = np.random.SeedSequence(self.sweep_seed, spawn_key=(self.number, self.replica)).generate_state(
            4, np.uint64
        )
        return Seeds(*(int(word) >> 1 for word in state))


@dataclass(frozen=True)
class GridPart:
    """One grid: all combinations of some values.

    :ivar axes: values of each given setting, in the order of :data:`DEFAULTS`.
    :ivar combinations: all combinations of these values; the last axis varies fastest.
    """

    name: str
    axes: Mapping[str, tuple[Value, ...]]
    combinations: tuple[NetworkSettings, ...]


@dataclass(frozen=True)
class Grid:
    """All networks of a sweep.

    :ivar seed: seed from which the seeds of all networks derive.
    :ivar replicas: networks per combination.
    :ivar files: digest of each links file, by path.
    """

    seed: int
    replicas: int
    parts: tuple[GridPart, ...]
    files: Mapping[str, str]

    @cached_property
    def combinations(self) -> tuple[tuple[str, NetworkSettings], ...]:
        """Combinations of all grids, each with the name of its grid."""
        return tuple((part.name, settings) for part in self.parts for settings in part.combinations)

    def __len__(self) -> int:
        return len(self.combinations) * self.replicas

    def cells(self) -> Iterator[Cell]:
        """Yield all networks, with the replicas of a combination in sequence."""
        return map(self.cell, range(len(self)))

    def cell(self, position: int) -> Cell:
        """Return the network at a position, from 0."""
        number, replica = divmod(position, self.replicas)
        name, settings = self.combinations[number]
        return Cell(name, number, replica, self.seed, settings)

    def digest(self) -> str:
        """Return a digest of the networks, which does not depend on the number of replicas."""
        # Files count by content, not by path.
        cells = [
            [name, settings.values() | {"file": self.files.get(settings.file, "")}]
            for name, settings in self.combinations
        ]
        text = dumps([self.seed, cells], sort_keys=True)
        return sha256(text.encode()).hexdigest()


def read_grid(path: Path) -> Grid:
    """Read the grid of a file.

    :raises ConfigurationError: if the file is invalid; the error names the setting.
    :raises OSError: if the file cannot be read.
    """
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None
    try:
        return make_grid(document, path.parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def make_grid(document: Mapping[str, Any], directory: Path) -> Grid:
    """Return the grid that a document describes.

    :param directory: base directory of relative paths in the document.
    :raises ConfigurationError: if the document is invalid.
    """
    seed, replicas = (
        _check_count(name, document.get(name, 1), minimum) for name, minimum in (("seed", 0), ("replicas", 1))
    )
    common = {name: value for name, value in document.items() if name not in _TOP_LEVEL_KEYS}
    tables = document.get("grid", [{}])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ConfigurationError("grid: write [[grid]] above each grid, with two brackets on either side")
    files: dict[Path, _File] = {}
    parts: list[GridPart] = []
    for number, table in enumerate(tables):
        name = table.get("name", "")
        if not isinstance(name, str) or (len(tables) > 1 and not name):
            raise ConfigurationError(f"[[grid]] number {number + 1} needs a name, such as name = 'trees'")
        if name in [part.name for part in parts]:
            raise ConfigurationError(f"two [[grid]] have the name {name!r}; give each its own")
        own = {key: value for key, value in table.items() if key != "name"}
        try:
            axes = _axes(common | own)
            if prod(map(len, axes.values())) * replicas > MAX_NETWORKS:
                raise ConfigurationError(f"it has more than {MAX_NETWORKS:,} networks; use fewer values or replicas")
            parts.append(GridPart(name, axes, tuple(_combinations(axes, directory, files))))
        except ConfigurationError as error:
            raise ConfigurationError(f"[[grid]] {name!r}: {error}" if name else str(error)) from None
    grid = Grid(seed, replicas, tuple(parts), {str(path): file.digest for path, file in files.items()})
    if len(grid) > MAX_NETWORKS:
        raise ConfigurationError(f"it has more than {MAX_NETWORKS:,} networks; use fewer values or replicas")
    return grid


def _axes(settings: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    for name in settings:
        if name not in DEFAULTS:
            close = get_close_matches(name, [*DEFAULTS, *_TOP_LEVEL_KEYS], 1, 0.5)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join([*_TOP_LEVEL_KEYS, *DEFAULTS])}"
            raise ConfigurationError(f"there is no setting {name!r}; {hint}")
    axes: dict[str, tuple[Value, ...]] = {}
    for name in DEFAULTS:
        if name not in settings:
            continue
        values = settings[name] if isinstance(settings[name], list) else [settings[name]]
        if not values:
            raise ConfigurationError(f"{name}=[]: give at least one value, or remove the setting")
        axes[name] = tuple(coerce_value(name, value) for value in values)
        if len(set(axes[name])) < len(values):
            raise ConfigurationError(
                f"{name}={settings[name]!r}: a value appears twice; use replicas = N to repeat networks"
            )
    return axes


class _File(NamedTuple):
    digest: str
    n: int
    degree: float


def _combinations(
    axes: Mapping[str, Sequence[Value]], directory: Path, files: dict[Path, _File]
) -> Iterator[NetworkSettings]:
    for values in product(*axes.values()):
        given = dict(zip(axes, values, strict=True))
        if given.get("topology") == "file" and given.get("file"):
            for name in ("n", "degree"):
                if name in given:
                    setting = f"{name}={given[name]!r} does not apply to topology='file'"
                    raise ConfigurationError(f"{setting}, whose file determines it; use another [[grid]]")
            path = (directory / str(given["file"])).resolve()
            if path not in files:
                files[path] = _read_file(path)
            given |= {"file": str(path), "n": files[path].n, "degree": files[path].degree}
        yield NetworkSettings.from_values(given)


def _read_file(path: Path) -> _File:
    from fyrehose_twisted.experiments.topologies.topology import Topology

    try:
        topology = Topology.from_file(path)
        return _File(sha256(path.read_bytes()).hexdigest(), topology.n, 2 * topology.links / topology.n)
    except OSError as error:
        raise ConfigurationError(f"file={str(path)!r}: {error.strerror}") from None


def _check_count(name: str, value: object, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < 2**63:
        raise ConfigurationError(f"{name}={value!r}: it must be a single whole number of {minimum} or more")
    return value
