"""Comparison of independent journals of a stream: ``fyrehose-pipeline verify``."""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.process.arguments import parse_count
from fyrehose_twisted.spark.session import add_journal_options, locations_from_options, spark_session

# Modules that need Spark are imported on use, because --help imports this module too.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fyrehose_twisted.spark.verify.output import VerificationOutput
    from fyrehose_twisted.spark.verify.verification import Verification

DESCRIPTION = (
    "Compare journals of the same stream. Exit status 0: complete and identical; 1: numbers are lost or damaged;"
    " 2: payloads differ, or records are out of order; 3: the comparison failed."
)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify", help="Compare journals of the same stream.", description=DESCRIPTION
    )
    add_journal_options(parser)
    parser.add_argument("--out", metavar="DIR", help="write tables to DIR, replacing an earlier verification")
    parser.add_argument("--no-healed", action="store_true", help="do not write the healed stream")
    parser.add_argument(
        "--tolerance",
        type=_parse_seconds,
        default=60.0,
        metavar="SECONDS",
        help="allowed clock regression between records, in seconds [%(default)g]",
    )
    parser.add_argument(
        "--rows-per-partition",
        type=parse_count,
        default=1_000_000,
        metavar="N",
        help="numbers per task [%(default)s]",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status, 0 to 2.

    :raises ConfigurationError: if an option is invalid, or a journal is given twice.
    :raises JournalError: if a journal cannot be read. Spark raises its own error if a worker cannot read one.
    """
    origins = locations_from_options(options)
    with spark_session("fyrehose verify", options) as spark:
        from fyrehose_twisted.spark.verify.output import VerificationOutput
        from fyrehose_twisted.spark.verify.verdict import verdict
        from fyrehose_twisted.spark.verify.verification import Verification

        output = None if options.out is None else VerificationOutput(spark, options.out)
        began = time.monotonic()
        with Verification(
            spark, origins, tolerance=options.tolerance, rows_per_partition=options.rows_per_partition
        ) as verification:
            if output is None:
                summary = _summary(spark, verification, began)
            else:
                with output.replace_atomically():
                    summary = _write(spark, verification, output, began, healed=not options.no_healed)
        if options.json:
            print(json.dumps(summary))
        else:
            *lines, last = verdict(summary)
            if output is not None:
                lines.append(f"tables: {', '.join(_tables(options))} in {output.location}")
            print("\n".join([*lines, last]))
        status: int = summary["status"]
        return status


def _summary(spark: SparkSession, verification: Verification, began: float) -> dict[str, Any]:
    from fyrehose_twisted.spark.verify.progress import show_verify_progress
    from fyrehose_twisted.spark.verify.summary import summary_of

    with show_verify_progress(spark, "comparing", verification):
        summary = summary_of(verification)
    return summary | {"seconds": round(time.monotonic() - began, 3)}


def _write(
    spark: SparkSession, verification: Verification, output: VerificationOutput, began: float, *, healed: bool
) -> dict[str, Any]:
    from fyrehose_twisted.spark.verify import output as names
    from fyrehose_twisted.spark.verify.progress import show_verify_progress
    from fyrehose_twisted.spark.verify.tables import HEALED_SCHEMA, QUARANTINE_SCHEMA

    summary = _summary(spark, verification, began)
    output.write(names.FINDINGS, verification.findings())
    if healed and not verification.numbers:
        output.write_empty(names.HEALED, HEALED_SCHEMA)
    elif healed:
        with show_verify_progress(spark, "healing", verification):
            output.write_partitioned(names.HEALED, verification.healed())
    if "divergence/payload" in summary["findings"]:
        with show_verify_progress(spark, "quarantine", verification):
            output.write_partitioned(names.QUARANTINE, verification.quarantine())
    else:
        output.write_empty(names.QUARANTINE, QUARANTINE_SCHEMA)
    summary["seconds"] = round(time.monotonic() - began, 3)
    output.write_summary(summary)
    return summary


def _tables(options: argparse.Namespace) -> list[str]:
    return ["findings", *([] if options.no_healed else ["healed"]), "quarantine", "verify.json"]


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 2**40:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of at least 0")
    return seconds
