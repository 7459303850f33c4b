"""Column pruning for queries over the source.

Spark does not push column selection down to Python sources. Spark's optimized plan, however, shows which columns of
the source a query uses. The query then runs on a table in which the other columns are null and are not read.

Filters are pushed down only for a query that reads the table at one place: Spark pushes the filters of all places to
one reader, which keeps the last ones, and reads every place with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.spark.connect import is_connect
from fyrehose_twisted.spark.source.key_column import SOURCE_COLUMNS
from fyrehose_twisted.spark.source.plan_text import (
    analyzed_plan,
    is_read_once,
    may_resemble_plan,
    needed_columns_in_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_COLUMN = "segment"
"""Column that is never pruned: with it, rows are those of the segment files."""

FALLBACK_COLUMN = "sequence"
"""Column to read if a query needs none, since a table must have at least one."""

SOURCE, CACHED = "DataSourceV2", "InMemoryRelation"
"""Class name prefix of plan nodes that read a source, and class name of the node that reads a cached table."""

Load = Callable[[Iterable[str], bool], "DataFrame"]


def query_pruned(
    spark: SparkSession, query: str, view: str, load: Load, columns: Sequence[str] = tuple(SOURCE_COLUMNS)
) -> DataFrame:
    """Run ``query``, reading only the columns that Spark's plan needs.

    :param view: name of the table in the query. In a classic session, the view is created and remains.
    :param load: function that returns the table with the given columns, with or without filter pushdown.
    :param columns: columns of the table.
    """
    whole = load(columns, False)
    found = _run(spark, query, view, whole)
    needed, pushdown = needed_columns(found), reads_once(found)
    if is_connect(spark) and may_resemble_plan(query):
        needed = None
    if needed is None or needed.issuperset(columns):
        return _run(spark, query, view, load(columns, True)) if pushdown else found
    kept = [name for name in columns if name in needed or name == SEGMENT_COLUMN] or [FALLBACK_COLUMN]
    shown = [
        field.name if field.name in kept else f"CAST(NULL AS {field.dataType.simpleString()}) AS {field.name}"
        for field in whole.schema.fields
    ]
    return _run(spark, query, view, load(kept, pushdown).selectExpr(*shown))


def reads_once(frame: DataFrame) -> bool:
    """Return whether a query reads one Python source, at one place."""
    given: Any = frame
    if is_connect(frame.sparkSession):
        return is_read_once(analyzed_plan(given._explain_string(extended=True)))
    # Unlike the analyzed plan, this one shows that a command has already run.
    return is_read_once(given._jdf.queryExecution().commandExecuted().toString())


def _run(spark: SparkSession, query: str, view: str, table: DataFrame) -> DataFrame:
    if not is_connect(spark):
        table.createOrReplaceTempView(view)
        return spark.sql(query)
    # Spark Connect looks up a view only when rows are requested, and may then find that of a later query.
    query = query.replace("{", "{{").replace("}", "}}")
    return spark.sql(f"WITH {view} AS (SELECT * FROM {{table}})\nSELECT * FROM (\n{query}\n)", table=table)


def needed_columns(frame: DataFrame) -> set[str] | None:
    """Return the columns of Python sources that a query uses; ``None`` if it may use all."""
    given: Any = frame
    if is_connect(frame.sparkSession):
        return needed_columns_in_text(given._explain_string(extended=True))
    plan = given._jdf
    ways = list(_source_paths(plan.queryExecution().optimizedPlan(), ()))
    found = [None if _class_name(above[0]) == CACHED else _used_columns(above) for above in ways]
    if not found or None in found:
        return None
    return set().union(*(names for names in found if names is not None))


def _source_paths(node: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the path from each source or cached table of a plan up to its root."""
    children, within = node.children(), node.subqueries()
    for index in range(within.size()):
        yield from _source_paths(within.apply(index), ())
    for index in range(children.size()):
        yield from _source_paths(children.apply(index), (node, *above))
    if children.isEmpty() and (_class_name(node).startswith(SOURCE) or _class_name(node) == CACHED):
        yield (node, *above)


def _class_name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _used_columns(above: tuple[Any, ...]) -> set[str] | None:
    source, *nodes = above
    outputs = source.output()
    names = {outputs.apply(index).exprId().id(): outputs.apply(index).name() for index in range(outputs.size())}
    found: set[str] = set()
    for node in nodes:
        references = node.references().toSeq()
        ids = (references.apply(index).exprId().id() for index in range(references.size()))
        found |= {names[number] for number in ids if number in names}
        match _class_name(node):
            case "Project" | "Aggregate":
                return found  # These nodes pass on no other columns.
            case "Filter":
                continue
            case _:
                return None
    return None
