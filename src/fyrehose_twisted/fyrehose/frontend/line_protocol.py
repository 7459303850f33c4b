"""A message a line over TCP, and an answer a line: its number, or ``error REASON``."""

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

from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.journals import TooFewJournals
from fyrehose_twisted.fyrehose.frontend.publish_queue import Intake, NotPublished, TooMuchWaits
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.web.client_limits import client_of
from fyrehose_twisted.web.tokens import Tokens

MAX_TOKEN_LINE = 512
"""Bytes of the line with the token."""

_TOO_LONG = bytes(MAX_ENVELOPED + 1)
"""Stands for a line that is longer than any message, of which nothing is kept."""

_HTTP = re.compile(rb"[A-Za-z]{1,20} \S.* HTTP/[0-9.]+\r?|PRI \* HTTP/2\.0\r?")
_TLS = b"\x16\x03"
_STUN = re.compile(rb"(?s:..)?\x00[\x01\x03](?s:..)\x21\x12\xa4\x42")
"""How WebRTC greets what a page calls a relay or, with a length before it, a peer (RFC 8489, RFC 4571)."""


class _Answers:
    """The answers of lines that came together, some of which may be no messages."""

    __slots__ = ("count", "errors", "text")

    def __init__(self, count: int, text: bytes | None = None, errors: dict[int, bytes] | None = None) -> None:
        self.count = count
        self.text = text
        self.errors = {} if errors is None else errors

    def tell(self, text: bytes) -> None:
        """Say what became of the messages, a line each."""
        if self.errors:
            messages = iter(text.splitlines(keepends=True))
            text = b"".join(self.errors[row] if row in self.errors else next(messages) for row in range(self.count))
        self.text = text


