"""Command ``fyrehose dump``."""

from __future__ import annotations

import argparse
from typing import Any

from fyrehose_twisted.process.arguments import parse_count

# The codecs are imported on use: `fyrehose --help` imports this module too.

DESCRIPTION = "Print the packets of a capture, or of an interface, in words."
EPILOG = (
    "FILE is of tcpdump, dumpcap or Wireshark (pcap or pcapng); - is standard input. --interface requires CAP_NET_RAW."
    " Tokens, MACs, nonces and proofs are never printed. The exit status is 1 if the capture is damaged."
)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`.

    The parsed options have :func:`run` as their ``run``.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "dump", help=DESCRIPTION, description=DESCRIPTION, epilog=EPILOG
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE", help="capture file; - is standard input")
    source.add_argument("-i", "--interface", metavar="NAME", help="capture on this interface; any is all of them")
    parser.add_argument(
        "--port",
        action="append",
        type=_port,
        default=[],
        metavar="PORT=PROTOCOL",
        help="protocol on a port: fyrehose, hydra, freenet, parcels or members, which is a group of backbones"
        " (repeatable) [2323=fyrehose, 6174=hydra, 6180=freenet, 7878=parcels]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument(
        "--gaps", action="store_true", help="note gaps in sequence numbers and their repair in lines that begin with #"
    )
    parser.add_argument("--data", action="store_true", help="print the start of the messages of fyrehose")
    parser.add_argument("--count", type=parse_count, metavar="N", help="stop after N lines of packets")
    parser.set_defaults(run=run)
    return parser


def _port(text: str) -> Any:
    from fyrehose_twisted.cli.dump.ports import parse_port

    return parse_port(text)


def run(options: argparse.Namespace) -> int:
    """Print a capture and return the exit status."""
    from fyrehose_twisted.cli.dump.output import dump
    from fyrehose_twisted.errors import OperationalError
    from fyrehose_twisted.process.terminal import print_error

    try:
        return dump(options)
    except OperationalError as error:
        return print_error(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return print_error(f"{error.filename or 'input or output'}: {error.strerror}")
