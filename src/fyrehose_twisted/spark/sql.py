"""SQL queries over journals and the other commands' tables: ``fyrehose-pipeline sql``."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.arguments import parse_count
from fyrehose_twisted.spark.session import add_journal_options, locations_from_options, spark_session, split_name

# pyspark is imported when a query runs, because `fyrehose-pipeline --help` imports this module too.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DESCRIPTION = "Run a SQL query over journals and over the tables written by run and verify."
EPILOG = """\
Journals are the table "records". Tables in a directory written by run or verify keep their names: bronze, silver,
quarantine, findings and healed, and for gold traffic, latency, gaps and your own. With NAME=DIR their names become
NAME_silver and so on. Payloads are binary: cast(payload as string) converts one to text.
"""

RECORDS = "records"
TABLES = ("bronze", "silver", "quarantine", "findings", "healed")
"""Tables that an output directory may hold, besides those in ``gold``."""
GOLD = "gold"

PARTITIONS = {"epoch": "bigint", "bucket": "bigint", "batch": "bigint"}
"""Types of columns encoded in directory names. Other such columns are strings; inferred types depend on the values."""
_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"

DEFAULT_ROWS = 100
MAX_COLUMN_WIDTH = 100
"""Maximum width of a column of a printed table, in characters."""


class Table(NamedTuple):
    """Directory of Parquet files with its table name in a query."""

    name: str
    path: str


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sql",
        help=DESCRIPTION,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sql", metavar="QUERY", help="query in Spark SQL; - reads it from standard input")
    add_journal_options(parser, nargs="*")
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        type=_parse_table,
        metavar="NAME=PATH",
        help="add a table NAME from Parquet files: a file, directory or pattern (repeatable)",
    )
    parser.add_argument("--out", metavar="DIR", help="write the result as Parquet to DIR, which must not exist")
    parser.add_argument(
        "--format", choices=("table", "json", "csv"), default="table", help="output format of rows [%(default)s]"
    )
    parser.add_argument(
        "--rows", type=parse_count, default=DEFAULT_ROWS, metavar="N", help="print at most N rows [%(default)s]"
    )
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the query and return the exit status.

    :raises ConfigurationError: if two tables have the same name, or an output directory holds no table yet.
    """
    from fyrehose_twisted.spark.progress import show_progress

    query = sys.stdin.read() if options.sql == "-" else options.sql
    text = query.strip().removesuffix(";")
    tables, journals = _split_tables_and_journals(options.journals, options.table)
    # Check the locations before starting Java, which takes seconds.
    origins = locations_from_options(argparse.Namespace(**{**vars(options), "journals": journals})) if journals else []
    with spark_session("fyrehose sql", options) as spark, _views(spark, tables):
        if origins:
            from fyrehose_twisted.spark.source.options import reader_options
            from fyrehose_twisted.spark.source.pruning import query_pruned

            given = reader_options(origins, options.secret_file)

            def load(columns: Iterable[str], pushdown: bool) -> DataFrame:
                read = spark.read.format("fyrehose").options(**given)
                return read.options(columns=",".join(columns), pushdown="once" if pushdown else "false").load()

            found = query_pruned(spark, text, RECORDS, load)
        else:
            found = spark.sql(text)
        if options.out is not None:
            with show_progress(spark, "sql"):
                found.write.parquet(os.path.abspath(options.out) if "://" not in options.out else options.out)
        elif found.columns:
            with show_progress(spark, "sql"):
                names, rows = _collect(found, options.rows + 1)
            print_rows(names, rows[: options.rows], options.format)
            if len(rows) > options.rows:
                print(
                    f"fyrehose-pipeline: showing the first {options.rows:,} rows;"
                    " --rows N prints more, --out DIR writes all",
                    file=sys.stderr,
                )
    return 0


