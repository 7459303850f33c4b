"""Atomically replaced output directory of a verification."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.spark.connect import require_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS, HEALED, QUARANTINE, SUMMARY = "findings", "healed", "quarantine", "verify.json"

PARTITIONS = "stream", "epoch"

CONCURRENT_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
"""Configuration key that, above 0, lets Spark write without sorting rows by partition; ours are already sorted."""


class VerificationOutput:
    """Output directory on any file system that Spark can write to.

    Tables are written to the sibling directory ``.NAME.partial``, which is finally renamed to ``NAME``. The previous
    directory is first moved to ``.NAME.old`` and then removed. After an interruption, ``NAME`` is either complete or
    absent; if it is absent, the next start restores the previous directory. Only one process may write at a time.

    :param location: a path or a URI.
    :raises ConfigurationError: if ``location`` holds anything other than an earlier verification, or the session is
        one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        require_classic(spark, "writing the tables of a verification")
        self.location = location if "://" in location else os.path.abspath(location)
        self._spark: Any = spark
        jvm: Any = spark._jvm
        self._make_path = jvm.org.apache.hadoop.fs.Path
        self._path = self._make_path(self.location.rstrip("/") or "/")
        name, parent = self._path.getName(), self._path.getParent()
        if parent is None or not name:
            raise ConfigurationError(f"--out {location}: name a directory that may be replaced")
        beside = f"{parent.toString().rstrip('/')}/.{name}"  # A full path, since Hadoop rejects a name with a colon.
        self._partial, self._backup = (self._make_path(f"{beside}.{end}") for end in ("partial", "old"))
        self._files = self._path.getFileSystem(self._spark._jsc.hadoopConfiguration())
        if not self._files.exists(self._path) and self._files.exists(self._backup):
            self._rename(self._backup, self._path)
        self._check()

    def _check(self) -> None:
        if not self._files.exists(self._path):
            return
        if not self._files.getFileStatus(self._path).isDirectory():
            raise ConfigurationError(f"--out {self.location} is not a directory")
        names = {status.getPath().getName() for status in self._files.listStatus(self._path)}
        others = sorted(names - {FINDINGS, HEALED, QUARANTINE, SUMMARY, f".{SUMMARY}.crc"})
        if others or (names and SUMMARY not in names):
            raise ConfigurationError(
                f"--out {self.location} holds {others[0] if others else min(names)}, which is not of an earlier"
                " verification: name another directory"
            )

    @contextmanager
    def replace_atomically(self) -> Iterator[None]:
        """Replace the directory with the tables written in the block, if the block succeeds."""
        self._remove(self._partial)
        try:
            yield
            self._remove(self._backup)
            if self._files.exists(self._path):
                self._rename(self._path, self._backup)
            self._rename(self._partial, self._path)
        except BaseException:
            with suppress(Exception):  # Report the original error.
                self._remove(self._partial)
                if not self._files.exists(self._path) and self._files.exists(self._backup):
                    self._rename(self._backup, self._path)
            raise
        self._remove(self._backup)

    def write(self, name: str, frame: DataFrame) -> None:
        """Write a table into one directory."""
        frame.write.parquet(self._partial_path(name))

    def write_partitioned(self, name: str, frame: DataFrame) -> None:
        """Write a nonempty table into a directory per stream and epoch."""
        before = self._spark.conf.get(CONCURRENT_WRITERS)
        self._spark.conf.set(CONCURRENT_WRITERS, "4")
        try:
            frame.write.partitionBy(*PARTITIONS).parquet(self._partial_path(name))
        finally:
            self._spark.conf.set(CONCURRENT_WRITERS, before)

    def write_empty(self, name: str, ddl: str) -> None:
        """Write a table without rows that keeps its schema."""
        frame = self._spark.createDataFrame([], ddl)
        rest = [column for column in frame.columns if column not in PARTITIONS]
        self.write(name, frame.select(*rest, *PARTITIONS).coalesce(1))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write ``verify.json``."""
        stream = self._files.create(self._make_path(self._partial, SUMMARY), True)
        try:
            stream.write(bytearray(json.dumps(summary, indent=1).encode() + b"\n"))
        finally:
            stream.close()

    def _partial_path(self, name: str) -> str:
        return str(self._make_path(self._partial, name).toString())

    def _remove(self, path: Any) -> None:
        if self._files.exists(path) and not self._files.delete(path, True):
            raise OperationalError(f"{path.toString()} cannot be removed")

    def _rename(self, old: Any, new: Any) -> None:
        if not self._files.rename(old, new):
            raise OperationalError(f"{old.toString()} cannot be renamed to {new.toString()}")
