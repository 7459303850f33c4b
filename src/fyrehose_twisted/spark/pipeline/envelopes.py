"""Taking the envelope off payloads, in Spark's own functions: who published a message, which of theirs it is, and
whether it is a repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC
from fyrehose_twisted.repeats import WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PUBLISHER_SIZE = COUNTER_SIZE = 8


def unwrapped(rows: DataFrame) -> DataFrame:
    """Return ``rows`` with ``payload`` as it was published, and the columns ``publisher`` and ``counter``.

    :return: ``publisher`` is in hexadecimal, and null, as ``counter`` is, if there is no envelope. ``counter`` is
        signed: those from 2**63 on, which no publisher reaches, are given less 2**64.
    """
    from pyspark.sql import functions as fn

    payload = fn.col("payload")
    publisher_at = len(MAGIC) + 1
    counter_at = publisher_at + PUBLISHER_SIZE
    begins = fn.substring(payload, 1, len(MAGIC)) == fn.lit(MAGIC)
    enveloped = begins & (fn.length(payload) >= ENVELOPE_SIZE)
    publisher = fn.lower(fn.hex(fn.substring(payload, publisher_at, PUBLISHER_SIZE)))
    counter = fn.conv(fn.hex(fn.substring(payload, counter_at, COUNTER_SIZE)), 16, -10).cast("bigint")
    bare = fn.expr(f"substring(payload, {ENVELOPE_SIZE + 1})")
    return rows.withColumns(
        {
            "payload": fn.when(enveloped, bare).otherwise(payload),
            "publisher": fn.when(enveloped, publisher),
            "counter": fn.when(enveloped, counter),
        }
    )


def with_repeats(rows: DataFrame) -> DataFrame:
    """Return ``rows`` with the column ``repeat``, by the rule of :mod:`fyrehose_twisted.repeats`.

    A row is compared with those that are given: the :data:`~fyrehose_twisted.repeats.WINDOW` numbers before the first
    row have to be among them, or a row whose first copy is there counts as new.

    :param rows: as :func:`unwrapped` returns them, each number of a stream and epoch once.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    # Those without a publisher must not all come to one task.
    which = fn.coalesce(fn.col("counter"), fn.col("sequence"))
    same = Window.partitionBy("stream", "epoch", "publisher", which).orderBy("sequence")
    distance = fn.col("sequence") - fn.lag("sequence").over(same)
    repeated = fn.col("publisher").isNotNull() & (distance <= WINDOW)
    return rows.withColumn("repeat", fn.coalesce(repeated, fn.lit(False)))
