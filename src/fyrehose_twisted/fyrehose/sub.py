"""``fyrehose sub``: print messages in order."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol import SubscriberProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.terminal import StandardOutput, complain, secret_of


class Printer(SubscriberProtocol):
    """Prints what it receives on standard output, no faster than that takes it."""

    def __init__(
        self,
        config: ClientConfig,
        count: int | None,
        format_message: Callable[[Message], bytes],
        output: StandardOutput,
    ) -> None:
        super().__init__(config)
        self.done: Deferred[None] = Deferred()
        self._output = output
        self._left = count
        self._format = format_message

    def messages_received(self, messages: Sequence[Message]) -> None:
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self._output.write(b"".join(map(self._format, messages)))
        if self._left == 0 and not self.done.called:
            self.done.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        print(f"fyrehose: lost {first} to {last}: nobody has them, or they were never given", file=sys.stderr)


def _as_line(message: Message) -> bytes:
    return message.data + b"\n"


def _as_json(message: Message) -> bytes:
    fields: dict[str, object] = {"sequence": message.sequence, "received_at": message.received_at}
    try:
        fields["data"] = message.data.decode()
    except UnicodeDecodeError:
        fields |= {"data": base64.b64encode(message.data).decode(), "encoding": "base64"}
    return json.dumps(fields).encode() + b"\n"


async def subscribe(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    config = ClientConfig(
        start=options.start, raw=options.raw, keepalive_interval=options.keepalive, secret=secret_of(options)
    )
    output = StandardOutput()
    printer = Printer(config, options.count, _as_json if options.format == "json" else _as_line, output)
    output.open(reactor)
    await join(reactor, printer, options.backbone, timeout=options.connect_timeout)
    output.register(printer)
    ended: Deferred[object] = Deferred()

    def end(problem: object) -> None:
        if not ended.called:
            ended.callback(problem)

    printer.done.addCallback(end)
    printer.stopped.addCallbacks(end, lambda failure: end(failure.value))
    output.when_closed(end)
    try:
        problem, patience = await ended, None
    except CancelledError:
        problem, patience = None, 1.0
    output.end()
    await printer.leave()
    await output.emptied(reactor, patience)
    return 0 if problem is None else complain(problem)
