"""``fyrehose freenet subscribe``: print packets as they come."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.freenet.signing import parse_key
from fyrehose_twisted.net.conversation import Conversation, answer_to
from fyrehose_twisted.terminal import StandardOutput, complain, printable


class Printer:
    """Prints what a node tells on standard output, no faster than that takes it.

    :param count: how many packets; ``None`` for all.
    :ivar ended: fires with what went wrong, ``None`` for nothing.
    """

    def __init__(self, node: Conversation, output: StandardOutput, count: int | None, as_json: bool) -> None:
        self.ended: Deferred[object] = Deferred()
        self._node = node
        self._output = output
        self._left = count
        self._as_json = as_json

    def start(self) -> None:
        """Begin."""
        self._output.register(self._node.transport)
        self._output.when_closed(self.end)
        self._node.ended.addCallback(self.end)
        self._node.told = self.told

    def end(self, problem: object) -> None:
        """It is over."""
        self._node.told = None
        if not self.ended.called:
            self.ended.callback(problem)

    def told(self, message: dict[str, Any]) -> None:
        """The node tells something."""
        if "error" in message:
            self.end(message["error"])
            return
        if self._as_json:
            self._output.write(json.dumps(message).encode() + b"\n")
        elif "data" in message:
            self._output.write(message["data"].encode("utf-8", "surrogateescape") + b"\n")
        elif "missed" in message:
            first, last = message["missed"]
            print(f"fyrehose: packets {first:,} to {last:,} did not get here", file=sys.stderr)
        elif "change" in message:
            details = {name: value for name, value in message.items() if name not in ("key", "change")}
            what = ", ".join(f"{name} {value}" for name, value in details.items())
            print(printable(f"fyrehose: {message['change'].lower()}: {what}"), file=sys.stderr)
        if self._left is not None and "data" in message:
            self._left -= 1
            if not self._left:
                self.end(None)


async def follow(options: argparse.Namespace, node: Conversation, reactor: Any) -> int:
    """Run the command and return its exit status."""
    key = parse_key(options.key)
    output = StandardOutput()
    printer = Printer(node, output, options.count, options.json)
    output.open(reactor)
    printer.start()
    asked = node.ask(ask="subscribe", key=key.hex(), after=options.after)
    answer = await answer_to(asked, reactor, options.timeout)
    if "error" in answer:
        return complain(answer["error"])
    try:
        problem, patience = await printer.ended, None
    except CancelledError:
        printer.end(None)
        problem, patience = None, 1.0
    output.end()
    await output.emptied(reactor, patience)
    return 0 if problem is None else complain(problem)