def tables_in(directory: str, name: str = "") -> list[Table]:
    """Return the tables in an output directory of ``run`` or ``verify``; empty for any other directory.

    :param name: prefix of the table names, joined with an underscore; empty for none.
    """
    before = f"{name}_" if name else ""
    found = [Table(before + table, os.path.join(directory, table)) for table in TABLES]
    gold = os.path.join(directory, GOLD)
    if os.path.isdir(gold):
        found += [
            Table(before + table, os.path.join(gold, table))
            for table in sorted(os.listdir(gold))
            if table[0] not in "_."
        ]
    # A directory without files has no schema.
    return [table for table in found if _has_parquet(table.path)]


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> None:
    """Print rows to standard output as a ``table``, as ``csv``, or as ``json`` with one object per line."""
    if form == "json":
        for row in rows:
            print(json.dumps(dict(zip(names, map(_to_json_value, row), strict=True)), ensure_ascii=False))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([["" if value is None else _text(value) for value in row] for row in rows])
    else:
        for line in _align(names, rows):
            print(line)


def _split_tables_and_journals(given: Iterable[str], tables: Iterable[Table]) -> tuple[list[Table], list[str]]:
    """Split arguments into tables and journals; an argument that names no output directory is a journal."""
    found, journals = list(tables), []
    for text in given:
        name, place = split_name(text)
        there = tables_in(place, name)
        if there:
            found += there
        elif os.path.exists(os.path.join(place, "_fyrehose")) or os.path.exists(os.path.join(place, "verify.json")):
            raise ConfigurationError(f"{place} holds no table yet")
        else:
            journals.append(text)
    seen: dict[str, str] = {RECORDS: "the journals"} if journals else {}
    for table in found:
        if table.name in seen:
            raise ConfigurationError(
                f"{table.name} would be {seen[table.name]} and {table.path}: rename one with NAME=DIR"
            )
        seen[table.name] = table.path
    return found, journals


@contextmanager
def _views(spark: SparkSession, tables: Iterable[Table]) -> Iterator[None]:
    """Register tables as temporary views; on exit, drop them and :data:`RECORDS`, which a caller may have added."""
    before = spark.conf.get(_INFERENCE)
    names = [RECORDS]
    try:
        spark.conf.set(_INFERENCE, "false")
        for table in tables:
            rows = spark.read.parquet(table.path)
            for column in PARTITIONS.keys() & set(rows.columns):
                rows = rows.withColumn(column, rows[column].cast(PARTITIONS[column]))
            rows.createOrReplaceTempView(f"`{table.name}`")
            names.append(table.name)
        spark.conf.set(_INFERENCE, str(before))
        yield
    finally:
        spark.conf.set(_INFERENCE, str(before))
        for name in names:
            spark.catalog.dropTempView(name)


def _collect(found: DataFrame, limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the column names and at most ``limit`` rows."""
    # Arrow returns times in UTC; collect() returns them in the local time zone, without a marker.
    table = found.limit(limit).toArrow()
    columns = [column.to_pylist() for column in table.columns]
    return list(table.column_names), list(zip(*columns, strict=True))


def _align(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    cells = [["null" if value is None else _truncate(_text(value)) for value in row] for row in rows]
    right = [
        all(isinstance(row[column], int | float) or row[column] is None for row in rows) for column in range(len(names))
    ]
    widths = [max(len(name), *(len(row[at]) for row in cells)) if cells else len(name) for at, name in enumerate(names)]

    def line(texts: Sequence[str]) -> str:
        sides = zip(texts, widths, right, strict=True)
        return "  ".join(text.rjust(width) if aside else text.ljust(width) for text, width, aside in sides).rstrip()

    yield line(names)
    yield "  ".join("-" * width for width in widths)
    yield from map(line, cells)


def _truncate(text: str) -> str:
    text = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\x1b", "\\x1b")
    return text if len(text) <= MAX_COLUMN_WIDTH else f"{text[: MAX_COLUMN_WIDTH - 1]}…"


def _text(value: Any) -> str:
    plain = _to_json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _to_json_value(value: Any) -> Any:
    """Convert a value for JSON: bytes become text if they are UTF-8, else hexadecimal."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return f"0x{value.hex()}"
        case datetime():
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Mapping():
            return {str(key): _to_json_value(one) for key, one in value.items()}
        case list() | tuple():
            return [_to_json_value(one) for one in value]
        case _:
            return str(value)


def _has_parquet(path: str) -> bool:
    return any(name.endswith(".parquet") for _, _, names in os.walk(path) for name in names)


def _parse_table(text: str) -> Table:
    name, equals, path = text.partition("=")
    if not (equals and name.isidentifier() and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=PATH, with a NAME of letters and digits")
    return Table(name, path)
