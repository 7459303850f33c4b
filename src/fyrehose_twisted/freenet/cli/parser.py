"""``fyrehose freenet``: look at a node, publish packets, and print those of others."""

from __future__ import annotations

import argparse
from typing import Any

from fyrehose_twisted.process.arguments import add_timeout, control_subcommands, parse_count, parse_positive

# What speaks to nodes is imported when it is needed: this module is imported for `fyrehose --help` too.

DESCRIPTION = "Look at a freenet node, publish packets through it, and print those of others."
KEY_HELP = "40 hexadecimal digits, or name:NAME"


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    What is parsed has as its ``command`` a coroutine function that takes the options and a reactor, and returns an exit
    status, or as its ``run`` a function that takes the options.
    """
    parser: argparse.ArgumentParser = commands.add_parser("freenet", help=DESCRIPTION, description=DESCRIPTION)
    inner = parser.add_subparsers(required=True, metavar="COMMAND")

    command = control_subcommands(inner)
    status = command("status", _status, "Show a node, its neighbours and its streams.")
    status.add_argument("--json", action="store_true", help="print everything that the node tells, as JSON")
    add_timeout(status, 10.0)

    subscribe = command("subscribe", _subscribe, "Print the packets of a stream as they come, until interrupted.")
    subscribe.add_argument("key", metavar="KEY", help=KEY_HELP)
    subscribe.add_argument("--after", type=int, metavar="N", help="begin behind packet N, as far as the network has it")
    subscribe.add_argument("--json", action="store_true", help="print numbers, gaps and changes too, as JSON")
    subscribe.add_argument("--count", type=parse_count, metavar="N", help="stop after N packets")
    subscribe.add_argument(
        "--within", type=parse_positive, metavar="S", help="fail unless the N packets come within S seconds [no limit]"
    )
    add_timeout(subscribe, 10.0)

    publish = command(
        "publish", _publish, "Publish a packet, or each line of standard input as one. Prints their numbers."
    )
    publish.add_argument("key", metavar="KEY", help=KEY_HELP)
    publish.add_argument("packet", nargs="*", metavar="WORD", help="the packet [each line of standard input]")
    publish.add_argument("--number", type=int, metavar="N", help="its number; not with standard input")
    publish.add_argument("--key-file", metavar="FILE", help="file with the key to sign with (fyrehose freenet key)")
    publish.add_argument(
        "--allow-no-subscribers", action="store_true", dest="allow", help="publish even if nobody else is subscribed"
    )
    add_timeout(publish, 90.0)

    about = "Show the key of a stream, and where on the ring it lies, or make a key that only its holder can sign with."
    key = inner.add_parser("key", help="Show the key of a stream, or make one to sign with.", description=about)
    key.add_argument("what", metavar="KEY", help=f"{KEY_HELP}, or a file with a key to sign with")
    key.add_argument("--new", action="store_true", help="make the file, with a new key in it")
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
