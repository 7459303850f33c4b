"""``fyrehose freenet subscribe``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.wire.signing import parse_key
from fyrehose_twisted.net.control.client import ControlClient
from fyrehose_twisted.net.control.output import EventPrinter, print_events
from fyrehose_twisted.process.terminal import sanitize


class PacketPrinter(EventPrinter):
    """Printer of packets, gaps and changes."""

    counted_key = "data"
    noun = "packet"

    def print_event(self, message: dict[str, Any]) -> None:
        """See :class:`~fyrehose_twisted.net.control.output.EventPrinter`."""
        if "data" in message:
            self.output.write(message["data"].encode("utf-8", "surrogateescape") + b"\n")
        elif "missed" in message:
            first, last = message["missed"]
            print(f"fyrehose: packets {first:,} to {last:,} were not received", file=sys.stderr)
        elif "change" in message:
            details = {name: value for name, value in message.items() if name not in ("key", "change")}
            text = ", ".join(f"{name} {value}" for name, value in details.items())
            print(sanitize(f"fyrehose: {message['change'].lower()}: {text}"), file=sys.stderr)


async def follow(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    if options.within is not None and options.count is None:
        raise ConfigurationError("--within requires --count N")
    request = {"ask": "subscribe", "key": parse_key(options.key).hex(), "after": options.after}
    return await print_events(PacketPrinter, request, options, node, reactor, within=options.within)
