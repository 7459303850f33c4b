"""Publishing from Spark to a fyrehose backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from fyrehose_twisted.spark.sink.writer import FyrehoseStreamWriter, FyrehoseWriter


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> FyrehoseWriter:
    """Return what ``df.write.format("fyrehose")`` writes with.

    :raises ConfigurationError: if an option is wrong, or the table has not what they want.
    """
    from fyrehose_twisted.spark.sink.writer import FyrehoseWriter

    return FyrehoseWriter(options, schema, overwrite)


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> FyrehoseStreamWriter:
    """Return what ``df.writeStream.format("fyrehose")`` writes with. Raises what :func:`make_writer` does."""
    from fyrehose_twisted.spark.sink.writer import FyrehoseStreamWriter

    return FyrehoseStreamWriter(options, schema, overwrite)


def publish(frame: DataFrame, backbone: str, **options: Any) -> int:
    """Publish a table; return how many messages came back, which is the number of its rows.

    :param backbone: ``HOST:PORT``.
    :param options: other options of the sink, by their names: ``publish(df, "host:2323", idColumn="id")``.
    :raises ConfigurationError: if an option is wrong, or the table has not what they want.
    :raises PySparkException: if the backbone does not answer, or a message does not come back or is too long.
    """
    from fyrehose_twisted.spark.sink.writer import publish_frame

    return publish_frame(frame, {"backbone": backbone} | {name: str(value) for name, value in options.items()})
