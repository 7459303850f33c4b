"""``fyrehose hydra follow``: print lines from IRC as they arrive."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fyrehose_twisted.net.control.client import ControlClient
from fyrehose_twisted.net.control.output import EventPrinter, print_events
from fyrehose_twisted.process.terminal import sanitize


class LinePrinter(EventPrinter):
    """Printer of lines, gaps and leader changes."""

    counted_key = "line"

    def print_event(self, message: dict[str, Any]) -> None:
        """See :class:`~fyrehose_twisted.net.control.output.EventPrinter`."""
        if "line" in message:
            self.output.write(message["line"].encode("utf-8", "surrogateescape") + b"\n")
        elif "missed" in message:
            first, last = message["missed"]
            print(f"fyrehose: lines {first:,} to {last:,} of term {message['term']} were not received", file=sys.stderr)
        elif "leader" in message:
            who = "no node" if message["leader"] is None else f"{message['tag'] or 'a node'} ({message['leader']})"
            print(sanitize(f"fyrehose: {who} leads in term {message['term']}"), file=sys.stderr)


async def follow(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    return await print_events(LinePrinter, {"ask": "follow"}, options, node, reactor)
