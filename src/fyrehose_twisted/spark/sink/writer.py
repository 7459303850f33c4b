"""Batch and stream writers: ``df.write.format("fyrehose")`` and ``df.writeStream.format("fyrehose")``."""

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
"""Scope part that separates ids of batch writes from those of queries."""


@dataclass(frozen=True, slots=True)
class PublishedPartition(WriterCommitMessage):
    """Commit message of a task to the driver.

    :ivar skipped: nothing was published, because the batch was already finished.
    """

    receipt: Receipt
    skipped: bool = False


class FyrehoseWriter(DataSourceArrowWriter):
    """Writer of a table. A task finishes when all its messages are acknowledged; published messages cannot be revoked.

    :raises ConfigurationError: if an option is invalid, or the table lacks a column that the options require.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('published messages cannot be overwritten: use mode("append")')
        self._task = task_for(sink_options(options), schema)
        # Generated once on the driver, so that every attempt of a task uses the same id.
        self._job = token_hex(16)

    def write(self, iterator: Iterator[Any]) -> PublishedPartition:
        """Publish a partition, on a worker. :raises FyrehoseError: if not all messages were acknowledged."""
        return PublishedPartition(self._task.publish(iterator, _partition(), self._job, BATCH_WRITE_SCOPE))


class FyrehoseStreamWriter(DataSourceStreamArrowWriter):
    """Writer of micro-batches. A batch finished before a restart is not published again.

    :raises ConfigurationError: if an option is invalid, or the table lacks a column that the options require.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('published messages cannot be overwritten: use outputMode("append")')
        self._task = task_for(sink_options(options), schema)
        self._ledger = Ledger.at({name.lower(): value for name, value in options.items()}.get("checkpointlocation"))
        # Read on the driver, because workers may not have access to the checkpoint.
        self._finished = None if self._ledger is None else self._ledger.read()

    def write(self, iterator: Iterator[Any]) -> PublishedPartition:
        """Publish a partition of a micro-batch, on a worker.

        :raises FyrehoseError: if not all messages were acknowledged.
        """
        query, batch, partition = _local_property("sql.streaming.queryId"), _batch(), _partition()
        if self._finished is not None and self._finished.covers(query, batch):
            deque(iterator, maxlen=0)
            return PublishedPartition(Receipt(partition), skipped=True)
        return PublishedPartition(self._task.publish(iterator, partition, query, batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name.
        """Record a finished micro-batch in the ledger. :raises OperationalError: if the ledger cannot be written."""
        done = [message for message in messages if isinstance(message, PublishedPartition)]
        if self._ledger is None or any(message.skipped for message in done):
            return
        try:
            self._ledger.write(batchId, sum(message.receipt.messages for message in done))
        except OSError as error:
            raise OperationalError(f"{error.filename} cannot be written: {error.strerror}") from error


def publish_frame(frame: DataFrame, options: Mapping[str, str]) -> int:
    """Publish a table and return the number of acknowledged messages.

    See :func:`fyrehose_twisted.spark.sink.publish`.
    """
    task, job = task_for(sink_options(options), frame.schema), token_hex(16)

    def published(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        yield pyarrow.RecordBatch.from_pydict(
            {"messages": [task.publish(batches, _partition(), job, BATCH_WRITE_SCOPE).messages]}
        )

    counts = frame.mapInArrow(published, "messages BIGINT").agg({"messages": "sum"}).collect()
    return int(counts[0][0] or 0)


def task_for(options: SinkOptions, schema: StructType) -> PublishTask:
    """Create the task that publishes tables of ``schema``.

    :raises ConfigurationError: if ``schema`` lacks a column that the options require.
    """
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
        raise OperationalError(f"Spark has not set its property {name}, so the micro-batch is unknown")
    return value


def _batch() -> int:
    return int(_local_property("streaming.sql.batchId"))
