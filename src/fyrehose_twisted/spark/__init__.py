"""Spark integration for journals: data source, replica comparison, pipeline and sink."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register ``format("fyrehose")`` with a session and enable filter pushdown.

    Spark also discovers the source on its own, unless another installed package named ``pyspark_*`` is broken.
    """
    from fyrehose_twisted.spark.source.data_source import FyrehoseDataSource

    # Spark's workers resolve paths in their own working directory, so the class carries ours. A class created here
    # cannot be imported, so it is pickled by value, with its attributes.
    made = {"__module__": __name__, "__doc__": FyrehoseDataSource.__doc__, "directory": os.getcwd()}
    spark.dataSource.register(type("FyrehoseDataSource", (FyrehoseDataSource,), made))
    spark.conf.set(PUSHDOWN, "true")


def read_journal(
    spark: SparkSession, *paths: str, parquet: str | None = None, columns: Sequence[str] = (), **options: str
) -> DataFrame:
    """Return the records of journals as a table.

    :param paths: journal directories; to read from journal servers, pass none and ``journal="HOST:PORT,..."``.
    :param parquet: the directory, or the URL of object storage such as ``s3://bucket/prefix``, to which ``fyrehose
        journal seal --parquet`` exported these journals. Spark reads the exported records natively, which is faster;
        the source reads only later records.
    :param columns: column names; by default those of :data:`~fyrehose_twisted.journal.arrow.schema.RECORD`.
    :param options: other options of the source.
    :raises ConfigurationError: if ``parquet`` is combined with several journals of a stream, a start, or columns
        that the files lack, or if Spark has no file system for the URL. Spark raises other errors itself, as for any
        source.
    """
    from fyrehose_twisted.journal.arrow.schema import RECORD
    from fyrehose_twisted.spark.source.parquet_union import read_with_parquet

    register(spark)
    options.setdefault("directory", os.getcwd())
    if paths:
        options["paths"] = json.dumps([str(path) for path in paths])
    if parquet is not None:
        return read_with_parquet(spark, options, parquet, columns or RECORD)
    return spark.read.format("fyrehose").options(**options, columns=",".join(columns or RECORD)).load()


def query_journal(
    spark: SparkSession, query: str, *paths: str, columns: Sequence[str] = (), **options: str
) -> DataFrame:
    """Run a SQL query in which the records of journals are the table ``records``.

    Unlike a table from :func:`read_journal`, this reads only the columns that the query needs: counting records, or
    finding the highest number, reads no payloads. Columns that are not read are not checked for damage either.

    :param paths: as for :func:`read_journal`; so are ``columns`` and ``options``. With ``pushdown="once"``, conditions
        of the query are applied before reading; the returned table must then be used for one action only, without
        further conditions.
    """
    from fyrehose_twisted.journal.arrow.schema import RECORD
    from fyrehose_twisted.spark.source.pruning import query_pruned

    allowed = options.pop("pushdown", "false")

    def load(some: Iterable[str], pushdown: bool) -> DataFrame:
        return read_journal(spark, *paths, columns=tuple(some), pushdown=allowed if pushdown else "false", **options)

    return query_pruned(spark, query.strip().removesuffix(";"), "records", load, columns or RECORD)
