"""Tables in output directories of ``verify --out`` and ``run --out``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fyrehose_twisted.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERDICT = "verify.json"

COLUMNS = {
    "findings": "stream STRING, epoch BIGINT, kind STRING, reason STRING, journal STRING, first BIGINT, last BIGINT, "
    "count BIGINT, detail STRING",
    "quarantine": "sequence BIGINT, journal STRING, payload BINARY, stream STRING, epoch BIGINT",
    "silver": "sequence BIGINT, status STRING, copies BIGINT, late_copies BIGINT, repeat BOOLEAN, bad_json STRING, "
    "stream STRING, epoch BIGINT",
    "gold/traffic": "stream STRING, window_start TIMESTAMP, window_end TIMESTAMP, messages BIGINT, bytes BIGINT, "
    "publishers BIGINT, lost BIGINT, gaps BIGINT, repairs BIGINT, repeats BIGINT",
    "gold/latency": "stream STRING, window_start TIMESTAMP, window_end TIMESTAMP, copies BIGINT, p50_us BIGINT, "
    "p95_us BIGINT, p99_us BIGINT, max_us BIGINT",
    "gold/gaps": "stream STRING, epoch BIGINT, first_missing BIGINT, last_missing BIGINT, length BIGINT, "
    "closed_at TIMESTAMP",
}
"""Columns read from each table."""

VERIFY_TABLES, RUN_TABLES = ("findings",), ("silver", "gold/traffic", "gold/latency", "gold/gaps")


@dataclass
class TableLocations:
    """Locations of tables.

    :ivar directories: directories searched.
    :ivar table_directories: directories of each table.
    :ivar verdicts: directory and ``verify.json`` of each verification.
    :ivar user_tables: the user's own gold tables.
    """

    directories: list[Path]
    table_directories: dict[str, list[Path]] = field(default_factory=dict)
    verdicts: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    user_tables: list[Path] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Return whether a table exists."""
        return bool(self.table_directories.get(name))

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """Return all rows of a table; empty if the table does not exist."""
        from pyspark.sql import DataFrame

        frames = [
            spark.read.schema(COLUMNS[name]).option("basePath", str(place)).parquet(*files)
            for place in self.table_directories.get(name, ())
            for files in _group_by_partitioning(place)
        ]
        names = [column.split()[0] for column in COLUMNS[name].split(", ")]
        if not frames:
            return spark.createDataFrame([], COLUMNS[name])
        chosen = [frame.select(*names) for frame in frames]
        return reduce(DataFrame.unionByName, chosen)


def find_tables(directories: Sequence[Path]) -> TableLocations:
    """Find the tables in output directories.

    :raises ConfigurationError: if a directory is missing or holds no table, or two directories cover the same stream.
    """
    found = TableLocations([])
    for directory in directories:
        if not directory.is_dir():
            raise ConfigurationError(
                f"there is no directory {directory}: name an output directory of `verify --out` or `run --out`"
            )
        real = directory.resolve()
        if real not in (known.resolve() for known in found.directories):
            found.directories.append(directory)
            _scan_directory(directory, found)
    _require_once("verify", ((path, _verified(verdict)) for path, verdict in found.verdicts))
    _require_once("run", ((path, _partitions(path)) for path in found.table_directories.get("silver", ())))
    compared = {path.parent for path in found.table_directories.get("findings", ())} | {
        path for path, _ in found.verdicts
    }
    quarantine = found.table_directories.get("quarantine", [])
    # Both commands write a quarantine. Prefer that of verify, whose journal names match the findings.
    found.table_directories["quarantine"] = [path for path in quarantine if path.parent in compared] or quarantine
    return found


def _scan_directory(directory: Path, found: TableLocations) -> None:
    there = [name for name in COLUMNS if (directory / name).is_dir()]
    verdict = _verdict(directory / VERDICT)
    if verdict is None and not set(there) & {*VERIFY_TABLES, *RUN_TABLES}:
        raise ConfigurationError(
            f"{directory} holds no tables: name an output directory of `verify --out` or `run --out`"
        )
    for name in there:
        found.table_directories.setdefault(name, []).append(directory / name)
    if verdict is not None:
        found.verdicts.append((directory, verdict))
    gold = directory / "gold"
    if gold.is_dir():
        found.user_tables += [
            path
            for path in sorted(gold.iterdir())
            if path.is_dir() and f"gold/{path.name}" not in COLUMNS and path.name[0] not in "._"
        ]


def _verdict(path: Path) -> dict[str, Any] | None:
    try:
        verdict = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not what verify writes: {error}; run verify again") from None
    good = isinstance(verdict, dict) and isinstance(verdict.get("journals", []), list)
    if not good or not all(isinstance(one, dict) for one in verdict.get("journals", [])):
        raise ConfigurationError(f"{path} is not what verify writes: it lists no journals; run verify again")
    return dict(verdict)


def _verified(verdict: dict[str, Any]) -> set[str]:
    return {f"{one.get('stream')} epoch {one.get('epoch')}" for one in verdict.get("journals", [])}


def _partitions(path: Path) -> set[str]:
    return {unquote(child.name.removeprefix("stream=")) for child in path.glob("stream=*")}


def _require_once(command: str, found: Iterable[tuple[Path, set[str]]]) -> None:
    seen: dict[str, Path] = {}
    for path, streams in found:
        for stream in sorted(streams):
            if stream in seen:
                raise ConfigurationError(
                    f"{seen[stream]} and {path} are both of {stream} and would be counted twice: "
                    f"name one output directory of `{command}`"
                )
            seen[stream] = path


def _group_by_partitioning(place: Path) -> list[list[str]]:
    """Group file directories by their partition columns, since Spark rejects a mixture."""
    buckets = sorted(str(path) for path in place.glob("stream=*/epoch=*/bucket=*"))
    plain = sorted({str(path.parent) for path in place.glob("stream=*/epoch=*/*.parquet")})
    return [paths for paths in (buckets, plain) if paths] if buckets and plain else [[str(place)]]
