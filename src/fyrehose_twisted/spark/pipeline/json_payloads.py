"""JSON payloads, parsed with a given schema or one inferred from a sample."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

CORRUPT_FIELD = "_corrupt_record"
"""Field for Spark's unparsable input; messages must not have a field of this name."""

SECONDS_BELOW, MILLISECONDS_BELOW, MICROSECONDS_BELOW = 1e11, 1e14, 1e17
"""Limits that determine the unit of a numeric send time since 1970: seconds below the first, milliseconds below the
second, microseconds below the third, else nanoseconds. They distinguish times of this century: 1e11 is the year 5138
in seconds, and 1973 in milliseconds."""


def parse_schema_option(spark: SparkSession, text: str) -> StructType:
    """Parse the option ``--schema``.

    :param text: DDL as in CREATE TABLE, such as ``price DOUBLE, at TIMESTAMP``, or Spark's JSON form of a schema; or
        the path of a file with either.
    :raises ConfigurationError: if ``text`` is not a supported schema.
    """
    from pyspark.errors import PySparkException

    where = text
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            text = file.read().strip()
    try:
        schema = parse_schema(text)
    except (PySparkException, ValueError, KeyError) as error:
        raise ConfigurationError(f"--schema {where!r} is not a schema: {_first_line(error)}") from None
    if not schema.fields:
        raise ConfigurationError(f"--schema {where!r}: name the fields, as in 'price DOUBLE, at TIMESTAMP'")
    if "variant" in schema.simpleString():
        raise ConfigurationError(f"--schema {where!r} has a VARIANT, which few other programs read: use STRING")
    if CORRUPT_FIELD in schema.fieldNames():
        raise ConfigurationError(f"--schema {where!r}: a field cannot be called {CORRUPT_FIELD}")
    return schema


def parse_schema(text: str) -> StructType:
    """Parse a schema from DDL or JSON.

    :raises ValueError: if ``text`` is a type without fields. Errors of Spark also propagate.
    """
    import json

    from pyspark.sql.types import StructType

    kind = StructType.fromJson(json.loads(text)) if text.startswith("{") else StructType.fromDDL(text)
    if not isinstance(kind, StructType):
        raise ValueError(f"{kind.simpleString()} has no fields")
    return kind


def inferred_schema(rows: DataFrame, limit: int) -> StructType | None:
    """Infer the schema of the JSON objects among the first ``limit`` payloads; return ``None`` if there are none.

    Of fields whose names differ only in case, one is kept, since column names are case-insensitive.

    :param rows: rows with a column ``payload``, without envelopes.
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
    """Add the columns ``message``, the parsed ``payload``, and ``bad_json``, the reason for a parse failure.

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
    """Return the send time from a JSON field, in microseconds since 1970; null if the field has no valid time.

    :param field: name of the field; dots separate the names of nested fields. A number counts s, ms, µs or ns since
        1970; its magnitude determines the unit. A string is ISO 8601, in UTC unless it names a zone.
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
    """Check a field name and return it. :raises ConfigurationError: if ``field`` is not a valid name."""
    if not all(field.split(".")) or "'" in field:
        raise ConfigurationError(f"--sent-at {field!r} is not a field name: use FIELD or OUTER.INNER")
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
