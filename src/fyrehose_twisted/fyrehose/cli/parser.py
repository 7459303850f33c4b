"""Argument parser of ``fyrehose backbone``."""

from __future__ import annotations

import argparse
from typing import Any

from fyrehose_twisted.process.arguments import add_timeout, control_subcommands

# The client is imported on demand, because `fyrehose --help` imports this module.

DESCRIPTION = "Show the status of a group of backbones, hand over its leadership, and remove lost members."


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed ``command`` is a coroutine function that takes the options and a reactor and returns an exit status.
    """
    parser: argparse.ArgumentParser = commands.add_parser("backbone", help=DESCRIPTION, description=DESCRIPTION)
    command = control_subcommands(parser.add_subparsers(required=True, metavar="COMMAND"))

    status = command("status", _status, "Show the group as a member sees it.")
    status.add_argument("--json", action="store_true", help="print the complete status as JSON")
    add_timeout(status, 10.0)

    transfer = command(
        "transfer", _transfer, "Hand over the leadership. Ask the leader. The command ends once another member leads."
    )
    transfer.add_argument("name", nargs="?", metavar="NAME", help="next leader [the member whose log is most complete]")
    transfer.add_argument("--json", action="store_true", help="print the new leader, the term and the seconds as JSON")
    add_timeout(transfer, 10.0)

    members = command(
        "members",
        _members,
        "List the members. With remove NAME, remove a member that is gone for good; ask the leader for that.",
    )
    members.usage = "%(prog)s [-h] -c ENDPOINT [--json] [--timeout S] [remove NAME]"
    members.add_argument(
        "name", nargs="*", action=_RemovedMember, metavar="remove NAME", help="remove this member [list the members]"
    )
    members.add_argument("--json", action="store_true", help="print the members as JSON")
    add_timeout(members, 10.0)
    return parser


async def _status(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.fyrehose.cli.backbone import show_status
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, show_status)


async def _transfer(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.fyrehose.cli.backbone import transfer
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, transfer)


async def _members(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.fyrehose.cli.backbone import remove, show_members
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, remove if options.name else show_members)


class _RemovedMember(argparse.Action):
    """The arguments ``remove NAME``, stored as the name; ``None`` without them."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        match values:
            case []:
                setattr(namespace, self.dest, None)
            case ["remove", name] if name:
                setattr(namespace, self.dest, name)
            case _:
                parser.error(f"{' '.join(values)!r} is not 'remove NAME'")
