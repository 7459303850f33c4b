"""Argument parser of ``fyrehose key``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# The commands are imported on demand, because `fyrehose --help` imports this module.

DESCRIPTION = "Create and rotate the keys of sealed streams, and the keys with which publishers sign."
ALGORITHM_NAMES = ("chacha20-poly1305", "aes-256-gcm")
"""The names in :data:`fyrehose_twisted.sealing.keys.ALGORITHMS`."""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have a ``run``, a function of the options that returns an exit status.
    """
    parser: argparse.ArgumentParser = commands.add_parser("key", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, about: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = inner.add_parser(name, help=about, description=about)
        made.add_argument("file", metavar="FILE", help="key file")
        made.set_defaults(run=_runner(name))
        return made

    new = command("new", "Create a key file with a new key, readable by its owner alone.")
    new.add_argument("--stream", required=True, metavar="NAME", help="name of the stream, or its URI")
    _add_algorithm(new)
    add = command("add", "Add a new key, which opens only. Copy the file to all subscribers before using the key.")
    _add_algorithm(add)
    use = command("use", "Let another key of the file seal. All others still open.")
    use.add_argument("id", metavar="ID", help="id of the key, as fyrehose key show prints it")
    drop = command("drop", "Remove a key. What was sealed with it cannot be opened any more.")
    drop.add_argument("id", metavar="ID", help="id of the key, as fyrehose key show prints it")
    command("show", "Print the stream, the ids of the keys and the trusted publishers, without secrets.")
    command("sign", "Create a file with the private key of a publisher, and print its public key.")
    trust = command("trust", "Trust a publisher. From then on, only messages of trusted publishers are delivered.")
    trust.add_argument("name", metavar="NAME", help="name of the publisher")
    trust.add_argument("public", metavar="PUBLIC", help="its public key, as fyrehose key sign prints it")
    distrust = command("distrust", "Remove a trusted publisher.")
    distrust.add_argument("name", metavar="NAME", help="name of the publisher")
    return parser


def _add_algorithm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--algorithm",
        choices=ALGORITHM_NAMES,
        default=ALGORITHM_NAMES[0],
        help="cipher; AES is faster on processors with instructions for it [%(default)s]",
    )


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        from fyrehose_twisted.sealing.cli.commands import run_command

        return run_command(name, options)

    return run
