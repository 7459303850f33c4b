"""Directory of a sweep: a manifest, and a table to which each wave adds a subdirectory."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fyrehose_twisted.errors import ConfigurationError, OperationalError, StateFileError
from fyrehose_twisted.experiments.sweep.grid import Grid
from fyrehose_twisted.experiments.sweep.rows import ERROR, KEY_COLUMNS, arrow_schema
from fyrehose_twisted.process.atomic_file import replace_file, sync_directory

MANIFEST, NETWORKS, LOCK = "sweep.json", "networks", ".lock"
FORMAT = 1

_WAVE = re.compile(r"wave=(\d{5,})")


class SweepResults:
    """Results of a sweep on disk.

    Waves are Parquet files in ``networks/wave=00000`` and so on. A wave is written atomically, even if the sweep is
    killed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._networks = directory / NETWORKS

    @property
    def table(self) -> str:
        """Directory of the table."""
        return str(self._networks)

    @contextmanager
    def open_for_writing(self, grid: Grid, versions: Mapping[str, str]) -> Iterator[list[str]]:
        """Lock the directory while the block runs, and remove partial waves of an earlier sweep.

        Yields warnings about versions that changed since earlier waves.

        :param versions: versions of the software that the numbers depend on.
        :raises ConfigurationError: if the directory belongs to another grid, or to something else.
        :raises StateFileError: if another sweep is writing to the directory.
        :raises OSError: if the directory cannot be written.
        """
        before = self._check(grid)
        self._networks.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateFileError(f"{self.directory}: another sweep is writing there; wait until it ends") from None
            for partial in self._networks.glob(".wave-*"):
                shutil.rmtree(partial)
            known = before.get("versions", {})
            warnings = [
                f"{name} is {now} here; earlier rows in {self.directory} are of {known[name]}"
                for name, now in versions.items()
                if known.get(name, now) != now
            ]
            self._write_manifest(grid, before, versions)
            yield warnings
        finally:
            os.close(descriptor)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest.

        :raises ConfigurationError: if there is no manifest, or its format is unknown.
        """
        path = self.directory / MANIFEST
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ConfigurationError(f"{self.directory} holds no sweep: there is no {MANIFEST}") from None
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ConfigurationError(f"{path} is not the manifest of a sweep of this version; name another directory")
        return manifest

    def finished_networks(self) -> set[tuple[int, int]]:
        """Return the cell and replica of each network that has a row."""
        found = self.read([])
        return set(zip(*(found.column(name).to_pylist() for name in KEY_COLUMNS), strict=True))

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """Return the table, or some columns besides the key columns, in the order of the networks.

        :raises OperationalError: if a file cannot be read.
        """
        import pyarrow
        import pyarrow.parquet as parquet

        schema = arrow_schema()
        names = (
            schema.names if columns is None else [*KEY_COLUMNS, *(name for name in columns if name not in KEY_COLUMNS)]
        )
        wanted = pyarrow.schema([schema.field(name) for name in names])
        tables = []
        for path in self._waves():
            try:
                found = [parquet.ParquetFile(part).read(wanted.names) for part in sorted(path.glob("*.parquet"))]
            except (OSError, pyarrow.ArrowInvalid) as error:
                raise OperationalError(f"{path} cannot be read: {error}; remove it to compute it again") from error
            for table in found:
                missing = set(wanted.names).difference(table.schema.names)
                if missing:
                    raise OperationalError(
                        f"{path} has no column {min(missing)}: another version has written it; read it with that one,"
                        " or sweep into another directory"
                    )
            tables += found
        whole = pyarrow.concat_tables(tables) if tables else wanted.empty_table()
        return whole.sort_by([(name, "ascending") for name in KEY_COLUMNS])

    def add(self, table: Any) -> None:
        """Add a wave durably."""
        waves = self._waves()
        number = int(waves[-1].name.partition("=")[2]) + 1 if waves else 0
        partial = self._networks / f".wave-{number:05}"
        partial.mkdir()
        _write_table(partial / "part-0.parquet", table)
        sync_directory(partial)
        partial.rename(self._networks / f"wave={number:05}")
        sync_directory(self._networks)

    def drop_errors(self) -> int:
        """Remove the rows of failed networks, and return their number."""
        import pyarrow.compute as compute
        import pyarrow.parquet as parquet

        dropped = 0
        for path in self._waves():
            for part in sorted(path.glob("*.parquet")):
                table = parquet.ParquetFile(part).read()
                kept = table.filter(compute.is_null(table[ERROR]))
                if kept.num_rows == table.num_rows:
                    continue
                dropped += table.num_rows - kept.num_rows
                partial = self._networks / f".wave-{path.name}-{part.name}"
                partial.mkdir()
                _write_table(partial / part.name, kept)
                os.replace(partial / part.name, part)
                sync_directory(path)
                partial.rmdir()
        return dropped

    def _waves(self) -> list[Path]:
        with suppress(FileNotFoundError):
            return sorted(path for path in self._networks.iterdir() if _WAVE.fullmatch(path.name))
        return []

    def _check(self, grid: Grid) -> dict[str, Any]:
        """Return the manifest, empty if the directory is new."""
        if not self.directory.exists() or not (set(os.listdir(self.directory)) - {LOCK, NETWORKS}):
            if self._waves():
                raise ConfigurationError(f"{self.directory} has a table and no {MANIFEST}; name another directory")
            return {}
        manifest = self.manifest()
        if manifest["digest"] != grid.digest():
            raise ConfigurationError(f"{self.directory} holds the results of another grid; name another directory")
        if manifest["replicas"] > grid.replicas:
            raise ConfigurationError(
                f"replicas={grid.replicas}: {self.directory} has {manifest['replicas']} of each cell already;"
                " give at least as many, or name another directory"
            )
        return manifest

    def _write_manifest(self, grid: Grid, before: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        parts = [{"name": part.name, "axes": part.axes} for part in grid.parts]
        manifest = {
            "format": FORMAT,
            "digest": grid.digest(),
            "seed": grid.seed,
            "replicas": grid.replicas,
            "grids": parts,
            "files": dict(grid.files),
            "versions": {**versions, **before.get("versions", {})},
        }
        content = json.dumps(manifest, indent=1) + "\n"
        replace_file(self.directory / MANIFEST, content.encode(), self.directory / f".{MANIFEST}")


def _write_table(path: Path, table: Any) -> None:
    import pyarrow.parquet as parquet

    with open(path, "wb") as file:
        parquet.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
