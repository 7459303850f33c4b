"""Values of options on the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NoReturn


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage above them."""

    def error(self, message: str) -> NoReturn:
        """argparse: report an option that is wrong, and exit with 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse_seconds(text: str) -> float:
    """Return a number of seconds. :raises argparse.ArgumentTypeError: if ``text`` is none."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def parse_positive(text: str) -> float:
    """Return a number of seconds above 0. :raises argparse.ArgumentTypeError: if ``text`` is none."""
    value = parse_seconds(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0")
    return value


def parse_count(text: str) -> int:
    """Return a whole number above 0. :raises argparse.ArgumentTypeError: if ``text`` is none."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def control_subcommands(parsers: Any) -> Callable[[str, Callable[..., Any], str], argparse.ArgumentParser]:
    """Return what makes the parser of a command that asks a node: from its name, a coroutine function that takes the
    options and a reactor, and what it is about.

    :param parsers: the result of :meth:`argparse.ArgumentParser.add_subparsers`.
    """

    def command(name: str, run: Callable[..., Any], about: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = parsers.add_parser(name, help=about.partition(".")[0] + ".", description=about)
        made.add_argument(
            "-c",
            "--control",
            required=True,
            metavar="ENDPOINT",
            help="the node's --control: unix:PATH, tcp:PORT or another client endpoint",
        )
        made.set_defaults(command=run, run=None)
        return made

    return command


def add_timeout(parser: argparse.ArgumentParser, default: float) -> None:
    """Let a command wait for an answer for so many seconds, unless it is told otherwise."""
    parser.add_argument(
        "--timeout",
        type=parse_positive,
        default=default,
        metavar="S",
        help="wait S seconds for an answer [%(default)g]",
    )
