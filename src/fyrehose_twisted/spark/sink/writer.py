"""``df.write.format("fyrehose")`` and ``df.writeStream.format("fyrehose")``: a table onto a backbone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.spark.sink.ledger import Ledger
from fyrehose_twisted.spark.sink.options import SinkOptions, sink_options
from fyrehose_twisted.spark.sink.rows import RowExtractor
from fyrehose_twisted.spark.sink.task import PublishTask, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

BATCH_WRITE_SCOPE = "batch write"
"""Sets ids of batch writes apart from those of queries."""


@dataclass(frozen=True, slots=True)
class PublishedPartition(WriterCommitMessage):
    """What a task tells the driver.

    :ivar skipped: nothing was published, for the batch was finished before.
    """

    receipt: Receipt
    skipped: bool = False


class FyrehoseWriter(DataSourceArrowWriter):
    """Publishes a table; a task ends when all its messages came back. What is published cannot be taken back.

    :raises ConfigurationError: if an option is wrong, or the table has not what they want.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('what is published cannot be overwritten; use mode("append")')
        self._task = task_for(sink_options(options), schema)
        # Made once on the driver, and so the same for every attempt of a task.
        self._job = token_hex(16)

    def write(self, iterator: Iterator[Any]) -> PublishedPartition:
        """Publish one partition, on a worker. :raises FyrehoseError: if not all of it came back."""
        return PublishedPartition(self._task.publish(iterator, _partition(), self._job, BATCH_WRITE_SCOPE))


class FyrehoseStreamWriter(DataSourceStreamArrowWriter):
    """Publishes micro-batches. One that was finished before a restart is not published again.

    :raises ConfigurationError: if an option is wrong, or the table has not what they want.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('what is published cannot be overwritten; use outputMode("append")')
        self._task = task_for(sink_options(options), schema)
        self._ledger = Ledger.at({name.lower(): value for name, value in options.items()}.get("checkpointlocation"))
        # Looked up on the driver: workers may not see the checkpoint.
        self._finished = None if self._ledger is None else self._ledger.read()

    def write(self, iterator: Iterator[Any]) -> PublishedPartition:
        """Publish one partition of a micro-batch, on a worker. :raises FyrehoseError: if not all of it came back."""
        query, batch, partition = _local_property("sql.streaming.queryId"), _batch(), _partition()
        if self._finished is not None and self._finished.covers(query, batch):
            deque(iterator, maxlen=0)
            return PublishedPartition(Receipt(partition), skipped=True)
        return PublishedPartition(self._task.publish(iterator, partition, query, batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name.
        """Note that a micro-batch is finished. :raises OperationalError: if that cannot be written."""
        done = [message for message in messages if isinstance(message, PublishedPartition)]
        if self._ledger is None or any(message.skipped for message in done):
            return
        try:
            self._ledger.write(batchId, sum(message.receipt.messages for message in done))
        except OSError as error:
            raise OperationalError(f"{error.filename} cannot be written: {error.strerror}") from error


def publish_frame(frame: DataFrame, options: Mapping[str, str]) -> int:
    """Publish a table; return how many messages came back. See :func:`fyrehose_twisted.spark.sink.publish`."""
    task, job = task_for(sink_options(options), frame.schema), token_hex(16)

    def published(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        yield pyarrow.RecordBatch.from_pydict(
            {"messages": [task.publish(batches, _partition(), job, BATCH_WRITE_SCOPE).messages]}
        )

    counts = frame.mapInArrow(published, "messages BIGINT").agg({"messages": "sum"}).collect()
    return int(counts[0][0] or 0)


def task_for(options: SinkOptions, schema: StructType) -> PublishTask:
    """Return what publishes tables of ``schema``. :raises ConfigurationError: if it has not what the options want."""
    return PublishTask(options, RowExtractor(options, schema))


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "not in a task"
    return context.partitionId()


def _local_property(name: str) -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise OperationalError(f"Spark does not say which micro-batch this is: its property {name} is not set")
    return value


def _batch() -> int:
    return int(_local_property("streaming.sql.batchId"))
