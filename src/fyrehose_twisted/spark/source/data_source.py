"""``spark.read.format("fyrehose")``: journals as a table."""

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
from fyrehose_twisted.journal.arrow.schema import COLUMNS, ddl
from fyrehose_twisted.spark.source.journal_locations import cached_reader
from fyrehose_twisted.spark.source.options import ReadOptions, read_options
from fyrehose_twisted.spark.source.partitions import make_partitions, read_partition
from fyrehose_twisted.spark.source.planning import EpochRange, epoch_ranges

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from fyrehose_twisted.spark.source.streaming import FyrehoseStreamReader

FORMAT_NAME = "fyrehose"


class FyrehoseDataSource(DataSource):
    """Journals to read, and a backbone to write to. ``docs/reference/spark.md`` has its options.

    Wrong options are raised by :meth:`schema`, which Spark asks for first: from elsewhere Spark would hide the error
    behind one of its own. But it cannot know of those that say nothing to a batch, or to a stream.
    """

    directory: ClassVar[str] = ""
    """What relative paths are relative to; empty for the working directory of Spark's workers."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT_NAME

    def schema(self) -> str:
        """Return the columns that options choose. :raises ConfigurationError: if an option is wrong."""
        return ddl(self._read_options(streaming=None).columns)

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
    """Reads a batch: what is below the watermarks when it is planned."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions: a large range of numbers, or several small ones.

        :raises FyrehoseError: what :meth:`~fyrehose_twisted.spark.source.options.ReadOptions.locations` raises.
        """
        return make_partitions(self._epoch_ranges(), self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return read_partition(partition, self._columns, self._options)

    def _epoch_ranges(self) -> list[EpochRange]:
        return epoch_ranges(self._options)


class PushdownReader(FyrehoseReader):
    """The same, and it does not read what filters on stream, epoch, sequence or journal exclude.

    Spark fails each read of a reader that has ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is off,
    as it is by default; so only ``option("pushdown", "true")`` gives this one.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters in, and leave all to Spark as well: to look at a number again costs little."""
        self._filters = filters
        return filters

    def _epoch_ranges(self) -> list[EpochRange]:
        found = []
        for lane in super()._epoch_ranges():
            given = {"stream": lane.location.stream, "journal": lane.location.journal, "epoch": lane.epoch}
            if _is_excluded(self._filters, given):
                continue
            if lane.next > (cached_reader(lane.location).wrap or 2**63):
                found.append(lane)  # Numbers begin anew, and a sequence number does not tell a place any more.
                continue
            first, next = _narrow(self._filters, lane.first, lane.next)
            if first < next:
                found.append(lane._replace(first=first, next=next))
        return found


def schema_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a user's schema, or ours, names.

    :raises ConfigurationError: if it has one that there is not, or one of another type.
    """
    names = []
    for field in schema.fields:
        kind = field.dataType.simpleString().upper()
        if kind != COLUMNS.get(field.name) or not field.nullable:
            not_null = "" if field.nullable else " NOT NULL"
            raise ConfigurationError(
                f"the schema has {field.name} {kind}{not_null}; the source has {ddl(tuple(COLUMNS))}"
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
