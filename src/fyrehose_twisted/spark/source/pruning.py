"""Reading only the columns that a query needs.

Spark tells a source in Python nothing of them. But once Spark has made a plan, it can be seen in there which columns of
the source are used; the query is then given a table in which the others are null, and not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.journal.arrow.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_COLUMN = "segment"
"""With this column rows are as they stand in files, so it is never left out."""

FALLBACK_COLUMN = "sequence"
"""A column to read where none is needed: a table has to have one."""

SOURCE, CACHED = "DataSourceV2", "InMemoryRelation"
"""How the classes of Spark's plan begin that read a source, and the one that reads what was cached of any."""

Load = Callable[[Iterable[str]], "DataFrame"]


def query_pruned(
    spark: SparkSession, query: str, view: str, load: Load, columns: Sequence[str] = tuple(COLUMNS)
) -> DataFrame:
    """Return the result of ``query``, for which as few columns are read as Spark's plan shows to be needed.

    :param view: what the query calls the table. It is made, and stays.
    :param load: given names of columns, returns the table with these.
    :param columns: those of the table.
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
    """Return which columns of sources in Python a query uses; ``None`` if all may be, or Spark shows no plan."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:  # Spark Connect keeps it on the server.
        return None
    ways = list(_source_paths(plan.queryExecution().optimizedPlan(), ()))
    found = [None if _class_name(above[0]) == CACHED else _used_columns(above) for above in ways]
    if not found or None in found:
        return None
    return set().union(*(names for names in found if names is not None))


def _source_paths(node: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield, for each source in a plan and for each table that is kept in memory, the nodes from there upwards."""
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
                return found  # Nothing else passes these.
            case "Filter":
                continue
            case _:
                return None
    return None
