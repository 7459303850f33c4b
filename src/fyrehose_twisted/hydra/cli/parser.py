"""Argument parser of ``fyrehose hydra``."""

from __future__ import annotations

import argparse
from typing import Any

from fyrehose_twisted.process.arguments import add_timeout, control_subcommands, parse_count

# The client is imported on demand, because `fyrehose --help` imports this module.

DESCRIPTION = "Show the status of a hydra node, send lines to IRC, and follow lines from IRC."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed ``command`` is a coroutine function that takes the options and a reactor and returns an exit status.
    """
    parser: argparse.ArgumentParser = commands.add_parser("hydra", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    command = control_subcommands(inner)
    status = command("status", _status, "Show the network as a node sees it.")
    status.add_argument("--json", action="store_true", help="print the complete status as JSON")
    add_timeout(status, 10.0)

    say = command("say", _say, "Send a line, or each line of standard input, to IRC. The leader sends it.")
    say.add_argument(
        "line", nargs="*", metavar="WORD", help="the line, such as 'PRIVMSG #c :hi' [each line of standard input]"
    )
    say.add_argument(
        "--retry",
        action="store_true",
        help="at-least-once: resend if the outcome is uncertain [at-most-once]",
    )
    add_timeout(say, 60.0)

    reload = command("reload", _reload, "Read secrets, channels and bots again, as SIGHUP does.")
    add_timeout(reload, 10.0)

    follow = command("follow", _follow, "Print lines from IRC as they arrive, until interrupted.")
    follow.add_argument("--json", action="store_true", help="print terms, numbers, gaps and leaders as well, as JSON")
    follow.add_argument("--count", type=parse_count, metavar="N", help="stop after N lines")
    add_timeout(follow, 10.0)
    return parser


async def _status(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.hydra.cli.status import show_status
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, show_status)


async def _say(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.hydra.cli.status import say
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, say)


async def _reload(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.hydra.cli.status import reload
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, reload)


async def _follow(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.hydra.cli.follow import follow
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, follow)
