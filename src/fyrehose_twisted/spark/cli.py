"""Command line of ``fyrehose-pipeline``: refinement, comparison, queries and reports of journals on Spark."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fyrehose_twisted.spark import sql
from fyrehose_twisted.spark.errors import error_line
from fyrehose_twisted.spark.pipeline import command as pipeline_command
from fyrehose_twisted.spark.report import command as report_command
from fyrehose_twisted.spark.session import add_session_options
from fyrehose_twisted.spark.verify import command as verify_command

EXIT_FAILURE = 3
"""Exit status of a failed command; 1 and 2 are results of a comparison."""

COMMANDS = (pipeline_command, verify_command, sql, report_command)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_FAILURE, f"fyrehose-pipeline: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 for losses, 2 for journals that differ, 3 for failure."""
    if sys.stderr is None:  # The parent process closed it; print() would write to standard output instead.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    options = _parser().parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = print_error("interrupted")
    except BrokenPipeError:
        # The reader of standard output is gone. Without a replacement, Python reports the broken pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = EXIT_FAILURE
    except Exception as error:
        line = error_line(error)
        if line is None:
            raise
        status = print_error(line)
    sys.exit(status)


def print_error(problem: object) -> int:
    """Print an error on one line and return the exit status."""
    print(f"fyrehose-pipeline: {problem}", file=sys.stderr)
    return EXIT_FAILURE


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fyrehose-pipeline",
        description="Refine journals into tables, compare them, query them in SQL and write reports, using Spark.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        add_session_options(command.add_parser(commands))
    return parser
