"""Command ``fyrehose pub``: publish lines of standard input or a file as messages."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, MessageNotKept, MessageTooLarge, StateFileError
from fyrehose_twisted.framing import check_key
from fyrehose_twisted.fyrehose.cli.keys import KeyReload, keys_from_options, mac_from_options
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.node.client.publishing.linger import QUIET_TIME
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState, chain_checksum
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.wire.message_key import KEY_OVERHEAD, add_key, add_key_of_line
from fyrehose_twisted.process.line_publisher import LinePublisher
from fyrehose_twisted.process.terminal import open_input, print_error, print_hint, secret_from_options
from fyrehose_twisted.wording import pluralize

BATCH_LINES = 256
"""Maximum number of lines that are published at once; far fewer than half of the send queue."""

LEAVE_HINT_DELAY = QUIET_TIME + 0.5
"""Seconds after which a publisher that is still leaving prints a hint."""


class MessagePublisher(LinePublisher):
    """Publisher of input lines.

    :param to_payload: returns the payload of a line; ``None`` to publish lines as they are.
    :param overhead: maximum bytes that it adds.
    """

    def __init__(
        self,
        publisher: PublisherProtocol,
        kept: int,
        to_payload: Callable[[bytes], bytes] | None = None,
        overhead: int = 0,
    ) -> None:
        super().__init__(publisher.max_message - overhead, "messages", BATCH_LINES)
        self._publisher = publisher
        self._kept = kept
        self._to_payload = to_payload

    async def when_room(self) -> None:
        await self._publisher.when_room()

    def publish_lines(self, lines: Sequence[bytes], first: int) -> None:
        numbers: Sequence[int] = range(first, first + len(lines))
        if self._to_payload is not None:
            lines, numbers = self._payloads(lines, first)
        self._publish_payloads(lines, numbers)

    def _payloads(self, lines: Sequence[bytes], first: int) -> tuple[list[bytes], list[int]]:
        """Return the payloads of lines, and the numbers of the lines, without those that are no messages."""
        assert self._to_payload is not None
        payloads, numbers = [], []
        for number, line in enumerate(lines, first):
            try:
                payloads.append(self._to_payload(line))
            except ConfigurationError as error:
                self.line_failed(number, ConfigurationError(f"line {number:,}: {error}"))
                if self._stopped:
                    self._in_flight -= first + len(lines) - 1 - number
                    break
            else:
                numbers.append(number)
        return payloads, numbers

    def _publish_payloads(self, payloads: Sequence[bytes], numbers: Sequence[int]) -> None:
        self._publisher.publish_each(
            payloads,
            lambda index, sequence: self.line_published(numbers[index], sequence),
            lambda index, error: self.line_failed(numbers[index], error),
            kept=self._kept,
        )


class ResumingPublisher(MessagePublisher):
    """Publisher with a state file. It skips lines that are published already, and stops at the first failure.

    :ivar has_partial_line: whether the input ended within a line, which is not published because it may grow.
    """

    def __init__(
        self,
        publisher: PublisherProtocol,
        kept: int,
        state: PublisherState,
        to_payload: Callable[[bytes], bytes] | None = None,
        overhead: int = 0,
    ) -> None:
        super().__init__(publisher, kept, to_payload, overhead)
        self.has_partial_line = False
        self._state = state
        self._lines_to_skip, self._expected_checksum = state.position, state.checksum
        self._checksum = 0

    def _publish_payloads(self, payloads: Sequence[bytes], numbers: Sequence[int]) -> None:
        skipped = min(self._lines_to_skip, len(payloads))
        for payload in payloads[:skipped]:
            self._checksum = chain_checksum(self._checksum, payload)
        self._lines_to_skip -= skipped
        if skipped and not self._lines_to_skip and self._checksum != self._expected_checksum:
            self._in_flight -= len(payloads)
            self._refuse(f"the first {pluralize(numbers[skipped - 1], 'line')} are not those that were published")
            return
        for number in numbers[:skipped]:
            self.line_published(number, 0)
        if skipped < len(payloads):
            super()._publish_payloads(payloads[skipped:], numbers[skipped:])

    def failed(self, line: int, error: BaseException | None) -> None:
        super().failed(line, error)
        self.end(error)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """See :meth:`~fyrehose_twisted.process.line_publisher.LinePublisher.connectionLost`."""
        self.has_partial_line = bool(self._rest or self._oversized_bytes)
        self._rest, self._oversized_bytes = b"", 0
        super().connectionLost(reason)

    def _publish(self, batch: MessageTooLarge | Sequence[bytes]) -> None:
        super()._publish(batch)
        if self.problem is not None:
            self.end(self.problem)

    def _finish(self) -> None:
        if self._lines_to_skip and self.problem is None:
            published = pluralize(self._state.position, "line")
            self._refuse(f"the input has {pluralize(self.lines_read, 'line')}, and {published} of it were published")
        super()._finish()

    def _refuse(self, reason: str) -> None:
        self.end(
            StateFileError(
                f"state file {self._state.path} does not fit the input: {reason}; start again with the same input,"
                " which may have grown"
            )
        )


async def publish(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    to_payload, overhead = _line_format(options)
    descriptor = open_input(options.file)
    config = ClientConfig(
        outbox=OutboxConfig(raw=options.raw, timeout=options.timeout),
        secret=secret_from_options(options),
        mac=mac_from_options(options),
    )
    keys = keys_from_options(options)
    path = options.publisher_state
    state = None if path is None else PublisherState(Path(path), options.backbone)
    with nullcontext() if state is None else closing(state), KeyReload(keys, reactor):
        protocol = PublisherProtocol(config, state=state)
        protocol.sealer = None if keys is None else keys.sealer
        publisher = await join(reactor, protocol, options.backbone, timeout=options.connect_timeout)
        lines = (
            MessagePublisher(publisher, options.kept, to_payload, overhead)
            if state is None
            else ResumingPublisher(publisher, options.kept, state, to_payload, overhead)
        )
        publisher.stopped.addErrback(lambda failure: lines.stop(failure.value))
        interrupted = False
        try:
            await lines.read(descriptor, reactor)
        except CancelledError:
            interrupted = True
            lines.stop("interrupted")
        missing = lines.lines_read - lines.published
        await _leave(publisher, reactor, at_once=interrupted)
    if isinstance(lines.problem, StateFileError):
        return print_error(lines.problem)
    if lines.problem is not None:
        outcome = "not kept" if isinstance(lines.problem, MessageNotKept) else "not published"
        return print_error(f"{missing:,} of {pluralize(lines.lines_read, 'message')} {outcome}: {lines.problem}")
    if isinstance(lines, ResumingPublisher) and lines.has_partial_line:
        print_error("the input ends in an incomplete line, which was not published")
    return 0


def _line_format(options: argparse.Namespace) -> tuple[Callable[[bytes], bytes] | None, int]:
    """Return what makes payloads with keys of lines, or ``None``, and the maximum bytes that it adds.

    :raises ConfigurationError: if the key is empty or too long, or messages are published without envelopes.
    """
    if options.key is None and options.key_separator is None:
        return None, 0
    if options.raw:
        raise ConfigurationError("a key requires an envelope; omit --raw or the key")
    if options.key is None:
        separator = os.fsencode(options.key_separator)
        if not separator:
            raise ConfigurationError("--key-separator must not be empty")
        return partial(add_key_of_line, separator=separator), KEY_OVERHEAD
    key = os.fsencode(options.key)
    check_key(key)
    return partial(add_key, key=key), KEY_OVERHEAD + len(key)


async def _leave(publisher: PublisherProtocol, reactor: Any, *, at_once: bool) -> None:
    """Leave after answering repair requests, or at once if interrupted."""
    hint = reactor.callLater(LEAVE_HINT_DELAY, print_hint, "still answering repairs; interrupt to leave")
    try:
        await publisher.leave(at_once=at_once)
    except CancelledError:
        await publisher.leave(at_once=True)
    finally:
        if hint.active():
            hint.cancel()
