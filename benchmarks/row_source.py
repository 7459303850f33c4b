"""Row-based data source as in most Python code, with a tuple per row, for comparison in bench_spark.py."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from fyrehose_twisted.journal.arrow.schema import OK, ddl
from fyrehose_twisted.journal.reader import open_reader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RowSource(DataSource):
    """Reads the journal in ``path``, up to ``rows``, in ranges of a million."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowReader(self.options["path"], int(self.options["rows"]))


class RowReader(DataSourceReader):
    """Reads ranges, tuple by tuple."""

    def __init__(self, path: str, rows: int) -> None:
        self._path, self._rows = path, rows

    def partitions(self) -> list[InputPartition]:
        size = 1_000_000
        return [InputPartition((low, min(low + size - 1, self._rows))) for low in range(1, self._rows + 1, size)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        first, last = partition.value
        for block in open_reader(Path(self._path)).read(0, first, last):
            for record in block.records():
                when = EPOCH + timedelta(microseconds=record.received_at)
                yield record.stream, record.epoch, record.sequence, when, record.payload, OK
