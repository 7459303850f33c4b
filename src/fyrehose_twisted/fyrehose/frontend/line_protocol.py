"""Line protocol of the frontend: a message per line over TCP, and a reply per line, a number or ``error REASON``."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer, ISSLTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.framing import KeyedPayload
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.journals import TooFewJournals
from fyrehose_twisted.fyrehose.frontend.publish_queue import BatchFailed, PublishQueue, QueueFull
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.wire.message_key import add_key_of_line
from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.web.tokens import Tokens

MAX_TOKEN_LINE = 512
"""Maximum size in bytes of the line with the token."""

_TOO_LONG = bytes(MAX_ENVELOPED + 1)
"""Placeholder of a line that is too long, whose content is discarded."""

_NO_KEY = KeyedPayload()
"""Placeholder of a line that has no valid key, although all lines must have one."""

_HTTP = re.compile(rb"[A-Za-z]{1,20} \S.* HTTP/[0-9.]+\r?|PRI \* HTTP/2\.0\r?")
_TLS = b"\x16\x03"
_STUN = re.compile(rb"(?s:..)?\x00[\x01\x03](?s:..)\x21\x12\xa4\x42")
"""STUN request that WebRTC sends to a relay or, with a length prefix, to a peer (RFC 8489, RFC 4571)."""


class _LineReplies:
    """Replies to lines that were received together. Some lines may not be messages."""

    __slots__ = ("count", "errors", "text")

    def __init__(self, count: int, text: bytes | None = None, errors: dict[int, bytes] | None = None) -> None:
        self.count = count
        self.text = text
        self.errors = {} if errors is None else errors

    def set_text(self, text: bytes) -> None:
        """Set the replies to the messages, one line each."""
        if self.errors:
            messages = iter(text.splitlines(keepends=True))
            text = b"".join(self.errors[row] if row in self.errors else next(messages) for row in range(self.count))
        self.text = text


@implementer(IHalfCloseableProtocol, IPushProducer)
class LineProtocol(Protocol):
    """Connection of a client. It is read only as fast as messages are published and the client reads its replies.

    :ivar client: client of the connection: the name of a token, or an address.
    """

    transport: Any
    log = Logger()

    def __init__(self, factory: LineFactory, address: str) -> None:
        self.factory: Any = factory
        self.client = address
        self._line_factory = factory
        self._buffer = b""
        self._has_begun = False
        self._is_counted = False
        self._too_long = False
        self._is_publishing = False
        self._replies: deque[_LineReplies] = deque()
        self._unanswered = 0
        self._pending_publishes: set[Deferred[Any]] = set()
        self._write_blocked: Any = False
        self._read_paused = False
        self._write_closed = False
        self._input_ended = False
        self._read_closed = False
        self._retry_call: Any = None
        self._stall_call: Any = None
        self._timeout_call: Any = None
        self._queued_lines: list[bytes] = []

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has sent a valid token, or needs none."""
        return self._line_factory.tokens is None or self._has_begun

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        self.transport.registerProducer(self, True)
        self._line_factory.connection_opened(self)
        if self._line_factory.tokens is None:
            self._admit()
        else:
            self._timeout_call = self._line_factory.reactor.callLater(
                self._line_factory.config.request_timeout, self._token_timed_out
            )

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes arrived."""
        if self._input_ended:
            return
        if self._buffer:
            data = self._buffer + data
        *lines, self._buffer = data.split(b"\n")
        if lines:
            self._lines_received(lines)
        if not self._has_begun and self._line_factory.tokens is not None:
            if len(self._buffer) > MAX_TOKEN_LINE:
                self._refuse(b"token")
        elif len(self._buffer) > MAX_ENVELOPED + 1:
            if not self._has_begun:
                self._refuse(b"too-large")
                return
            self._too_long = True
            self._buffer = b""

    def _lines_received(self, lines: list[bytes]) -> None:
        if self._too_long:  # The end of a line that is too long.
            self._too_long = False
            lines[0] = _TOO_LONG  # Keep the order of the replies.
        if not self._has_begun and lines:
            if not self._check_first_line(lines[0]):
                return
            if self._line_factory.tokens is not None:
                lines = lines[1:]
        self._queued_lines += lines
        self._publish()

    def _check_first_line(self, line: bytes) -> bool:
        """Check the first line. Return whether the connection may continue."""
        if _HTTP.fullmatch(line) or line.startswith(_TLS) or _STUN.match(line):
            # A web page could make a browser send lines in the body of a request.
            self._line_factory.counters["http"] += 1
            self._refuse(b"http")
            return False
        if len(line) > MAX_ENVELOPED + 1 and self._line_factory.tokens is None:
            self._refuse(b"too-large")  # As for an incomplete line, which cannot be checked.
            return False
        if self._line_factory.tokens is not None:
            word, _, token = line.rstrip(b"\r").partition(b" ")
            name = self._line_factory.tokens.name_of(token) if word == b"token" else None
            if name is None:
                self._line_factory.counters["bad_tokens"] += 1
                self._refuse(b"token")
                return False
            self.client = name
            if not self._admit():
                return False
            self._timeout_call.cancel()
            self._timeout_call = None
        self._has_begun = True
        return True

    def _admit(self) -> bool:
        self._is_counted = self._line_factory.admit(self.client)
        if not self._is_counted:
            self._refuse(b"too-many-connections")
        return self._is_counted

    def _publish(self) -> None:
        """Publish queued lines as far as the limits allow."""
        # A batch that fails at once calls this again.
        if self._is_publishing or self._retry_call is not None:
            return
        self._is_publishing = True
        try:
            self._publish_queued()
        finally:
            self._is_publishing = False
        self._throttle()

    def _publish_queued(self) -> None:
        lines = self._line_factory
        while self._queued_lines and not self._write_closed and self._unanswered < lines.config.unanswered_lines:
            wait = lines.publish_queue.rate_limiter.wait_time(self.client)
            if wait > 0:
                lines.counters["limited"] += 1
                self._schedule_retry(wait)
                break
            batch: list[bytes] = [
                line[:-1] if line.endswith(b"\r") else line for line in self._queued_lines[: lines.batch_lines]
            ]
            if lines.config.key_separator:
                batch = [_payload_of_line(line, lines.config.key_separator) for line in batch]
            longest = lines.publish_queue.max_message
            run = [line for line in batch if 0 < len(line) <= longest]
            published: Deferred[Sequence[int]] | None = None
            if run:
                try:
                    published = lines.publish_queue.submit(self.client, run)
                except QueueFull:
                    self._schedule_retry(0.05)
                    break
            del self._queued_lines[: len(batch)]
            answers = _LineReplies(len(batch), errors=self._error_replies(batch) if len(run) < len(batch) else None)
            if answers.errors:
                lines.publish_queue.rate_limiter.charge(
                    self.client, len(answers.errors), 0
                )  # Error replies cost work, too.
            if published is None:
                answers.set_text(b"")
            self._queue_replies(answers)
            if published is not None:
                if lines.publish_queue.kept:
                    published.addCallback(lines.publish_queue.when_kept, lines.publish_queue.kept)
                self._pending_publishes.add(published)
                done = published.addCallbacks(
                    self._publish_succeeded, self._publish_failed, (answers,), errbackArgs=(answers,)
                )
                done.addErrback(self._internal_error)
                done.addCallback(self._publish_done, published)

    def _error_replies(self, lines: list[bytes]) -> dict[int, bytes]:
        """Return the replies to lines that are not messages, by row."""
        return {
            row: self._error_reply(b"no-key" if line is _NO_KEY else b"too-large" if line else b"empty")
            for row, line in enumerate(lines)
            if not 0 < len(line) <= self._line_factory.publish_queue.max_message
        }

    def _publish_succeeded(self, sequences: Sequence[int], answers: _LineReplies) -> None:
        self._line_factory.counters["lines"] += len(sequences)
        answers.set_text(b"%d\n" * len(sequences) % tuple(sequences))
        self._flush_and_publish()

    def _publish_failed(self, failure: Failure, answers: _LineReplies) -> None:
        failure.trap(BatchFailed, TooFewJournals, CancelledError)
        error = failure.value
        messages = answers.count - len(answers.errors)
        if isinstance(error, TooFewJournals):
            answers.set_text(b"".join(self._error_reply(b"not-kept %d" % sequence) for sequence in error.sequences))
            self._flush_and_publish()
            return
        unknown = not isinstance(error, BatchFailed) or error.unknown
        answers.set_text(self._error_reply(b"unknown" if unknown else b"not-published") * messages)
        self._line_factory.counters["errors"] += messages - 1
        self._flush_and_publish()

    def _flush_and_publish(self) -> None:
        self._flush()
        if self._queued_lines:
            self._publish()

    def _publish_done(self, result: object, published: Deferred[Any]) -> None:
        self._pending_publishes.discard(published)

    def _internal_error(self, failure: Failure) -> None:
        self.log.failure("a line connection failed", failure)
        self.transport.abortConnection()

    def _error_reply(self, reason: bytes) -> bytes:
        self._line_factory.counters["errors"] += 1
        return b"error %b\n" % reason

    def _queue_replies(self, answers: _LineReplies) -> None:
        self._replies.append(answers)
        self._unanswered += answers.count
        self._flush()

    def _flush(self) -> None:
        texts = []
        while self._replies and self._replies[0].text is not None:
            answers = self._replies.popleft()
            self._unanswered -= answers.count
            texts.append(answers.text or b"")
        if texts:
            self.transport.write(b"".join(texts))
        if self._input_ended and not self._replies and not self._queued_lines:
            self._close()
        else:
            self._throttle()

    def _close(self) -> None:
        if not self._write_closed:
            self._write_closed = True
            if self._stall_call is None:
                # Without a producer, only a timeout closes the connection of a client that does not read.
                self._stall_call = self._line_factory.reactor.callLater(
                    self._line_factory.config.stall_timeout, self._stalled
                )
            self.transport.unregisterProducer()  # A registered producer would keep the connection open.
            if self._read_closed or ISSLTransport.providedBy(self.transport):
                self.transport.loseConnection()
            else:
                # With unread bytes of the client, the kernel would reset the connection and discard unread replies.
                self.transport.resumeProducing()
                self.transport.loseWriteConnection()

    def _throttle(self) -> None:
        full = (
            self._write_blocked
            or bool(self._queued_lines)
            or self._unanswered >= self._line_factory.config.unanswered_lines
        )
        if full != self._read_paused and not self._input_ended:
            self._read_paused = full
            if full:
                self.transport.pauseProducing()
            else:
                self.transport.resumeProducing()

    def _schedule_retry(self, wait: float) -> None:
        if self._retry_call is None:
            self._retry_call = self._line_factory.reactor.callLater(wait, self._run_retry)

    def _run_retry(self) -> None:
        self._retry_call = None
        self._publish()
        self._flush()

    def _refuse(self, reason: bytes) -> None:
        self._queued_lines = []
        self._buffer = b""
        if not self._write_closed:
            self._input_ended = True
            self.transport.write(self._error_reply(reason))
            self._close()

    def _token_timed_out(self) -> None:
        self._timeout_call = None
        self._refuse(b"timeout")

    def readConnectionLost(self) -> None:
        """Twisted: the client has half-closed the connection and may wait for replies."""
        self._read_closed = True
        if self._write_closed:
            self.transport.loseConnection()
        if self._input_ended:
            return
        rest, self._buffer = self._buffer, b""
        if rest or self._too_long:
            self._lines_received([rest])  # Many programs do not terminate their last line.
        self._input_ended = True
        self._flush()

    def writeConnectionLost(self) -> None:
        """Twisted: the write side is closed."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection is closed."""
        self._input_ended = self._write_closed = True
        self._queued_lines = []
        for call in (self._timeout_call, self._retry_call, self._stall_call):
            if call is not None:
                call.cancel()
        for published in list(self._pending_publishes):
            published.cancel()
        self._line_factory.connection_closed(self, self.client if self._is_counted else None)

    def pauseProducing(self) -> None:
        """Twisted: the client does not read its replies."""
        self._write_blocked = True
        if self._stall_call is None:
            self._stall_call = self._line_factory.reactor.callLater(
                self._line_factory.config.stall_timeout, self._stalled
            )
        self._throttle()

    def resumeProducing(self) -> None:
        """Twisted: the client reads its replies again."""
        self._write_blocked = False
        if self._stall_call is not None:
            self._stall_call.cancel()
            self._stall_call = None
        self._throttle()

    def stopProducing(self) -> None:
        """Twisted: the connection is about to be closed."""
        self._write_blocked = True

    def _stalled(self) -> None:
        self._stall_call = None
        self._line_factory.counters["stalled"] += 1
        self.transport.abortConnection()

    def stop(self) -> None:
        """Accept no more lines, and close the connection after all replies."""
        held, self._queued_lines = self._queued_lines, []
        self._buffer = b""
        self._input_ended = True
        if held:
            self._replies.append(_LineReplies(len(held), self._error_reply(b"not-published") * len(held)))
        self._flush()


