"""Parsers for command-line arguments."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any, NoReturn

from fyrehose_twisted.framing import KeyFilter, make_key_filter


class ArgumentParser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line without the usage."""

    def error(self, message: str) -> NoReturn:
        """argparse: report an error and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parse_seconds(text: str) -> float:
    """Parse a number of seconds. :raises argparse.ArgumentTypeError: if ``text`` is invalid."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def parse_positive(text: str) -> float:
    """Parse a positive number of seconds. :raises argparse.ArgumentTypeError: if ``text`` is invalid."""
    value = parse_seconds(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0")
    return value


def parse_whole_number(text: str) -> int:
    """Parse a non-negative integer. :raises argparse.ArgumentTypeError: if ``text`` is invalid."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def parse_count(text: str) -> int:
    """Parse a positive integer below 2**62. :raises argparse.ArgumentTypeError: if ``text`` is invalid."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**62):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def hide_letter(option: argparse.Action) -> None:
    """Leave the former letter of an option out of the help; the parser still accepts it."""
    option.option_strings = [name for name in option.option_strings if name.startswith("--")]


def control_subcommands(parsers: Any) -> Callable[[str, Callable[..., Any], str], argparse.ArgumentParser]:
    """Return a function that adds the parser of a control command.

    It takes the name of the command, a coroutine function of the options and a reactor, and a description.

    :param parsers: result of :meth:`argparse.ArgumentParser.add_subparsers`.
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
    """Add the option ``--timeout`` with a default in seconds."""
    parser.add_argument(
        "--timeout",
        type=parse_positive,
        default=default,
        metavar="S",
        help="wait S seconds for an answer [%(default)g]",
    )


def key_filter_from_options(options: argparse.Namespace) -> KeyFilter | None:
    """Return the filter of the options ``--key`` and ``--key-prefix``. Raises the errors of :func:`make_key_filter`."""
    key, prefix = (None if text is None else os.fsencode(text) for text in (options.key, options.key_prefix))
    return make_key_filter(key, prefix)
