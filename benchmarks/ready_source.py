"""Data source that hands over record batches made beforehand, for comparison in bench_spark.py.

No source in Python is faster: what it takes is the way of a row from Python to Java and through Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from fyrehose_twisted.journal.arrow.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_ROWS = 65_536
TASK_ROWS = 1_000_000


class ReadySource(DataSource):
    """Yields ``rows`` records with payloads of ``size`` bytes, of the ``columns``."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return ddl(self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(int(self.options["rows"]), int(self.options["size"]), schema.fieldNames())


class ReadyReader(DataSourceReader):
    """Hands the same batch over again and again."""

    def __init__(self, rows: int, size: int, columns: list[str]) -> None:
        self._rows, self._size, self._columns = rows, size, columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(min(TASK_ROWS, self._rows - low)) for low in range(0, self._rows, TASK_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow

        from fyrehose_twisted.journal.arrow.schema import OK, arrow_schema

        values = {
            "stream": "fyrehose://bench",
            "epoch": 0,
            "sequence": 1,
            "received_at": 1_700_000_000_000_000,
            "payload": bytes(self._size),
            "status": OK,
        }
        schema = arrow_schema(self._columns)
        columns = [pyarrow.repeat(pyarrow.scalar(values[field.name], field.type), BATCH_ROWS) for field in schema]
        batch = pyarrow.RecordBatch.from_arrays(columns, schema=schema)
        for low in range(0, partition.value, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.value - low))
