"""Spark sink that publishes tables and streams to a fyrehose backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from fyrehose_twisted.spark.sink.writer import FyrehoseStreamWriter, FyrehoseWriter


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> FyrehoseWriter:
    """Return the writer of ``df.write.format("fyrehose")``.

    :raises ConfigurationError: if an option is invalid, or the table lacks a column that the options require.
    """
    from fyrehose_twisted.spark.sink.writer import FyrehoseWriter

    return FyrehoseWriter(options, schema, overwrite)


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> FyrehoseStreamWriter:
    """Return the writer of ``df.writeStream.format("fyrehose")``. Raises the errors of :func:`make_writer`."""
    from fyrehose_twisted.spark.sink.writer import FyrehoseStreamWriter

    return FyrehoseStreamWriter(options, schema, overwrite)


def publish(frame: DataFrame, backbone: str, **options: Any) -> int:
    """Publish a table and return the number of acknowledged messages, which equals the number of rows.

    :param backbone: ``HOST:PORT``.
    :param options: other options of the sink as keywords: ``publish(df, "host:2323", idColumn="id")``.
    :raises ConfigurationError: if an option is invalid, or the table lacks a column that the options require.
    :raises PySparkException: if the backbone does not answer, or a message is not acknowledged or is too long.
    """
    from fyrehose_twisted.spark.sink.writer import publish_frame

    return publish_frame(frame, {"backbone": backbone} | {name: str(value) for name, value in options.items()})
