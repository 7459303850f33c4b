"""Bronze tables: rows as journals store them, in a directory per batch of the query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.journal.arrow.schema import COLUMNS, ddl
from fyrehose_twisted.spark.pipeline.files import Files
from fyrehose_twisted.wording import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRONZE, CHECKPOINT, STATE_FILE = "bronze", "checkpoint", "_fyrehose/query.json"
SCHEMA = ddl(tuple(COLUMNS)) + ", batch BIGINT"


class Bronze:
    """Batches in one directory with the checkpoint of the query that writes them.

    An interrupted batch is rewritten under the same number from the same offsets, so each row is stored once.

    :param streams: streams that the query reads.
    """

    def __init__(self, spark: SparkSession, files: Files, streams: Iterable[str]) -> None:
        self._spark, self._files = spark, files
        self._streams = sorted(set(streams))
        self._state_written = False

    def check(self) -> None:
        """Check that the query to be resumed wrote the existing batches.

        :raises StateFileError: if it did not, since resuming would omit or duplicate rows.
        """
        mark = self._files.read_json(STATE_FILE)
        written = self._batch_names()
        where = self._files.path()
        if mark is None and not written:
            return
        if mark is None:
            raise StateFileError(f"{where} holds bronze of an unknown query: name another directory")
        checkpoint = self._query_id()
        if written and checkpoint is None:
            raise StateFileError(
                f"{where} has {pluralize(len(written), 'batch', 'batches')} of bronze and no checkpoint, so all records"
                " would be read again: restore the checkpoint, or name another directory"
            )
        if written and checkpoint != mark.get("query"):
            raise StateFileError(
                f"the checkpoint in {where} is that of query {checkpoint}, but bronze was written by query"
                f" {mark.get('query')}: restore the right checkpoint, or name another directory"
            )
        gone = set(mark.get("streams", [])) - set(self._streams)
        if written and gone:
            raise StateFileError(
                f"{where} was written from {', '.join(mark['streams'])}, but no journal given is of"
                f" {', '.join(sorted(gone))}: name its journals too, or another directory"
            )

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write a batch, replacing the output of an interrupted attempt."""
        if not self._state_written:
            self._files.write_json(STATE_FILE, {"query": self._query_id(), "streams": self._streams})
            self._state_written = True
        rows.select(*COLUMNS).write.mode("overwrite").parquet(self._files.path(f"{BRONZE}/batch={batch}"))

    def finished(self) -> int:
        """Return the number of the last committed batch; -1 if there is none."""
        names = self._files.list(f"{CHECKPOINT}/commits")
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def read(self, batches: Sequence[int]) -> DataFrame:
        """Return the rows of batches, with the column ``batch``.

        :raises StateFileError: if a batch is missing.
        """
        missing = {f"batch={batch}" for batch in batches} - set(self._batch_names())
        if missing:
            raise StateFileError(
                f"{self._files.path(BRONZE)} lacks {min(missing)}, which silver is derived from: restore it"
            )
        reader = self._spark.read.schema(SCHEMA).option("basePath", self._files.path(BRONZE))
        if not batches:
            return self._spark.createDataFrame([], SCHEMA)
        return reader.parquet(*(self._files.path(f"{BRONZE}/batch={batch}") for batch in batches))

    def _batch_names(self) -> list[str]:
        return [name for name in self._files.list(BRONZE) if name.startswith("batch=")]

    def _query_id(self) -> str | None:
        metadata = self._files.read_json(f"{CHECKPOINT}/metadata")
        return None if metadata is None else str(metadata.get("id"))