@implementer(IHalfCloseableProtocol, IPushProducer)
class LineConnection(Protocol):
    """One connection. It is read no faster than its messages are published, and its answers are read.

    :ivar client: whose it is: the name of a token, or an address.
    """

    transport: Any
    log = Logger()

    def __init__(self, factory: LineFactory, address: str) -> None:
        self.factory: Any = factory
        self.client = address
        self._lines = factory
        self._rest = b""
        self._begun = False
        self._counted = False
        self._too_long = False
        self._publishing = False
        self._answers: deque[_Answers] = deque()
        self._unanswered = 0
        self._waiting: set[Deferred[Any]] = set()
        self._choked: Any = False
        self._paused = False
        self._over = False
        self._ended = False
        self._heard_all = False
        self._retry: Any = None
        self._stall: Any = None
        self._timeout: Any = None
        self._held: list[bytes] = []

    @property
    def is_known(self) -> bool:
        """Whether the client has shown a token, where one is needed."""
        return self._lines.tokens is None or self._begun

    def connectionMade(self) -> None:
        """Twisted: it is open."""
        self.transport.registerProducer(self, True)
        self._lines.opened(self)
        if self._lines.tokens is None:
            self._admit()
        else:
            self._timeout = self._lines.reactor.callLater(self._lines.config.request_timeout, self._too_slow)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes arrived."""
        if self._ended:
            return
        if self._rest:
            data = self._rest + data
        *lines, self._rest = data.split(b"\n")
        if lines:
            self._received(lines)
        if not self._begun and self._lines.tokens is not None:
            if len(self._rest) > MAX_TOKEN_LINE:
                self._refuse(b"token")
        elif len(self._rest) > MAX_ENVELOPED + 1:
            if not self._begun:
                self._refuse(b"too-large")
                return
            self._too_long = True
            self._rest = b""

    def _received(self, lines: list[bytes]) -> None:
        if self._too_long:  # The end of one that was too long already.
            self._too_long = False
            lines[0] = _TOO_LONG  # In its place, so that its answer is in its place.
        if not self._begun and lines:
            if not self._begin(lines[0]):
                return
            if self._lines.tokens is not None:
                lines = lines[1:]
        self._held += lines
        self._publish()

    def _begin(self, line: bytes) -> bool:
        """Look at the first line; return whether the connection may go on."""
        if _HTTP.fullmatch(line) or line.startswith(_TLS) or _STUN.match(line):
            # A page could have a browser send its lines in the body of a request.
            self._lines.counts["http"] += 1
            self._refuse(b"http")
            return False
        if len(line) > MAX_ENVELOPED + 1 and self._lines.tokens is None:
            self._refuse(b"too-large")  # As one that is not there as a whole, of which nobody knows what it is.
            return False
        if self._lines.tokens is not None:
            word, _, token = line.rstrip(b"\r").partition(b" ")
            name = self._lines.tokens.name_of(token) if word == b"token" else None
            if name is None:
                self._lines.counts["bad_tokens"] += 1
                self._refuse(b"token")
                return False
            self.client = name
            if not self._admit():
                return False
            self._timeout.cancel()
            self._timeout = None
        self._begun = True
        return True

    def _admit(self) -> bool:
        self._counted = self._lines.admit(self.client)
        if not self._counted:
            self._refuse(b"too-many-connections")
        return self._counted

    def _publish(self) -> None:
        """Publish what is held, as far as that may be now."""
        # Some of it may fail at once, which brings us here again.
        if self._publishing or self._retry is not None:
            return
        self._publishing = True
        try:
            self._publish_held()
        finally:
            self._publishing = False
        self._throttle()

    def _publish_held(self) -> None:
        lines = self._lines
        while self._held and not self._over and self._unanswered < lines.config.unanswered_lines:
            wait = lines.intake.rates.wait(self.client)
            if wait > 0:
                lines.counts["limited"] += 1
                self._try_again(wait)
                break
            batch = [line[:-1] if line.endswith(b"\r") else line for line in self._held[: lines.at_once]]
            run = [line for line in batch if 0 < len(line) <= MAX_ENVELOPED]
            published: Deferred[Sequence[int]] | None = None
            if run:
                try:
                    published = lines.intake.submit(self.client, run)
                except TooMuchWaits:
                    self._try_again(0.05)
                    break
            del self._held[: len(batch)]
            answers = _Answers(len(batch), errors=self._errors(batch) if len(run) < len(batch) else None)
            if answers.errors:
                lines.intake.rates.charge(self.client, len(answers.errors), 0)  # To answer them is work as well.
            if published is None:
                answers.tell(b"")
            self._answer(answers)
            if published is not None:
                if lines.intake.kept:
                    published.addCallback(lines.intake.when_kept, lines.intake.kept)
                self._waiting.add(published)
                done = published.addCallbacks(self._numbered, self._failed, (answers,), errbackArgs=(answers,))
                done.addErrback(self._broken)
                done.addCallback(self._no_longer_waits, published)

    def _errors(self, lines: list[bytes]) -> dict[int, bytes]:
        """Return what is answered to those that are no messages, by row."""
        return {
            row: self._error(b"too-large" if line else b"empty")
            for row, line in enumerate(lines)
            if not 0 < len(line) <= MAX_ENVELOPED
        }

    def _numbered(self, sequences: Sequence[int], answers: _Answers) -> None:
        self._lines.counts["lines"] += len(sequences)
        answers.tell(b"%d\n" * len(sequences) % tuple(sequences))
        self._go_on()

    def _failed(self, failure: Failure, answers: _Answers) -> None:
        failure.trap(NotPublished, TooFewJournals, CancelledError)
        error: Any = failure.value
        messages = answers.count - len(answers.errors)
        if isinstance(error, TooFewJournals):
            why = b"not-kept"
            answers.tell(b"".join(self._error(b"%b %d" % (why, sequence)) for sequence in error.sequences))
            self._go_on()
            return
        why = b"unknown" if getattr(error, "unknown", True) else b"not-published"
        answers.tell(self._error(why) * messages)
        self._lines.counts["errors"] += messages - 1
        self._go_on()

    def _go_on(self) -> None:
        self._flush()
        if self._held:
            self._publish()

    def _no_longer_waits(self, result: object, published: Deferred[Any]) -> None:
        self._waiting.discard(published)

    def _broken(self, failure: Failure) -> None:
        self.log.failure("a connection for lines failed", failure)
        self.transport.abortConnection()

    def _error(self, why: bytes) -> bytes:
        self._lines.counts["errors"] += 1
        return b"error %b\n" % why

    def _answer(self, answers: _Answers) -> None:
        self._answers.append(answers)
        self._unanswered += answers.count
        self._flush()

    def _flush(self) -> None:
        texts = []
        while self._answers and self._answers[0].text is not None:
            answers = self._answers.popleft()
            self._unanswered -= answers.count
            texts.append(answers.text or b"")
        if texts:
            self.transport.write(b"".join(texts))
        if self._ended and not self._answers and not self._held:
            self._hang_up()
        else:
            self._throttle()

    def _hang_up(self) -> None:
        if not self._over:
            self._over = True
            if self._stall is None:
                # Nothing tells any more whether it reads what is left, and without that the connection stays open.
                self._stall = self._lines.reactor.callLater(self._lines.config.stall_timeout, self._stalled)
            self.transport.unregisterProducer()  # Or the connection would stay open for it.
            if self._heard_all or ISSLTransport.providedBy(self.transport):
                self.transport.loseConnection()
            else:
                # With bytes of the client unread, the kernel would take back answers that it has not read.
                self.transport.resumeProducing()
                self.transport.loseWriteConnection()

    def _throttle(self) -> None:
        full = self._choked or bool(self._held) or self._unanswered >= self._lines.config.unanswered_lines
        if full != self._paused and not self._ended:
            self._paused = full
            if full:
                self.transport.pauseProducing()
            else:
                self.transport.resumeProducing()

    def _try_again(self, wait: float) -> None:
        if self._retry is None:
            self._retry = self._lines.reactor.callLater(wait, self._tried)

    def _tried(self) -> None:
        self._retry = None
        self._publish()
        self._flush()

    def _refuse(self, why: bytes) -> None:
        self._held = []
        self._rest = b""
        if not self._over:
            self._ended = True
            self.transport.write(self._error(why))
            self._hang_up()

    def _too_slow(self) -> None:
        self._timeout = None
        self._refuse(b"timeout")

    def readConnectionLost(self) -> None:
        """Twisted: the client says no more; it may still wait for answers."""
        self._heard_all = True
        if self._over:
            self.transport.loseConnection()
        if self._ended:
            return
        rest, self._rest = self._rest, b""
        if rest or self._too_long:
            self._received([rest])  # Many programs do not end their last line.
        self._ended = True
        self._flush()

    def writeConnectionLost(self) -> None:
        """Twisted: our side is closed."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: it is closed."""
        self._ended = self._over = True
        self._held = []
        for call in (self._timeout, self._retry, self._stall):
            if call is not None:
                call.cancel()
        for published in list(self._waiting):
            published.cancel()
        self._lines.closed(self, self.client if self._counted else None)

    def pauseProducing(self) -> None:
        """Twisted: the client does not read its answers."""
        self._choked = True
        if self._stall is None:
            self._stall = self._lines.reactor.callLater(self._lines.config.stall_timeout, self._stalled)
        self._throttle()

    def resumeProducing(self) -> None:
        """Twisted: it does."""
        self._choked = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._throttle()

    def stopProducing(self) -> None:
        """Twisted: the connection is about to be closed."""
        self._choked = True

    def _stalled(self) -> None:
        self._stall = None
        self._lines.counts["stalled"] += 1
        self.transport.abortConnection()

    def stop(self) -> None:
        """Take no more, and hang up once everything is answered."""
        held, self._held = self._held, []
        self._rest = b""
        self._ended = True
        if held:
            self._answers.append(_Answers(len(held), self._error(b"not-published") * len(held)))
        self._flush()


