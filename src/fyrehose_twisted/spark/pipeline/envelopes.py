"""Envelope decoding in Spark functions: publisher, counter and repeats of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, MAGIC
from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC, KEY_OVERHEAD
from fyrehose_twisted.fyrehose.wire.term_start import MAGIC as TERM_MAGIC
from fyrehose_twisted.fyrehose.wire.term_start import TERM_START_SIZE
from fyrehose_twisted.repeats import WINDOW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PUBLISHER_SIZE = COUNTER_SIZE = NUMBER_SIZE = 8


def unwrapped(rows: DataFrame) -> DataFrame:
    """Remove envelopes and keys from ``payload`` and add the columns ``publisher`` and ``counter``.

    :return: ``publisher`` is hexadecimal. Both columns are null without an envelope. ``counter`` is signed: values from
        2**63 on, which no publisher reaches, are reduced by 2**64.
    """
    from pyspark.sql import functions as fn

    payload = fn.col("payload")
    publisher_at = len(MAGIC) + 1
    counter_at = publisher_at + PUBLISHER_SIZE
    begins = fn.substring(payload, 1, len(MAGIC)) == fn.lit(MAGIC)
    enveloped = begins & (fn.length(payload) >= ENVELOPE_SIZE)
    publisher = fn.lower(fn.hex(fn.substring(payload, publisher_at, PUBLISHER_SIZE)))
    counter = fn.conv(fn.hex(fn.substring(payload, counter_at, COUNTER_SIZE)), 16, -10).cast("bigint")
    length_at = ENVELOPE_SIZE + KEY_OVERHEAD
    key_size = fn.conv(fn.hex(fn.substring(payload, length_at, 1)), 16, 10).cast("int")
    keyed = (fn.substring(payload, ENVELOPE_SIZE + 1, len(KEY_MAGIC)) == fn.lit(KEY_MAGIC)) & (
        fn.length(payload) >= length_at + key_size
    )
    start = fn.when(keyed, key_size + length_at + 1).otherwise(fn.lit(ENVELOPE_SIZE + 1))
    bare = payload.substr(start, fn.length(payload))
    return rows.withColumns(
        {
            "payload": fn.when(enveloped, bare).otherwise(payload),
            "publisher": fn.when(enveloped, publisher),
            "counter": fn.when(enveloped, counter),
        }
    )


def with_repeats(rows: DataFrame) -> DataFrame:
    """Add the column ``repeat``, by the rule of :mod:`fyrehose_twisted.repeats`.

    The first message of a term of backbones that take over from one another counts as a repeat, since no publisher
    published it. Rows are compared only with each other. Include the :data:`~fyrehose_twisted.repeats.WINDOW` numbers
    before the first row of interest, or repeats of those numbers count as new.

    :param rows: rows from :func:`unwrapped`, with each number of a stream and epoch once.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    # Spreads rows without a publisher over several tasks.
    which = fn.coalesce(fn.col("counter"), fn.col("sequence"))
    same = Window.partitionBy("stream", "epoch", "publisher", which).orderBy("sequence")
    distance = fn.col("sequence") - fn.lag("sequence").over(same)
    repeated = fn.col("publisher").isNotNull() & (distance <= WINDOW)
    return rows.withColumn("repeat", fn.coalesce(repeated | _starts_term(), fn.lit(False)))


def _starts_term() -> Column:
    """Return whether ``payload`` is the first message of a term, which no publisher published."""
    from pyspark.sql import functions as fn

    payload = fn.col("payload")

    def number(position: int) -> Column:
        return fn.conv(fn.hex(fn.substring(payload, position, NUMBER_SIZE)), 16, 10).cast("decimal(20)")

    term, held_up_to, first = (number(len(TERM_MAGIC) + 1 + row * NUMBER_SIZE) for row in range(3))
    return (
        fn.col("publisher").isNull()
        & (fn.length(payload) == TERM_START_SIZE)
        & (fn.substring(payload, 1, len(TERM_MAGIC)) == fn.lit(TERM_MAGIC))
        & (term > 0)
        & (held_up_to < first)
        & (first == fn.col("sequence"))
    )
