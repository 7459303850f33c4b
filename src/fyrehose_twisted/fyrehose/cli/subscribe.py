"""``fyrehose sub``: print messages in order."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.protocol import SubscriberProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.fyrehose.service.position_file import Place, PlaceFile, runs_before
from fyrehose_twisted.interfaces import IDatagramNode
from fyrehose_twisted.process.terminal import StandardOutput, complain, secret_of

SAVE_INTERVAL = 0.5
"""Seconds between two times that the state is written, at least."""


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

    def finish(self) -> None:
        """Print nothing more."""
        self._left = 0


class ResumingPrinter(Printer):
    """Keeps its place in a file, and goes on there.

    :param file: from which it goes on; what is new is written there once standard output has taken it.
    """

    def __init__(
        self,
        config: ClientConfig,
        count: int | None,
        format_message: Callable[[Message], bytes],
        output: StandardOutput,
        file: PlaceFile,
        reactor: Any,
    ) -> None:
        super().__init__(config, count, format_message, output)
        self._file = file
        self._reactor = reactor
        self._place = self._written = file.place
        self._save_at = 0.0
        self._saving: Any = None
        self._is_due = False

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        node = super().make_node(now)
        assert isinstance(node, Client)
        if self._place is not None:
            # The message before comes once more, to see that it is the same.
            for run in runs_before(self._place.runs, self._place.next - (self._place.checksum is not None)):
                node.repeats.add(run)
        return node

    def backbone_connected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.ClientProtocol.backbone_connected`."""
        last = 0 if self.node is None else self.node.reported
        if self._place is not None and 0 < last < self._place.next - 1:
            self._refuse(f"its numbers end at {last}, and {self._place.next - 1} was handed over")

    def messages_received(self, messages: Sequence[Message]) -> None:
        place = self._place
        if place is not None and messages[0].sequence < place.next:
            if messages[0].sequence == place.next - 1 and zlib.crc32(messages[0].payload) != place.checksum:
                self._refuse(f"message {place.next - 1} is another one")
                return
            messages = [message for message in messages if message.sequence >= place.next]
        if self._left is not None:
            messages = messages[: self._left]
        if messages:
            last = messages[-1]
            self._place = Place(last.sequence + 1, zlib.crc32(last.payload))
            super().messages_received(messages)

    def messages_lost(self, first: int, last: int) -> None:
        if self._place is not None:
            first = max(first, self._place.next)
        if first <= last and self._left != 0:
            super().messages_lost(first, last)
            self._place = Place(last + 1)
            if not self._output.waiting:
                self.taken()

    def taken(self) -> None:
        """Standard output has taken all that was written: remember so, now or soon."""
        if self._place != self._written and self._saving is None:
            self._saving = self._reactor.callLater(max(0.0, self._save_at - self._reactor.seconds()), self._due)
        if self._is_due:
            self._try_to_save()

    def save(self) -> None:
        """Write the place to the file. :raises StateFileError: if that fails."""
        if self._saving is not None and self._saving.active():
            self._saving.cancel()
        self._saving, self._is_due = None, False
        place, node = self._place, self.node
        if place is not None and place != self._written:
            runs = () if node is None else runs_before(node.repeats.runs(), place.next)
            self._file.write(place._replace(runs=runs))
            self._written = place
            self._save_at = self._reactor.seconds() + SAVE_INTERVAL

    def _due(self) -> None:
        self._saving, self._is_due = None, True
        if not self._output.waiting:
            self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except StateFileError as error:
            self.fail(error)

    def _refuse(self, why: str) -> None:
        host, port = self.backbone
        self._left = 0
        self.fail(
            StateFileError(
                f"state file {self._file.path} belongs to another stream than that of {host}:{port}: {why}; give each"
                " stream a --state of its own"
            )
        )


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
    format_message = _as_json if options.format == "json" else _as_line
    if options.state is None:
        return await _print(Printer(config, options.count, format_message, output), output, options, reactor)
    file = PlaceFile(Path(options.state))
    try:
        if file.place is not None:
            config = replace(config, start=file.place.next - (file.place.checksum is not None))
        printer = ResumingPrinter(config, options.count, format_message, output, file, reactor)
        return await _print(printer, output, options, reactor)
    finally:
        file.close()


async def _print(printer: Printer, output: StandardOutput, options: argparse.Namespace, reactor: Any) -> int:
    output.open(reactor)
    await join(reactor, printer, options.backbone, timeout=options.connect_timeout)
    output.register(printer, printer.taken if isinstance(printer, ResumingPrinter) else None)
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
    printer.finish()
    if isinstance(printer, ResumingPrinter):
        await output.taken(reactor, patience)
        if not output.waiting:
            printer.save()
    output.end()
    await printer.leave()
    await output.emptied(reactor, patience)
    return 0 if problem is None else complain(problem)
