"""Count messages of a journal by minute and kind, as they come: a Structured Streaming job.

Messages are JSON objects; the tables say how many of each `kind` were received in each minute. A minute is written
once no more of it is expected: when messages came that were received later than its end, by as much as --late says.
Killed and started again, it goes on exactly where it was, for the checkpoint says which numbers are counted.

    python examples/streaming_counts.py kept counts            # until interrupted
    python examples/streaming_counts.py kept counts --once     # what there is, and end

`kept` is where the journals lie (twistd fyrehose-journal --directory kept), and `counts` gets Parquet files. It needs
`pip install 'fyrehose_twisted[spark]'`, which brings a Java.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from fyrehose_twisted.spark.errors import error_line
from fyrehose_twisted.spark.pipeline.envelopes import unwrapped
from fyrehose_twisted.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def counts(rows: DataFrame, late: str) -> DataFrame:
    """Return how many messages of each kind there are in each minute."""
    from pyspark.sql import functions as f

    kind = f.get_json_object(f.col("payload").cast("string"), "$.kind")
    return (
        unwrapped(rows.where("status = 'ok'"))
        .withWatermark("received_at", late)
        .groupBy(f.window("received_at", "1 minute"), kind.alias("kind"))
        .count()
        .select(f.col("window.start").alias("minute"), "kind", "count")
    )


def start(
    spark: SparkSession, journals: str, out: Path, *, late: str = "1 minute", once: bool = False
) -> StreamingQuery:
    """Start to count; the query ends by itself if it is to do so only ``once``."""
    rows = spark.readStream.format("fyrehose").option("startingOffsets", "earliest").load(journals)
    written = (
        counts(rows, late)
        .writeStream.format("parquet")
        .option("path", str(out / "minutes"))
        .option("checkpointLocation", str(out / "checkpoint"))
    )
    written = written.trigger(availableNow=True) if once else written.trigger(processingTime="5 seconds")
    return written.start()


def main() -> None:
    parser = argparse.ArgumentParser(description="Count messages of a journal by minute and kind, as they come.")
    parser.add_argument("journals", help="directory of journals")
    parser.add_argument("out", type=Path, help="directory for the tables and the checkpoint")
    parser.add_argument("--late", default="1 minute", help="how late a repair may be [%(default)s]")
    parser.add_argument("--once", action="store_true", help="count what there is, and end")
    options = parser.parse_args()
    if not options.journals:
        parser.error("the directory of journals has no name")
    try:
        count(options)
    except KeyboardInterrupt:
        raise SystemExit("streaming_counts: interrupted") from None
    except Exception as error:
        raise SystemExit(f"streaming_counts: {error_line(error) or repr(error)}") from None


def count(options: argparse.Namespace) -> None:
    """Count until there is no more, or until interrupted, and show what is counted."""
    interrupted = Event()
    with spark_session("streaming counts") as spark:
        # Spark's own handler raises in the middle of whatever call to Java is under way.
        signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
        query = start(spark, options.journals, options.out, late=options.late, once=options.once)
        while not interrupted.is_set() and not query.awaitTermination(1):
            pass
        query.stop()
        minutes = spark.read.schema("minute timestamp, kind string, count long").parquet(str(options.out / "minutes"))
        minutes.orderBy("minute", "kind").show(truncate=False)
    if interrupted.is_set():
        raise SystemExit("streaming_counts: interrupted; start it again, and it goes on")


if __name__ == "__main__":
    main()
