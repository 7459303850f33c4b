"""The ``fyrehose-experiments`` command: sweeps over many networks, and their reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fyrehose_twisted.experiments.sweep.cli import report, sweep
from fyrehose_twisted.process.program import ProgramParser, run_program
from fyrehose_twisted.spark.errors import error_line

EXIT_IMPOSSIBLE = 3
"""Exit status if the command could not run. Status 1 means that networks of a sweep failed."""

INTERRUPTED = "interrupted; run the same command to resume"


class _Parser(ProgramParser):
    usage_status = EXIT_IMPOSSIBLE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 for failed networks, 3 if the command could not run."""

    run_program(_parser(), arguments, _describe_error, EXIT_IMPOSSIBLE)


def _describe_error(error: BaseException) -> tuple[str, int] | None:
    # A Spark session may fail to stop after an interrupt.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt):
        return INTERRUPTED, EXIT_IMPOSSIBLE
    line = error_line(error)
    return None if line is None else (line, EXIT_IMPOSSIBLE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fyrehose-experiments",
        description="Sweep over many simulated networks of trees, and report the results.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sweep.add_parser(commands)
    report.add_parser(commands)
    return parser
