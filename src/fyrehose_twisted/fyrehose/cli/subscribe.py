"""Command ``fyrehose sub``: print messages in order."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, StateFileError
from fyrehose_twisted.framing import KeyFilter
from fyrehose_twisted.fyrehose.cli.keys import KeyReload, keys_from_options, mac_from_options
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import Message, PacketDropped
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.service.position_file import PositionFile, SubscriberPosition, runs_before
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.interfaces import IDatagramNode
from fyrehose_twisted.process.arguments import key_filter_from_options
from fyrehose_twisted.process.terminal import StandardOutput, print_error, secret_from_options
from fyrehose_twisted.sealing.key_source import KeySource
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.outcome import Refusal

SAVE_INTERVAL = 0.5
"""Minimum number of seconds between two writes of the state file."""


class MessagePrinter(SubscriberProtocol):
    """Subscriber that prints messages on standard output, with backpressure.

    :param selection: keys of the messages to print; ``None`` to print all.
    """

    def __init__(
        self,
        config: ClientConfig,
        count: int | None,
        format_message: Callable[[Message], bytes],
        output: StandardOutput,
        selection: KeyFilter | None = None,
    ) -> None:
        super().__init__(config)
        self.done: Deferred[None] = Deferred()
        self._output = output
        self._remaining = count
        self._format = format_message
        self._selection = selection

    def messages_received(self, messages: Sequence[Message]) -> None:
        messages = self._before_end(messages)
        if self._selection is not None:
            messages = [message for message in messages if self._selection.matches(message.key)]
        if self._remaining is not None:
            self._remaining -= len(messages)
        self._output.write(b"".join(map(self._format, messages)))
        if self._remaining == 0 and not self.done.called:
            self.done.callback(None)

    def _before_end(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages up to the last one to print."""
        if self._remaining is None:
            return messages
        if self._selection is None:
            return messages[: self._remaining]
        printed = 0
        for row, message in enumerate(messages):
            if printed == self._remaining:
                return messages[:row]
            printed += self._selection.matches(message.key)
        return messages

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        if isinstance(event, PacketDropped) and event.reason in set(Refusal):
            print(f"fyrehose: dropped ({event.reason}): {event.detail}", file=sys.stderr)
        else:
            super().event_received(event)

    def print_dropped(self) -> None:
        """Print how many messages were dropped because of their seals, if any."""
        counts = Counter() if self.node is None else self.node.drops.counts
        dropped = [f"{counts[reason]:,} {reason}" for reason in Refusal if counts[reason]]
        if dropped:
            print(f"fyrehose: dropped in all: {', '.join(dropped)}", file=sys.stderr)

    def messages_lost(self, first: int, last: int) -> None:
        print(f"fyrehose: lost {first} to {last}: no client that was asked holds them", file=sys.stderr)

    def group_silent(self, group: Address) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.group_silent`."""
        print(
            f"fyrehose: nothing comes by multicast group {format_address(group)}, so the backbone sends to this client"
            " alone; does the network forward the group?",
            file=sys.stderr,
        )

    def finish(self) -> None:
        """Stop printing messages."""
        self._remaining = 0


class ResumingPrinter(MessagePrinter):
    """Subscriber that prints messages and resumes at the position in a state file.

    :param file: state file, which is updated after standard output has accepted the messages.
    :param payload_opener: opener of sealed payloads, whose windows are part of the state.
    """

    def __init__(
        self,
        config: ClientConfig,
        count: int | None,
        format_message: Callable[[Message], bytes],
        output: StandardOutput,
        file: PositionFile,
        reactor: Any,
        payload_opener: PayloadOpener | None = None,
        selection: KeyFilter | None = None,
    ) -> None:
        super().__init__(config, count, format_message, output, selection)
        self._payload_opener = payload_opener
        if payload_opener is not None:
            payload_opener.track_admissions()
            if file.position is not None:
                payload_opener.restore(file.position.replay)
        self._file = file
        self._reactor = reactor
        self._position = self._written_position = file.position
        self._save_at = 0.0
        self._save_call: Any = None
        self._is_save_due = False

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        node = super().make_node(now)
        assert isinstance(node, Client)
        if self._position is not None:
            # The previous message is received again, in order to compare it.
            for run in runs_before(self._position.runs, self._position.next - (self._position.checksum is not None)):
                node.repeats.add(run)
        return node

    def backbone_connected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.backbone_connected`."""
        last = 0 if self.node is None else self.node.reported_last
        if self._position is not None and 0 < last < self._position.next - 1:
            self._refuse(f"its numbers end at {last}, and {self._position.next - 1} was printed before")

    def messages_received(self, messages: Sequence[Message]) -> None:
        place = self._position
        if place is not None and messages[0].sequence < place.next:
            if messages[0].sequence == place.next - 1 and zlib.crc32(messages[0].payload) != place.checksum:
                self._refuse(f"message {place.next - 1} is different")
                return
            messages = [message for message in messages if message.sequence >= place.next]
        messages = self._before_end(messages)
        if messages:
            last = messages[-1]
            self._position = SubscriberPosition(last.sequence + 1, zlib.crc32(last.payload))
            super().messages_received(messages)

    def messages_lost(self, first: int, last: int) -> None:
        if self._position is not None:
            first = max(first, self._position.next)
        if first <= last and self._remaining != 0:
            super().messages_lost(first, last)
            self._position = SubscriberPosition(last + 1)
            if not self._output.unwritten_bytes:
                self.output_drained()

    def output_drained(self) -> None:
        """Save the position, now or soon, after standard output has accepted all messages."""
        if self._position != self._written_position and self._save_call is None:
            self._save_call = self._reactor.callLater(max(0.0, self._save_at - self._reactor.seconds()), self._save_due)
        if self._is_save_due:
            self._try_to_save()

    def save(self) -> None:
        """Write the position to the file. :raises StateFileError: if it cannot be written."""
        if self._save_call is not None and self._save_call.active():
            self._save_call.cancel()
        self._save_call, self._is_save_due = None, False
        place, node = self._position, self.node
        if place is not None and place != self._written_position:
            runs = () if node is None else runs_before(node.repeats.runs(), place.next)
            opener = self._payload_opener
            # The last message is received again.
            replay = () if opener is None else opener.replay_state(place.next - (place.checksum is not None))
            self._file.write(place._replace(runs=runs, replay=replay))
            self._written_position = place
            self._save_at = self._reactor.seconds() + SAVE_INTERVAL

    def _save_due(self) -> None:
        self._save_call, self._is_save_due = None, True
        if not self._output.unwritten_bytes:
            self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except StateFileError as error:
            self.fail(error)

    def _refuse(self, reason: str) -> None:
        self._remaining = 0
        self.fail(
            StateFileError(
                f"state file {self._file.path} does not belong to the stream of"
                f" {format_address(self.backbone)}: {reason};"
                " give each stream its own --state"
            )
        )


def _format_line(message: Message) -> bytes:
    return message.data + b"\n"


def _format_keyed_line(message: Message, separator: bytes) -> bytes:
    return b"%b%b%b\n" % (message.key or b"", separator, message.data)


def _format_json(message: Message) -> bytes:
    fields: dict[str, object] = {"sequence": message.sequence, "received_at": message.received_at}
    if message.key is not None:
        try:
            fields["key"] = message.key.decode()
        except UnicodeDecodeError:
            fields |= {"key": base64.b64encode(message.key).decode(), "key_encoding": "base64"}
    try:
        fields["data"] = message.data.decode()
    except UnicodeDecodeError:
        fields |= {"data": base64.b64encode(message.data).decode(), "encoding": "base64"}
    return json.dumps(fields).encode() + b"\n"


async def subscribe(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    keys = keys_from_options(options)
    if options.raw and keys is not None:
        raise ConfigurationError("--raw prints messages as on the wire, sealed; omit it or --seal-key-file")
    selection = key_filter_from_options(options)
    if options.raw and (selection is not None or options.key_separator is not None):
        raise ConfigurationError("--raw prints messages as on the wire, with their keys; omit it or the key options")
    config = ClientConfig(
        start=options.start,
        raw=options.raw,
        keepalive_interval=options.keepalive,
        secret=secret_from_options(options),
        mac=mac_from_options(options),
        multicast=options.multicast,
    )
    output = StandardOutput()
    format_message = _format_json if options.format == "json" else _format_line
    if options.key_separator is not None and options.format != "json":
        format_message = partial(_format_keyed_line, separator=os.fsencode(options.key_separator))
    if options.state is None:
        return await _run_printer(
            MessagePrinter(config, options.count, format_message, output, selection), output, options, reactor, keys
        )
    file = PositionFile(Path(options.state))
    try:
        if file.position is not None:
            config = replace(config, start=file.position.next - (file.position.checksum is not None))
        opener = None if keys is None else keys.opener
        printer = ResumingPrinter(config, options.count, format_message, output, file, reactor, opener, selection)
        return await _run_printer(printer, output, options, reactor, keys)
    finally:
        file.close()


async def _run_printer(
    printer: MessagePrinter,
    output: StandardOutput,
    options: argparse.Namespace,
    reactor: Any,
    keys: KeySource | None,
) -> int:
    output.open(reactor)
    printer.opener = None if keys is None else keys.opener
    with KeyReload(keys, reactor):
        return await _print_until_ended(printer, output, options, reactor)


async def _print_until_ended(
    printer: MessagePrinter, output: StandardOutput, options: argparse.Namespace, reactor: Any
) -> int:
    await join(reactor, printer, options.backbone, timeout=options.connect_timeout)
    output.register(printer, printer.output_drained if isinstance(printer, ResumingPrinter) else None)
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
        await output.wait_drained(reactor, patience)
        if not output.unwritten_bytes:
            printer.save()
    output.end()
    printer.print_dropped()
    await printer.leave()
    await output.wait_closed(reactor, patience)
    return 0 if problem is None else print_error(problem)
