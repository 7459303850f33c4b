"""Batch data source over journals: ``spark.read.format("fyrehose")``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.source.journal_locations import cached_reader
from fyrehose_twisted.spark.source.key_column import SOURCE_COLUMNS, source_ddl
from fyrehose_twisted.spark.source.options import ReadOptions, read_options
from fyrehose_twisted.spark.source.partitions import freeze_modules, make_partitions, read_partition
from fyrehose_twisted.spark.source.planning import EpochRange, epoch_ranges

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from fyrehose_twisted.spark.source.streaming import FyrehoseStreamReader

FORMAT_NAME = "fyrehose"


class FyrehoseDataSource(DataSource):
    """Spark data source that reads journals and publishes to a backbone. ``docs/reference/spark.md`` lists its options.

    Spark calls :meth:`schema` first, so :meth:`schema` validates the options: Spark wraps errors raised elsewhere in
    errors of its own. Options that apply only to a batch or only to a stream are checked later, when that is known.
    """

    directory: ClassVar[str] = ""
    """Base of relative paths; empty for the working directory of Spark's workers."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT_NAME

    def schema(self) -> str:
        """Return the columns selected by the options. :raises ConfigurationError: if an option is invalid."""
        return source_ddl(self._read_options(streaming=None).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        options = self._read_options(streaming=False)
        kind = PushdownReader if options.pushdown else FyrehoseReader
        return kind(options, schema_columns(schema))

    def streamReader(self, schema: StructType) -> FyrehoseStreamReader:
        """Return a streaming reader."""
        from fyrehose_twisted.spark.source.streaming import FyrehoseStreamReader

        return FyrehoseStreamReader(self._read_options(streaming=True), schema_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return a batch writer."""
        from fyrehose_twisted.spark.sink import make_writer

        return make_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return a streaming writer."""
        from fyrehose_twisted.spark.sink import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite)

    def _read_options(self, *, streaming: bool | None) -> ReadOptions:
        return read_options(dict(self.options), streaming=streaming, directory=self.directory)


class FyrehoseReader(DataSourceReader):
    """Batch reader. A batch ends at the watermarks at planning time."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions; each holds one large range of numbers or several small ones.

        :raises FyrehoseError: as :meth:`~fyrehose_twisted.spark.source.options.ReadOptions.locations`.
        """
        return make_partitions(self._epoch_ranges(), self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        freeze_modules()
        return read_partition(partition, self._columns, self._options)

    def _epoch_ranges(self) -> list[EpochRange]:
        return epoch_ranges(self._options)


class PushdownReader(FyrehoseReader):
    """Batch reader that skips ranges excluded by filters on stream, epoch, sequence or journal.

    Spark rejects a reader with ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is off, which is the
    default. Hence this reader is used only with ``option("pushdown", "once")``. Once: Spark keeps the reader with the
    filters that it got last, for all queries of the loaded table.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Store the filters and return all of them, so that Spark applies them as well; rechecking is cheap."""
        self._filters = filters
        return filters

    def _epoch_ranges(self) -> list[EpochRange]:
        found = []
        for lane in super()._epoch_ranges():
            given = {"stream": lane.location.stream, "journal": lane.location.journal, "epoch": lane.epoch}
            if _is_excluded(self._filters, given):
                continue
            if lane.next > (cached_reader(lane.location).wrap or 2**63):
                found.append(lane)  # The numbers wrap, so a sequence number no longer identifies a position.
                continue
            first, next = _narrow(self._filters, lane.first, lane.next)
            if first < next:
                found.append(lane._replace(first=first, next=next))
        return found


def schema_columns(schema: StructType) -> tuple[str, ...]:
    """Return the column names of a schema.

    :raises ConfigurationError: if a column is unknown or has the wrong type.
    """
    names = []
    for field in schema.fields:
        kind = field.dataType.simpleString().upper()
        if kind != SOURCE_COLUMNS.get(field.name) or not field.nullable:
            not_null = "" if field.nullable else " NOT NULL"
            raise ConfigurationError(
                f"the schema has {field.name} {kind}{not_null}; the source has {source_ddl(tuple(SOURCE_COLUMNS))}"
            )
        names.append(field.name)
    return tuple(names)


def _is_excluded(filters: list[Filter], given: dict[str, Any]) -> bool:
    return any(
        isinstance(one, EqualTo)
        and len(one.attribute) == 1
        and one.attribute[0] in given
        and given[one.attribute[0]] != one.value
        for one in filters
    )


def _narrow(filters: list[Filter], first: int, next: int) -> tuple[int, int]:
    for one in filters:
        if getattr(one, "attribute", None) != ("sequence",):
            continue
        match one:
            case EqualTo():
                first, next = max(first, one.value), min(next, one.value + 1)
            case GreaterThan():
                first = max(first, one.value + 1)
            case GreaterThanOrEqual():
                first = max(first, one.value)
            case LessThan():
                next = min(next, one.value)
            case LessThanOrEqual():
                next = min(next, one.value + 1)
    return first, next
