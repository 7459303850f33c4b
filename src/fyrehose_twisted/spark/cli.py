"""Command line of ``fyrehose-pipeline``: refinement, comparison, queries and reports of journals on Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fyrehose_twisted.process.program import ProgramParser, run_program
from fyrehose_twisted.spark import sql
from fyrehose_twisted.spark.errors import error_line
from fyrehose_twisted.spark.pipeline import command as pipeline_command
from fyrehose_twisted.spark.report import command as report_command
from fyrehose_twisted.spark.session import add_session_options
from fyrehose_twisted.spark.verify import command as verify_command

EXIT_FAILURE = 3
"""Exit status of a failed command; 1 and 2 are results of a comparison."""

COMMANDS = (pipeline_command, verify_command, sql, report_command)


class _Parser(ProgramParser):
    usage_status = EXIT_FAILURE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 for losses, 2 for journals that differ, 3 for failure."""

    run_program(_parser(), arguments, _describe_error, EXIT_FAILURE)


def _describe_error(error: BaseException) -> tuple[str, int] | None:
    line = "interrupted" if isinstance(error, KeyboardInterrupt) else error_line(error)
    return None if line is None else (line, EXIT_FAILURE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fyrehose-pipeline",
        description="Refine journals into tables, compare them, query them in SQL and write reports, using Spark.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        add_session_options(command.add_parser(commands))
    return parser
