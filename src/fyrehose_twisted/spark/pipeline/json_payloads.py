"""Reading payloads as JSON: with a schema that is given, or one that a sample shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

CORRUPT_FIELD = "_corrupt_record"
"""A field that Spark fills with what it cannot read; no message may have one of this name."""

SECONDS_BELOW, MILLISECONDS_BELOW, MICROSECONDS_BELOW = 1e11, 1e14, 1e17
"""A number that says when a message was sent is taken for seconds since 1970 below the first, and so on; from the last
on it is nanoseconds. So times of this century are told apart: 1e11 is the year 5138 in seconds, and 1973 in
milliseconds."""


def parse_schema_option(spark: SparkSession, text: str) -> StructType:
    """Return the schema that a user names.

    :param text: as in CREATE TABLE, such as ``price DOUBLE, at TIMESTAMP``; or the name of a file that has this, or
        the JSON that Spark writes for a schema.
    :raises ConfigurationError: if it is none.
    """
    from pyspark.errors import PySparkException

    where = text
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            text = file.read().strip()
    try:
        schema = parse_schema(text)
    except (PySparkException, ValueError, KeyError) as error:
        raise ConfigurationError(f"--schema {where!r} is no schema: {_first_line(error)}") from None
    if not schema.fields:
        raise ConfigurationError(f"--schema {where!r}: a message has named fields, as in 'price DOUBLE, at TIMESTAMP'")
    if "variant" in schema.simpleString():
        raise ConfigurationError(f"--schema {where!r} has a VARIANT, which little but Spark can read; use STRING")
    if CORRUPT_FIELD in schema.fieldNames():
        raise ConfigurationError(f"--schema {where!r}: a field cannot be called {CORRUPT_FIELD}")
    return schema


def parse_schema(text: str) -> StructType:
    """Return the schema that a text, in DDL or as JSON, describes.

    :raises ValueError: if it is a type, but not that of something with fields; else raises what Spark raises.
    """
    import json

    from pyspark.sql.types import StructType

    kind = StructType.fromJson(json.loads(text)) if text.startswith("{") else StructType.fromDDL(text)
    if not isinstance(kind, StructType):
        raise ValueError(f"{kind.simpleString()} has no fields")
    return kind


def inferred_schema(rows: DataFrame, limit: int) -> StructType | None:
    """Return the schema of the JSON objects among the first ``limit`` payloads, ``None`` if there are none.

    Of fields whose names differ in case only, one is kept: tables have no others.

    :param rows: with a column ``payload``, without envelopes.
    """
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StructType

    text = _text()
    is_object = fn.is_valid_utf8(text) & fn.ltrim(text).startswith("{") & fn.try_parse_json(text).isNotNull()
    sample = rows.where("payload is not null").limit(limit).where(is_object).select(text.alias("value"))
    found = rows.sparkSession.read.json(sample).schema
    cleaned = _drop_case_duplicates(StructType([field for field in found.fields if field.name != CORRUPT_FIELD]))
    assert isinstance(cleaned, StructType)
    return cleaned if cleaned.fields else None


def with_messages(rows: DataFrame, schema: StructType | None) -> DataFrame:
    """Return ``rows`` with ``message``, the fields of ``payload``, and ``bad_json``, why there are none.

    Without a schema there is no ``message``, and ``bad_json`` is null.
    """
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructField, StructType

    nothing = fn.lit(None).cast("string")
    if schema is None:
        return rows.withColumn("bad_json", nothing)
    text = _text()
    wanted = StructType([*schema.fields, StructField(CORRUPT_FIELD, StringType())])
    rows = rows.withColumn("_read", fn.from_json(text, wanted, {"columnNameOfCorruptRecord": CORRUPT_FIELD}))
    bad = (
        fn.when(fn.col("payload").isNull(), nothing)
        .when(fn.length("payload") == 0, "empty")
        .when(~fn.is_valid_utf8(text), "not UTF-8")
        .when(fn.col(f"_read.{CORRUPT_FIELD}").isNull() & fn.ltrim(text).startswith("{"), nothing)
        .when(fn.try_parse_json(text).isNull(), "not JSON")
        .when(~fn.ltrim(text).startswith("{"), "not an object")
        .otherwise("does not fit the schema")
    )
    fields = fn.struct(*(fn.col("_read").getField(name).alias(name) for name in schema.fieldNames()))
    fine = fn.col("payload").isNotNull() & fn.col("bad_json").isNull()
    return rows.withColumn("bad_json", bad).withColumn("message", fn.when(fine, fields)).drop("_read")


def sent_time_micros(field: str) -> Column:
    """Return when a message was sent, in microseconds since 1970, as a field of its JSON says; null if that says none.

    :param field: its name, with dots where it is within others. A number counts s, ms, µs or ns since 1970, whichever
        gives a time of this millennium; a text is ISO 8601, UTC unless it names a zone.
    """
    from pyspark.sql import functions as fn

    text = _text()
    path = "$" + "".join(f"['{name}']" for name in field.split("."))
    said = fn.when(fn.is_valid_utf8(text), fn.get_json_object(text, path))
    number = said.try_cast("double")
    size = fn.abs(number)
    micros = (
        fn.when(size < SECONDS_BELOW, number * 1e6)
        .when(size < MILLISECONDS_BELOW, number * 1e3)
        .when(size < MICROSECONDS_BELOW, number)
        .when(size >= MICROSECONDS_BELOW, number / 1e3)
    )
    return fn.coalesce(fn.round(micros).try_cast("bigint"), fn.unix_micros(said.try_cast("timestamp")))


def check_field(field: str) -> str:
    """Return ``field``. :raises ConfigurationError: if it cannot be the name of one."""
    if not all(field.split(".")) or "'" in field:
        raise ConfigurationError(f"--sent-at {field!r} is no name of a field; write FIELD, or OUTER.INNER")
    return field


def _text() -> Column:
    from pyspark.sql import functions as fn

    return fn.col("payload").cast("string")


def _drop_case_duplicates(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(kind, ArrayType):
        return ArrayType(_drop_case_duplicates(kind.elementType), kind.containsNull)
    if not isinstance(kind, StructType):
        return kind
    kept: dict[str, StructField] = {}
    for field in kind.fields:
        kept.setdefault(
            field.name.lower(), StructField(field.name, _drop_case_duplicates(field.dataType), field.nullable)
        )
    return StructType(list(kept.values()))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
