"""``fyrehose freenet subscribe``: print packets as they come."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.wire.signing import parse_key
from fyrehose_twisted.net.control.client import Conversation
from fyrehose_twisted.net.control.output import Printer, print_told
from fyrehose_twisted.process.terminal import printable


class PacketPrinter(Printer):
    """Prints packets."""

    counted = "data"
    noun = "packet"

    def show(self, message: dict[str, Any]) -> None:
        """See :class:`~fyrehose_twisted.net.control.output.Printer`."""
        if "data" in message:
            self.output.write(message["data"].encode("utf-8", "surrogateescape") + b"\n")
        elif "missed" in message:
            first, last = message["missed"]
            print(f"fyrehose: packets {first:,} to {last:,} did not get here", file=sys.stderr)
        elif "change" in message:
            details = {name: value for name, value in message.items() if name not in ("key", "change")}
            what = ", ".join(f"{name} {value}" for name, value in details.items())
            print(printable(f"fyrehose: {message['change'].lower()}: {what}"), file=sys.stderr)


async def follow(options: argparse.Namespace, node: Conversation, reactor: Any) -> int:
    """Run the command and return its exit status."""
    if options.within is not None and options.count is None:
        raise ConfigurationError("--within requires --count N")
    question = {"ask": "subscribe", "key": parse_key(options.key).hex(), "after": options.after}
    return await print_told(PacketPrinter, question, options, node, reactor, within=options.within)
