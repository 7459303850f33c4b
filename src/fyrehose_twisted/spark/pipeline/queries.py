"""Gold tables defined by the user's SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.connect import require_classic
from fyrehose_twisted.spark.pipeline.gold import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEWS = ("bronze", "silver", "quarantine", *TABLES)
"""Tables that queries can read."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def read_queries(spark: SparkSession, directory: str) -> dict[str, str]:
    """Return the text of each file ``NAME.sql``, by name.

    :raises ConfigurationError: if there is no file, a file is not SQL, its name is invalid or in :data:`VIEWS`, or the
        session is one of Spark Connect.
    :raises OSError: if a file cannot be read.
    """
    from pyspark.errors import ParseException

    require_classic(spark, "the pipeline")
    if not Path(directory).is_dir():
        raise ConfigurationError(f"--sql {directory}: there is no such directory")
    queries = {}
    for path in sorted(Path(directory).glob("*.sql")):
        if not _NAME.fullmatch(path.stem) or path.stem in VIEWS:
            raise ConfigurationError(
                f"{path}: its table would be called {path.stem!r}; use letters, digits, - and _, and none of the names"
                f" {', '.join(VIEWS)}"
            )
        text = path.read_text(encoding="utf-8").strip().removesuffix(";")
        parser: Any = spark
        try:
            parser._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except ParseException as error:
            raise ConfigurationError(f"{path} is not SQL: {_first_line(error)}") from None
        queries[path.stem] = text
    if not queries:
        raise ConfigurationError(f"--sql {directory}: there is no file NAME.sql in it")
    return queries


def write_queries(
    spark: SparkSession, queries: Mapping[str, str], tables: Mapping[str, DataFrame], gold: str
) -> list[str]:
    """Replace the table of each query and return the tables' names.

    :param tables: tables that the queries read, by the names of :data:`VIEWS`.
    :param gold: output directory.
    :raises ConfigurationError: if a query does not fit these tables.
    """
    from pyspark.errors import AnalysisException

    with _views(spark, tables):
        for name, text in queries.items():
            try:
                spark.sql(text).write.mode("overwrite").parquet(f"{gold}/{name}")
            except AnalysisException as error:
                raise ConfigurationError(f"{name}.sql cannot be run: {_first_line(error)}") from None
    return sorted(queries)


@contextmanager
def _views(spark: SparkSession, tables: Mapping[str, DataFrame]) -> Iterator[None]:
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in tables:
            spark.catalog.dropTempView(name)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
