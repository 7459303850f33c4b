"""Client of a Spark Connect server in a process of its own, since a process has either classic or Connect sessions.

Each line of standard input is a JSON list: the name of a function below, and its arguments. Each answer is a JSON
object with its result, or with its error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fyrehose_twisted.spark import query_journal, read_journal
from fyrehose_twisted.spark.cli import main as run_command
from fyrehose_twisted.spark.sink import publish
from fyrehose_twisted.spark.source.journal_locations import locations_in_path
from fyrehose_twisted.spark.source.pruning import needed_columns
from fyrehose_twisted.spark.verify.summary import summary_of
from fyrehose_twisted.spark.verify.verification import Verification

SPARK: SparkSession


def rows_of(frame: DataFrame) -> list[list[Any]]:
    """Return the rows of a table, sorted; bytes as text."""
    found = [
        [value.decode() if isinstance(value, bytes | bytearray) else value for value in row] for row in frame.collect()
    ]
    return sorted(found)


def rows(path: str, condition: str) -> list[list[Any]]:
    """Return numbers and payloads of a journal."""
    read = read_journal(SPARK, path, columns=["sequence", "payload"], pushdown="once")
    return rows_of(read.where(condition))


def unregistered(path: str) -> int:
    """Count the numbers of a journal, before this session has registered the source."""
    return SPARK.read.format("fyrehose").load(path).count()


def queries(path: str, *texts: str) -> list[list[list[Any]]]:
    """Return the rows of SQL queries."""
    return [rows_of(query_journal(SPARK, text, path)) for text in texts]


def counts(*paths: str) -> list[int]:
    """Return the counts of several journals, all asked for before the first answer is read."""
    asked = [query_journal(SPARK, "select count(*) from records", path) for path in paths]
    return [frame.collect()[0][0] for frame in asked]


def needed(path: str, *texts: str) -> list[list[str] | None]:
    """Return the columns that queries need."""
    read_journal(SPARK, path).createOrReplaceTempView("records")
    found = [needed_columns(SPARK.sql(text)) for text in texts]
    return [None if names is None else sorted(names) for names in found]


def send(backbone: str, path: str, directory: str) -> int:
    """Publish a row by a function, one as a table, and a journal as a stream in two batches.

    Return the count that the function returns.
    """
    count = publish(SPARK.sql("select 'from a function' as payload"), backbone)
    table = SPARK.sql("select 'from a table' as payload")
    table.write.format("fyrehose").mode("append").option("backbone", backbone).save()
    read = SPARK.readStream.format("fyrehose").options(startingOffsets="earliest", maxOffsetsPerTrigger=5).load(path)
    writer = read.select("payload").writeStream.format("fyrehose")
    writer = writer.options(backbone=backbone, checkpointLocation=directory).trigger(availableNow=True)
    writer.start().awaitTermination()
    return count


def verify(*paths: str) -> tuple[list[str], int]:
    """Return the kinds of findings of a comparison, and the count of healed numbers."""
    origins = [origin for path in paths for origin in locations_in_path(path, Path(path).parent.name)]
    with Verification(SPARK, origins) as verification:
        return sorted(summary_of(verification)["findings"]), verification.healed().count()


def command(*arguments: str) -> str:
    """Return what ``fyrehose-pipeline`` prints in this session."""
    with redirect_stdout(StringIO()) as printed:
        try:
            run_command(arguments)
        except SystemExit as error:
            printed.write(f"status {error.code}")
    return printed.getvalue()


def pipeline(out: str) -> None:
    from fyrehose_twisted.spark.pipeline.run import Pipeline, Plan

    Pipeline(SPARK, Plan([], out))


def output(out: str) -> None:
    from fyrehose_twisted.spark.verify.output import VerificationOutput

    VerificationOutput(SPARK, out)


def sweep(out: str) -> None:
    from fyrehose_twisted.experiments.sweep.sweep import sweep as run_sweep

    nothing: Any = None
    run_sweep(SPARK, [], nothing)


CALLS: tuple[Callable[..., Any], ...] = (
    rows, unregistered, queries, counts, needed, send, verify, command, pipeline, output, sweep,
)  # fmt: skip


def main() -> None:
    """Answer calls until standard input ends."""
    global SPARK
    SPARK = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    calls = {call.__name__: call for call in CALLS}
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"result": calls[name](*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    SPARK.stop()


if __name__ == "__main__":
    main()
