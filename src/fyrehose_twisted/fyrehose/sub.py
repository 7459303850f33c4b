"""``fyrehose sub``: print messages in order."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EBADF
from stat import S_ISFIFO, S_ISSOCK
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol import SubscriberProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.fyrehose.terminal import complain, secret_of, standard_io


class Printer(SubscriberProtocol):
    """Prints what it receives on standard output, no faster than that takes it."""

    def __init__(self, config: ClientConfig, count: int | None, format_message: Callable[[Message], bytes]) -> None:
        super().__init__(config)
        self.done: Deferred[None] = Deferred()
        self.output: Any = None
        self._left = count
        self._format = format_message

    def messages_received(self, messages: Sequence[Message]) -> None:
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self.output.write(b"".join(map(self._format, messages)))
        if self._left == 0 and not self.done.called:
            self.done.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        print(f"fyrehose: lost {first} to {last}: nobody has them, or they were never given", file=sys.stderr)


@implementer(IHalfCloseableProtocol)
class StandardOutput(Protocol):
    """Standard output as a consumer. ``closed`` fires when nobody reads it any more."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    async def emptied(self, reactor: Any, patience: float | None) -> None:
        """Wait, no longer than ``patience`` seconds, until what was written is out of our hands."""
        if not self.closed.called:
            gone: Deferred[None] = Deferred()
            self.closed.addCallback(gone.callback)
            if patience is not None:
                gone.addTimeout(patience, reactor)
            with suppress(DeferredTimeout, CancelledError):
                await gone

    def readConnectionLost(self) -> None:
        """Twisted: there is no input, which is no reason to stop."""

    def writeConnectionLost(self) -> None:
        """Twisted: it is closed."""
        self.connectionLost()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Twisted: it is closed."""
        if not self.closed.called:
            self.closed.callback(None)


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
    if sys.stdout is None:
        raise OSError(EBADF, "it is closed", "standard output")
    mode = os.fstat(sys.stdout.fileno()).st_mode
    config = ClientConfig(start=options.start, raw=options.raw, secret=secret_of(options))
    printer = Printer(config, options.count, _as_json if options.format == "json" else _as_line)
    output = StandardOutput()
    # A command in the background must not touch the terminal's input.
    printer.output = standard_io(output, os.open(os.devnull, os.O_RDONLY), sys.stdout.fileno(), reactor)
    await join(reactor, printer, options.backbone, timeout=options.connect_timeout)
    printer.output.registerProducer(printer, True)
    ended: Deferred[object] = Deferred()

    def end(problem: object) -> None:
        if not ended.called:
            ended.callback(problem)

    printer.done.addCallback(end)
    printer.stopped.addCallbacks(end, lambda failure: end(failure.value))
    # A pipe that nobody reads any more is the way to say "enough"; a file that takes no more is not.
    unreadable = None if S_ISFIFO(mode) or S_ISSOCK(mode) else "standard output takes no more; is the disk full?"
    output.closed.addCallback(lambda ignored: end(unreadable))
    try:
        problem, patience = await ended, None
    except CancelledError:
        problem, patience = None, 1.0
    if not output.closed.called:
        printer.output.unregisterProducer()
        printer.output.loseConnection()
    await printer.leave()
    await output.emptied(reactor, patience)
    return 0 if problem is None else complain(problem)