class LineFactory(Factory):
    """Factory of line connections.

    :param tokens: tokens of which clients have to send one in the first line, ``token TOKEN``; ``None`` for none.
    :ivar counters: published ``lines``, ``errors`` sent, and reasons for which connections were closed.
    :ivar refused: number of connections closed because there were too many.
    """

    noisy = False

    def __init__(
        self, publish_queue: PublishQueue, config: FrontendConfig, tokens: Tokens | None, reactor: Any
    ) -> None:
        self.publish_queue = publish_queue
        self.config = config
        self.tokens = tokens
        self.reactor = reactor
        self.batch_lines = min(256, config.unanswered_lines)
        self.counters: Counter[str] = Counter()
        self.refused = 0
        self._connections: dict[LineProtocol, None] = {}
        self._connections_by_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._connections)

    def logPrefix(self) -> str:
        """Twisted: return the name for the log."""
        return "lines"

    def buildProtocol(self, addr: Any) -> LineProtocol | None:
        """Twisted: accept a connection."""
        if len(self._connections) >= self.config.max_line_connections:
            self.refused += 1
            # Otherwise clients without a token could block clients with one.
            victim = next((connection for connection in self._connections if not connection.is_authenticated), None)
            if victim is None:
                return None
            victim.transport.abortConnection()
            self._connections.pop(victim, None)
        return LineProtocol(self, source_network(getattr(addr, "host", "local")))

    def connection_opened(self, connection: LineProtocol) -> None:
        """Record an open connection."""
        self._connections[connection] = None

    def admit(self, client: str) -> bool:
        """Count a connection of a client. Return whether it is within the limit."""
        if self._connections_by_client[client] >= self.config.line_connections_per_client:
            self.refused += 1
            return False
        self._connections_by_client[client] += 1
        return True

    def connection_closed(self, connection: LineProtocol, client: str | None) -> None:
        """Record a closed connection."""
        self._connections.pop(connection, None)
        if client is not None:
            self._connections_by_client[client] -= 1
            if not self._connections_by_client[client]:
                del self._connections_by_client[client]

    def close(self) -> None:
        """Stop all connections."""
        for connection in list(self._connections):
            connection.stop()


def _payload_of_line(line: bytes, separator: bytes) -> bytes:
    """Return the payload of a line with a key. Lines that are empty or too long stay as they are."""
    if not 0 < len(line) <= MAX_ENVELOPED:
        return line
    try:
        return add_key_of_line(line, separator)
    except ConfigurationError:
        return _NO_KEY
