"""Bronze: rows as journals have them, a directory for each batch of the query."""

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
    """The batches below one directory, and the checkpoint that counts them.

    A batch that was cut short is written again by the same number, from the same offsets, so each row is there once.

    :param streams: the streams that the query reads.
    """

    def __init__(self, spark: SparkSession, files: Files, streams: Iterable[str]) -> None:
        self._spark, self._files = spark, files
        self._streams = sorted(set(streams))
        self._state_written = False

    def check(self) -> None:
        """See that what is there was written by the query that is about to go on.

        :raises StateFileError: if it was not: going on would leave rows out or have them twice.
        """
        mark = self._files.read_json(STATE_FILE)
        written = self._batch_names()
        where = self._files.path()
        if mark is None and not written:
            return
        if mark is None:
            raise StateFileError(f"{where} has bronze, and nothing says which query wrote it; name another directory")
        checkpoint = self._query_id()
        if written and checkpoint is None:
            raise StateFileError(
                f"{where} has {pluralize(len(written), 'batch', 'batches')} of bronze and no checkpoint for "
                "them, so all"
                " would be read again; put the checkpoint back, or name another directory"
            )
        if written and checkpoint != mark.get("query"):
            raise StateFileError(
                f"the checkpoint in {where} is that of query {checkpoint}, and bronze was written by query"
                f" {mark.get('query')}; put the right one back, or name another directory"
            )
        gone = set(mark.get("streams", [])) - set(self._streams)
        if written and gone:
            raise StateFileError(
                f"{where} was written from {', '.join(mark['streams'])}, and now there is no journal of"
                f" {', '.join(sorted(gone))}; name its journals too, or another directory"
            )

    def write(self, rows: DataFrame, batch: int) -> None:
        """Write a batch in place of what an earlier attempt left of it."""
        if not self._state_written:
            self._files.write_json(STATE_FILE, {"query": self._query_id(), "streams": self._streams})
            self._state_written = True
        rows.select(*COLUMNS).write.mode("overwrite").parquet(self._files.path(f"{BRONZE}/batch={batch}"))

    def finished(self) -> int:
        """Return the highest batch that is written and will not be written again, -1 if there is none."""
        names = self._files.list(f"{CHECKPOINT}/commits")
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def read(self, batches: Sequence[int]) -> DataFrame:
        """Return the rows of batches, with the column ``batch``.

        :raises StateFileError: if one is not there.
        """
        missing = {f"batch={batch}" for batch in batches} - set(self._batch_names())
        if missing:
            raise StateFileError(
                f"{self._files.path(BRONZE)} has no {min(missing)} any more, and silver is written from it; put it back"
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