class LineFactory(Factory):
    """Lets clients in.

    :param tokens: clients begin with ``token TOKEN``; ``None`` for no such line.
    :ivar counts: ``lines`` that were published, ``errors`` that were answered, and why connections ended.
    :ivar refused: connections that were closed because there were too many.
    """

    noisy = False

    def __init__(self, intake: Intake, config: FrontendConfig, tokens: Tokens | None, reactor: Any) -> None:
        self.intake = intake
        self.config = config
        self.tokens = tokens
        self.reactor = reactor
        self.at_once = min(256, config.unanswered_lines)
        self.counts: Counter[str] = Counter()
        self.refused = 0
        self._open: dict[LineConnection, None] = {}
        self._clients: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def logPrefix(self) -> str:
        """Twisted: what to call it in the log."""
        return "lines"

    def buildProtocol(self, addr: Any) -> LineConnection | None:
        """Twisted: somebody has connected."""
        if len(self._open) >= self.config.max_line_connections:
            self.refused += 1
            # Or who has no token could keep out those who have one.
            stranger = next((one for one in self._open if not one.is_known), None)
            if stranger is None:
                return None
            stranger.transport.abortConnection()
            self._open.pop(stranger, None)
        return LineConnection(self, client_of(getattr(addr, "host", "local")))

    def opened(self, connection: LineConnection) -> None:
        """A connection is open."""
        self._open[connection] = None

    def admit(self, client: str) -> bool:
        """Count a connection of a client; return whether it may have it."""
        if self._clients[client] >= self.config.line_connections_per_client:
            self.refused += 1
            return False
        self._clients[client] += 1
        return True

    def closed(self, connection: LineConnection, client: str | None) -> None:
        """A connection is closed."""
        self._open.pop(connection, None)
        if client is not None:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def close(self) -> None:
        """Take no more from anybody."""
        for connection in list(self._open):
            connection.stop()
