"""Conversion of journals into tables: ``fyrehose-pipeline run``."""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.arguments import parse_count
from fyrehose_twisted.spark.session import add_journal_options, locations_from_options, spark_session

# Modules that need pyspark are imported on use, because --help imports this module too.
if TYPE_CHECKING:
    from fyrehose_twisted.spark.pipeline.run import PipelineSummary

DESCRIPTION = "Convert journals into tables: bronze as stored, silver with each number once, gold aggregated over time."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser("run", help=DESCRIPTION, description=DESCRIPTION)
    add_journal_options(parser)
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="output directory, or a URI that Spark can write to")
    add("--once", action="store_true", help="process current records and exit; default: run until interrupted")
    add("--trigger", type=_parse_seconds, default=10.0, metavar="SECONDS", help="batch interval [%(default)g]")
    add(
        "--refresh",
        type=_parse_seconds,
        default=60.0,
        metavar="SECONDS",
        help="refresh interval of silver and gold [%(default)g]",
    )
    add("--max-rows-per-batch", type=parse_count, default=5_000_000, metavar="N", help="rows per batch [%(default)s]")
    add(
        "--data-loss",
        choices=("fail", "lost"),
        default="fail",
        help="on dropped or damaged records, fail, or count them as lost and continue [%(default)s]",
    )
    add(
        "--metrics",
        type=_parse_port,
        metavar="PORT",
        help="serve Prometheus metrics of the query's progress at 127.0.0.1:PORT/metrics",
    )
    add(
        "--seal-key-file",
        action="append",
        default=[],
        metavar="FILE",
        help="open the records of a sealed stream with the keys in FILE; the tables then hold what was published"
        " (repeatable)",
    )
    add("--sql", metavar="DIR", help="directory of queries NAME.sql; each writes the table gold/NAME")
    tables = parser.add_argument_group("tables", "These options are stored with the tables; later runs reuse them.")
    add = tables.add_argument
    json = tables.add_mutually_exclusive_group()
    json.add_argument(
        "--schema", metavar="DDL", help="schema of JSON messages, such as 'price DOUBLE, at TIMESTAMP', or its file"
    )
    json.add_argument(
        "--infer-sample",
        type=parse_count,
        default=10_000,
        metavar="N",
        help="sample size for schema inference without --schema [%(default)s]",
    )
    json.add_argument("--no-json", action="store_true", help="do not parse messages as JSON")
    add("--window", metavar="DURATION", help="length of a gold window ['1 minute']")
    add("--sent-at", metavar="FIELD", help="JSON field with the send time, from which latency is measured")
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    :raises FyrehoseError: if an option is invalid, or the pipeline fails. Errors of Spark also propagate.
    """
    from fyrehose_twisted.spark.pipeline.gold import check_window
    from fyrehose_twisted.spark.pipeline.json_payloads import check_field

    if options.window is not None:
        check_window(options.window)
    if options.sent_at:
        check_field(options.sent_at)
        if options.no_json:
            raise ConfigurationError("--sent-at names a field of JSON messages: omit it or --no-json")
    origins = locations_from_options(options)
    with spark_session("fyrehose run", options) as spark:
        from fyrehose_twisted.spark.listener import stream_progress
        from fyrehose_twisted.spark.pipeline.queries import read_queries
        from fyrehose_twisted.spark.pipeline.run import Pipeline, Plan, stop_on_signals
        from fyrehose_twisted.spark.pipeline.settings import RequestedSettings

        plan = Plan(
            locations=origins,
            out=options.out,
            once=options.once,
            trigger=options.trigger,
            refresh=options.refresh,
            max_rows=options.max_rows_per_batch,
            fail_on_data_loss=options.data_loss == "fail",
            secret_file=options.secret_file,
            seal_key_files=options.seal_key_file,
            requested=RequestedSettings(
                options.schema, options.infer_sample, options.no_json, options.window, options.sent_at
            ),
            queries=read_queries(spark, options.sql) if options.sql else {},
        )
        pipeline = Pipeline(spark, plan)
        with ExitStack() as around:
            if options.metrics is not None:
                from fyrehose_twisted.spark.metrics import query_metrics

                around.enter_context(query_metrics(spark, options.metrics))
            around.enter_context(stop_on_signals(pipeline))
            around.enter_context(stream_progress(spark))
            summary = pipeline.run()
    for line in format_summary(summary):
        print(line)
    return 0


def _parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 1 to 65535")
    return int(text)


def format_summary(summary: PipelineSummary) -> list[str]:
    """Format a summary as lines for the user."""
    lines = [
        f"{summary.out}",
        f"  bronze      {_counted(summary.bronze_rows, 'row')} in {_batches(summary.batches)},"
        f" {summary.new_batches:,} of them new",
        f"  silver      {_counted(summary.numbers, 'number')}, {summary.lost:,} of them lost"
        f"{'; messages are read as JSON' if summary.reads_json else ''}",
        f"  quarantine  {_counted(summary.quarantined, 'number')} on which journals disagree",
    ]
    lines += [f"  gold/{name.ljust(11)} {_counted(rows, 'row')}" for name, rows in summary.tables.items()]
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
