"""Argument parser of ``fyrehose freenet``."""

from __future__ import annotations

import argparse
from typing import Any

from fyrehose_twisted.process.arguments import add_timeout, control_subcommands, parse_count, parse_positive

# The client is imported on demand, since `fyrehose --help` imports this module too.

DESCRIPTION = "Inspect a freenet node, publish packets through it, and print the packets of a stream."
KEY_HELP = "40 hexadecimal digits, or name:NAME"


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have a ``command``, a coroutine function of the options and a reactor that returns an exit
    status, or a ``run``, a function of the options.
    """
    parser: argparse.ArgumentParser = commands.add_parser("freenet", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    command = control_subcommands(inner)
    status = command("status", _status, "Show a node, its neighbours and its streams.")
    status.add_argument("--json", action="store_true", help="print the complete status as JSON")
    add_timeout(status, 10.0)

    subscribe = command("subscribe", _subscribe, "Print the packets of a stream as they arrive, until interrupted.")
    subscribe.add_argument("key", metavar="KEY", help=KEY_HELP)
    subscribe.add_argument("--after", type=int, metavar="N", help="start after packet N, if nodes still retain it")
    subscribe.add_argument("--json", action="store_true", help="print numbers, gaps and changes as well, as JSON")
    subscribe.add_argument("--count", type=parse_count, metavar="N", help="stop after N packets")
    subscribe.add_argument(
        "--within",
        type=parse_positive,
        metavar="S",
        help="fail unless N packets arrive within S seconds [no limit]",
    )
    add_timeout(subscribe, 10.0)

    publish = command(
        "publish",
        _publish,
        "Publish a packet, or each line of standard input as one, and print the packet numbers.",
    )
    publish.add_argument("key", metavar="KEY", help=KEY_HELP)
    publish.add_argument("packet", nargs="*", metavar="WORD", help="the packet [each line of standard input]")
    publish.add_argument("--number", type=int, metavar="N", help="packet number; not with standard input")
    publish.add_argument("--key-file", metavar="FILE", help="file with the signing key (see fyrehose freenet key)")
    publish.add_argument(
        "--allow-no-subscribers", action="store_true", dest="allow", help="publish even if no other node is subscribed"
    )
    add_timeout(publish, 90.0)

    about = "Show the key of a stream and its location on the ring, or create a signing key."
    key = inner.add_parser("key", help="Show the key of a stream, or create a signing key.", description=about)
    key.add_argument("what", metavar="KEY", help=f"{KEY_HELP}, or a file with a signing key")
    key.add_argument("--new", action="store_true", help="create the file with a new key")
    key.set_defaults(run=_key)
    return parser


async def _status(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.freenet.cli.publish import show_status
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, show_status)


async def _publish(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.freenet.cli.publish import publish
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, publish)


async def _subscribe(options: argparse.Namespace, reactor: Any) -> int:
    from fyrehose_twisted.freenet.cli.subscribe import follow
    from fyrehose_twisted.net.control.client import run_with_client

    return await run_with_client(options, reactor, follow)


def _key(options: argparse.Namespace) -> int:
    import os
    import sys

    from fyrehose_twisted.errors import FyrehoseError
    from fyrehose_twisted.freenet.wire.location import key_location
    from fyrehose_twisted.freenet.wire.signing import SigningKey, parse_key

    try:
        if options.new:
            signing = SigningKey.generate()
            signing.write(options.what)
            key = signing.key
        elif os.path.exists(options.what):
            key = SigningKey.read(options.what).key
        else:
            key = parse_key(options.what)
    except FyrehoseError as error:
        print(f"fyrehose: {error}", file=sys.stderr)
        return 1
    print(f"{key.hex()} at {key_location(key):.6f}")
    return 0
