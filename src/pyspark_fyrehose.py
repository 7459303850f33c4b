"""Where Spark looks for ``format("fyrehose")`` by itself: in each module whose name begins with ``pyspark_``."""

from contextlib import suppress

# If one such module cannot be imported, Spark finds none of the others. Without pyspark[sql] nobody asks for ours;
# register() of fyrehose_twisted.spark says what is wrong.
with suppress(ImportError):
    from fyrehose_twisted.spark.source.data_source import FyrehoseDataSource as DefaultSource  # noqa: F401
