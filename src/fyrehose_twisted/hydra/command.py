"""``fyrehose hydra``: look at a node, have lines said on IRC, and follow what is said there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.arguments import count, positive

# What speaks to nodes is imported when it is needed: this module is imported for `fyrehose --help` too.
if TYPE_CHECKING:
    from fyrehose_twisted.net.conversation import Conversation

DESCRIPTION = "Look at a hydra node, have lines said on IRC, and follow what is said there."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    What is parsed has as its ``command`` a coroutine function that takes the options and a reactor, and returns an exit
    status.
    """
    parser: argparse.ArgumentParser = commands.add_parser("hydra", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., Any], about: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = inner.add_parser(name, help=about.partition(".")[0] + ".", description=about)
        made.add_argument(
            "-c",
            "--control",
            required=True,
            metavar="ENDPOINT",
            help="the node's --control: unix:PATH, tcp:PORT or another client endpoint",
        )
        made.set_defaults(command=run, run=None)
        return made

    status = command("status", _status, "Show how the network looks from a node.")
    status.add_argument("--json", action="store_true", help="print everything that the node tells, as JSON")
    _add_timeout(status, 10.0)

    say = command("say", _say, "Have a line said on IRC, or each line of standard input. The leader's node says it.")
    say.add_argument("line", nargs="*", metavar="WORD", help="the line, such as 'PRIVMSG #c :hi' [standard input]")
    say.add_argument(
        "--retry", action="store_true", help="rather twice than not at all; else a line is said once at most"
    )
    _add_timeout(say, 60.0)

    follow = command("follow", _follow, "Print lines from IRC as they come, until interrupted.")
    follow.add_argument("--json", action="store_true", help="print terms, numbers, gaps and leaders too, as JSON")
    follow.add_argument("--count", type=count, metavar="N", help="stop after N lines")
    _add_timeout(follow, 10.0)
    return parser


def _add_timeout(parser: argparse.ArgumentParser, default: float) -> None:
    parser.add_argument(
        "--timeout", type=positive, default=default, metavar="S", help="wait S seconds for an answer [%(default)g]"
    )


async def _status(options: argparse.Namespace, reactor: Any) -> int:
    async def act(node: Conversation) -> int:
        from fyrehose_twisted.hydra.operate import show_status

        return await show_status(options, node, reactor)

    return await _asking(options, reactor, act)


async def _say(options: argparse.Namespace, reactor: Any) -> int:
    async def act(node: Conversation) -> int:
        from fyrehose_twisted.hydra.operate import say

        return await say(options, node, reactor)

    return await _asking(options, reactor, act)


async def _follow(options: argparse.Namespace, reactor: Any) -> int:
    async def act(node: Conversation) -> int:
        from fyrehose_twisted.hydra.follow import follow

        return await follow(options, node, reactor)

    return await _asking(options, reactor, act)


async def _asking(
    options: argparse.Namespace, reactor: Any, act: Callable[[Conversation], Coroutine[Any, Any, int]]
) -> int:
    """Let ``act`` ask the node, and return its exit status."""
    from fyrehose_twisted.net.conversation import connect

    node = await connect(options.control, reactor, options.timeout)
    try:
        return await act(node)
    finally:
        node.hang_up()
