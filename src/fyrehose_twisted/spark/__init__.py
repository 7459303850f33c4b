"""Journals in Spark: a data source, the comparison of replicas, a pipeline and a sink."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make ``format("fyrehose")`` known to a session, and allow it to look at filters.

    Spark finds the source by itself, too, unless some other package whose name begins with ``pyspark_`` is broken.
    """
    from fyrehose_twisted.spark.source.data_source import FyrehoseDataSource

    # Spark's workers, which look up paths, have a working directory of their own. A class that is made here, and cannot
    # be imported, is pickled with all that it has.
    made = {"__module__": __name__, "__doc__": FyrehoseDataSource.__doc__, "directory": os.getcwd()}
    spark.dataSource.register(type("FyrehoseDataSource", (FyrehoseDataSource,), made))
    spark.conf.set(PUSHDOWN, "true")


def read_journal(
    spark: SparkSession, *paths: str, parquet: str | None = None, columns: Sequence[str] = (), **options: str
) -> DataFrame:
    """Return the records of journals as a table.

    :param paths: directories of journals; for journals that are served, give none and ``journal="HOST:PORT,..."``.
    :param parquet: the directory to which ``fyrehose journal seal --parquet`` wrote these journals. What it has Spark
        reads by itself, which is faster, and the source only what came later.
    :param columns: names of columns; by default those of :data:`~fyrehose_twisted.journal.arrow.schema.RECORD`.
    :param options: other options of the source.
    :raises ConfigurationError: if ``parquet`` is given with several journals of a stream, a start, or columns that
        files do not have. What else is wrong, Spark raises as it does for each source.
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
    """Return the result of a query in SQL, in which the records of journals are the table ``records``.

    Other than with a table, as :func:`read_journal` returns it, only the columns are read that the query needs: to
    count records, or to look for the highest number, costs no payload. What is not read is not checked either.

    :param paths: as for :func:`read_journal`; so are ``columns`` and ``options``.
    """
    from fyrehose_twisted.journal.arrow.schema import RECORD
    from fyrehose_twisted.spark.source.pruning import query_pruned

    def load(some: Iterable[str]) -> DataFrame:
        return read_journal(spark, *paths, columns=tuple(some), **{"pushdown": "true", **options})

    return query_pruned(spark, query.strip().removesuffix(";"), "records", load, columns or RECORD)
