"""The ``fyrehose-experiments`` command: sweeps over many networks, and their reports."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fyrehose_twisted.experiments.sweep.cli import report, sweep
from fyrehose_twisted.spark.errors import error_line

EXIT_IMPOSSIBLE = 3
"""Exit status if the command could not run. Status 1 means that networks of a sweep failed."""

INTERRUPTED = "interrupted; run the same command to resume"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_IMPOSSIBLE, f"fyrehose-experiments: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 for failed networks, 3 if the command could not run."""
    if sys.stderr is None:  # Closed by the parent process; print() would fall back to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    options = _parser().parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = _print_error(INTERRUPTED)
    except BrokenPipeError:
        # Standard output is closed, and Python would report that again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = EXIT_IMPOSSIBLE
    except Exception as error:
        # A Spark session may fail to stop after an interrupt.
        line = INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else error_line(error)
        if line is None:
            raise
        status = _print_error(line)
    sys.exit(status)


def _print_error(problem: object) -> int:
    print(f"fyrehose-experiments: {problem}", file=sys.stderr)
    return EXIT_IMPOSSIBLE


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fyrehose-experiments",
        description="Sweep over many simulated networks of trees, and report the results.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sweep.add_parser(commands)
    report.add_parser(commands)
    return parser
