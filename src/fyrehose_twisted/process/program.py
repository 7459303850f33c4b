"""Command lines that run to their end without a reactor."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar, NoReturn


class ProgramParser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line, with the name of the program alone.

    :cvar usage_status: exit status of a usage error.
    """

    usage_status: ClassVar[int] = 2

    def error(self, message: str) -> NoReturn:
        """argparse: report an error and exit."""
        self.exit(self.usage_status, f"{self.prog.partition(' ')[0]}: {message}; see {self.prog} --help\n")


def run_program(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    describe_error: Callable[[BaseException], tuple[str, int] | None],
    failure: int,
) -> NoReturn:
    """Call ``run`` of the parsed arguments with them, and exit with the status that it returns.

    :param describe_error: returns the text of an error and the exit status; ``None`` for an error that is raised.
    :param failure: exit status if standard output is closed.
    """
    if sys.stderr is None:  # Closed by the parent process; print() would fall back to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    options = parser.parse_args(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Standard output is closed, and Python would report that again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = failure
    except (KeyboardInterrupt, Exception) as error:
        described = describe_error(error)
        if described is None:
            raise
        problem, status = described
        print(f"{parser.prog}: {problem}", file=sys.stderr)
    sys.exit(status)
