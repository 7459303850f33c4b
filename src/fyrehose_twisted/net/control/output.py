"""Output of control commands that print the events of a node."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.net.control.client import ControlClient, with_timeout
from fyrehose_twisted.process.terminal import StandardOutput, print_error, sanitize
from fyrehose_twisted.wording import pluralize


class EventPrinter:
    """Base class of printers of node events, with backpressure from standard output.

    :cvar counted_key: key of the messages that count towards ``count``.
    :cvar noun: noun for such a message.
    :param count: number of messages after which the printer ends; ``None`` for no limit.
    :ivar ended: fires with an error, or ``None``.
    """

    counted_key = ""
    noun = "message"

    def __init__(self, node: ControlClient, output: StandardOutput, count: int | None, as_json: bool) -> None:
        self.ended: Deferred[object] = Deferred()
        self.output = output
        self._node = node
        self._count = self._remaining = count
        self._as_json = as_json

    def print_event(self, message: dict[str, Any]) -> None:
        """Print a message in readable form."""
        raise NotImplementedError

    def start(self) -> None:
        """Start printing."""
        self.output.register(self._node.transport)
        self.output.when_closed(self.end)
        self._node.ended.addCallback(self.end)
        self._node.on_event = self.on_event

    def end(self, problem: object) -> None:
        """Stop printing."""
        self._node.on_event = None
        if not self.ended.called:
            self.ended.callback(problem)

    def expire(self, seconds: float) -> None:
        """End because too few messages arrived in time."""
        if self._count is None or self._remaining is None:
            raise ValueError("a command without a count has no deadline")
        came = self._count - self._remaining
        self.end(f"only {came:,} of {pluralize(self._count, self.noun)} arrived within {seconds:g} s (--within)")

    def on_event(self, message: dict[str, Any]) -> None:
        """Handle an event of the node."""
        if "error" in message:
            self.end(message["error"])
            return
        if self._as_json:
            self.output.write(json.dumps(message).encode() + b"\n")
        else:
            self.print_event(message)
        if self._remaining is not None and self.counted_key in message:
            self._remaining -= 1
            if not self._remaining:
                self.end(None)


async def print_events(
    printer_class: type[EventPrinter],
    request: dict[str, Any],
    options: argparse.Namespace,
    node: ControlClient,
    reactor: Any,
    *,
    within: float | None = None,
) -> int:
    """Send a request, print events until the printer ends, and return the exit status.

    :param within: seconds in which ``options.count`` messages must arrive; ``None`` for no limit.
    """
    output = StandardOutput()
    printer = printer_class(node, output, options.count, options.json)
    output.open(reactor)
    printer.start()
    deadline = None if within is None else reactor.callLater(within, printer.expire, within)
    try:
        return await _print_until_ended(printer, output, request, options, node, reactor)
    finally:
        if deadline is not None and deadline.active():
            deadline.cancel()


async def _print_until_ended(
    printer: EventPrinter,
    output: StandardOutput,
    request: dict[str, Any],
    options: argparse.Namespace,
    node: ControlClient,
    reactor: Any,
) -> int:
    answer = await with_timeout(node.request(**request), reactor, options.timeout)
    if "error" in answer:
        return print_error(answer["error"])
    try:
        problem, patience = await printer.ended, None
    except CancelledError:
        printer.end(None)
        problem, patience = None, 1.0
    output.end()
    await output.wait_closed(reactor, patience)
    return 0 if problem is None else print_error(problem)


async def print_status(
    describe: Callable[[dict[str, Any]], Iterable[str]], options: argparse.Namespace, node: ControlClient, reactor: Any
) -> int:
    """Request the status of a node, print it, and return the exit status.

    :param describe: formats the status for people.
    """
    answer = await with_timeout(node.request(ask="status"), reactor, options.timeout)
    state = answer.get("status")
    if not isinstance(state, dict):
        return print_error(answer.get("error", "the reply of the node is not a status"))
    if options.json:
        print(json.dumps(state))
        return 0
    try:
        lines = [sanitize(line) for line in describe(state)]
    except (KeyError, TypeError, ValueError):
        raise MalformedPacket("status", "the node's status has an unknown format; try --json") from None
    print("\n".join(lines))
    return 0
