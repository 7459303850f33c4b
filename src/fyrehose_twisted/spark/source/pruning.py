"""Column pruning for queries over the source.

Spark does not push column selection down to Python sources. Spark's optimized plan, however, shows which columns of
the source a query uses. The query then runs on a table in which the other columns are null and are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.spark.source.key_column import SOURCE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_COLUMN = "segment"
"""Column that is never pruned: with it, rows are those of the segment files."""

FALLBACK_COLUMN = "sequence"
"""Column to read if a query needs none, since a table must have at least one."""

SOURCE, CACHED = "DataSourceV2", "InMemoryRelation"
"""Class name prefix of plan nodes that read a source, and class name of the node that reads a cached table."""

Load = Callable[[Iterable[str]], "DataFrame"]


def query_pruned(
    spark: SparkSession, query: str, view: str, load: Load, columns: Sequence[str] = tuple(SOURCE_COLUMNS)
) -> DataFrame:
    """Run ``query``, reading only the columns that Spark's plan needs.

    :param view: name of the table in the query. The view is created and remains.
    :param load: function that returns the table with the given columns.
    :param columns: columns of the table.
    """
    whole = load(columns)
    whole.createOrReplaceTempView(view)
    found = spark.sql(query)
    needed = needed_columns(found)
    if needed is None or needed.issuperset(columns):
        return found
    from pyspark.sql.functions import col, lit

    kept = [name for name in columns if name in needed or name == SEGMENT_COLUMN] or [FALLBACK_COLUMN]
    shown = [
        col(name) if name in kept else lit(None).cast(field.dataType).alias(name)
        for name, field in zip(whole.columns, whole.schema.fields, strict=True)
    ]
    load(kept).select(*shown).createOrReplaceTempView(view)
    return spark.sql(query)


def needed_columns(frame: DataFrame) -> set[str] | None:
    """Return the columns of Python sources that a query uses; ``None`` if it may use all, or there is no plan."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:  # Spark Connect keeps it on the server.
        return None
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
