"""IRC client connection: registration, keepalive, guaranteed end, verbatim lines.

Twisted's ``IRCClient`` is unsuitable: it closes the connection on a line that is not UTF-8, removes its own quoting,
and answers CTCP and DCC.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from re import fullmatch
from typing import Any

from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.wire.irc_line import (
    CASEMAPPINGS,
    CHANNEL_TYPES,
    IrcLogin,
    ParsedLine,
    for_display,
    is_single_param,
    parse_irc_line,
    to_wire,
)
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.net.addresses import parse_address, tcp_endpoint
from fyrehose_twisted.net.connection import describe_failure
from fyrehose_twisted.process.rate_limited_log import RateLimitedLog

MAX_PARTIAL_LINE = 16_384
"""Bytes of an unterminated line that are buffered."""
SASL_CHUNK = 400
"""Characters of one AUTHENTICATE; a shorter one is the last."""
LINGER = 1.0
"""Seconds that a server may take to close the connection after QUIT or ERROR."""


def irc_endpoint(reactor: Any, server: str) -> IStreamClientEndpoint:
    """Return an endpoint for a server: ``HOST:PORT``, or a client endpoint such as ``tls:irc.example.org:6697``.

    :raises ConfigurationError: if it is neither.
    """
    with suppress(ConfigurationError):
        return tcp_endpoint(reactor, parse_address(server))
    try:
        endpoint: IStreamClientEndpoint = clientFromString(reactor, server)
    except Exception as problem:
        raise ConfigurationError(f"{server!r} is neither HOST:PORT nor a client endpoint: {problem}") from problem
    return endpoint


class _SingleUseFactory(Factory):
    """Factory for a single connection; an endpoint that tries several addresses may open more."""

    noisy = False

    def __init__(self, client: IrcClient) -> None:
        self._client: IrcClient | None = client

    def buildProtocol(self, addr: Any) -> IrcClient | None:
        """Twisted: return the client for the first connection only."""
        client, self._client = self._client, None
        return client


@implementer(IPushProducer)
class _AbortWhenBlocked:
    """Producer that aborts a connection whose server does not read, because delayed lines may outlive the lease."""

    def __init__(self, client: IrcClient) -> None:
        self._client = client

    def pauseProducing(self) -> None:
        """Twisted: the transport buffer is full."""
        if self._client.registered:  # Before that, TLS may not be ready.
            self._client.abort("the server does not read")

    def resumeProducing(self) -> None:
        """Twisted: the transport buffer has space."""

    def stopProducing(self) -> None:
        """Twisted: the transport accepts no more data."""


class IrcClient(Protocol):
    """One IRC connection that registers, answers PINGs, and ends when the server is silent.

    Subclasses override the hooks. Call :meth:`dial` once; :meth:`ended` is then called exactly once.

    :param timeout: seconds from dialling until :meth:`setup_done` must be called.
    :param ping_interval: seconds between PINGs to the server.
    :param ping_timeout: seconds of silence after a PING that end the connection.
    :ivar nick: current or requested nick.
    :ivar prefix: ``nick!user@host``, as far as known.
    :ivar limits: limits announced by the server.
    :ivar registered: whether registration succeeded.
    :ivar leaving: whether QUIT was sent; nothing more is written, and lines are read until the server closes.
    :ivar is_closed: whether reading and writing have ended; the transport may still be open.
    """

    log = Logger()

    def __init__(
        self,
        login: IrcLogin,
        clock: Any,
        *,
        server: str = "",
        timeout: float = 15.0,
        ping_interval: float = 30.0,
        ping_timeout: float = 20.0,
    ) -> None:
        self.login = login
        self.clock = clock
        self.server = server
        self.timeout = timeout
        self.ping_interval = ping_interval
        self.ping_timeout = ping_timeout
        self.nick = to_wire(login.nick)
        self.prefix = ""
        self.registered = False
        self.leaving = False
        self.is_closed = False
        self.counters: Counter[str] = Counter()
        self.rate_limited_log = RateLimitedLog(self.log, clock.seconds)
        self.hooks: dict[str, Callable[[ParsedLine], None]] = {
            "001": self._welcomed,
            "005": self._isupport_received,
            "396": self._host_changed,
            "903": self._sasl_done,
            "907": self._sasl_done,
            "AUTHENTICATE": self._sasl_requested,
            "CAP": self._capability,
            "ERROR": self._error,
            "JOIN": self._join_seen,
            "KILL": self._killed,
            "NICK": self._nick_changed,
            "PING": self._ping,
            "PONG": self._pong,
            **dict.fromkeys(("431", "432", "433", "436", "437"), self._nick_refused),
            **dict.fromkeys(("464", "465"), self._refused),
            **dict.fromkeys(("902", "904", "905", "906", "908"), self._sasl_refused),
        }
        self._end_reason: str | None = None
        """Reason of the end, if known."""
        self._rest = b""
        self._casemapping = CASEMAPPINGS["rfc1459"]
        self.limits = IrcLimits()
        self._unanswered_pings: deque[int | None] = deque()
        """Numbers of unanswered PINGs; ``None`` for a keepalive PING."""
        self._connecting: Deferred[Any] | None = None
        self._ended = False
        self._sasl_open = login.sasl is not None
        self._timer: IDelayedCall | None = None
        """Setup timeout; later the timer of the next PING or its reply."""
        self._abort_timer: IDelayedCall | None = None
        self._received_since_ping = False
        """Whether anything was received since the last PING to the server."""

    # Hooks for subclasses

    def signed_on(self) -> None:
        """Handle the end of registration, after the welcome messages."""

    def nick_refused(self, code: str, nick: str) -> None:
        """Handle a refused nick."""
        self.abort(f"the nick {for_display(nick)} is refused ({code})")

    def identity_changed(self) -> None:
        """Handle a change of nick or prefix."""

    def line_received(self, line: ParsedLine) -> None:
        """Handle a line."""

    def batch_ended(self) -> None:
        """Handle the end of a batch of lines."""

    def send_ping(self) -> None:
        """Send a keepalive PING."""
        self._unanswered_pings.append(None)
        self.send("PING", ":hydra")

    def answered(self, number: int) -> None:
        """Handle the reply to :meth:`ask`: the server has processed everything written before."""

    def ended(self, reason: str) -> None:
        """Handle the end: the transport is closed, or was never open."""

    # Methods for subclasses

    def dial(self, endpoint: IStreamClientEndpoint) -> None:
        """Connect through an endpoint."""
        self._timer = self.clock.callLater(self.timeout, self.setup_timed_out)
        try:
            self._connecting = endpoint.connect(_SingleUseFactory(self))
        except Exception as problem:
            self._dial_failed(Failure(problem))
            return
        self._connecting.addErrback(self._dial_failed)

    def setup_done(self) -> None:
        """End the setup phase and its timeout."""
        if not self.is_closed:
            self._set_timer(self.ping_interval, self._ping_server)

    def setup_timed_out(self) -> None:
        """Abort because the setup took too long."""
        self.abort("no answer")

    def send(self, *words: str) -> None:
        """Write one line made of words."""
        line = " ".join(words).encode("latin-1")
        assert line.translate(None, b"\r\n\0") == line, "configuration is validated, and received text has no line ends"
        self.write_line(line)

    def request_nick(self, nick: str) -> None:
        """Request a nick."""
        if not self.registered:
            self.nick = nick
        self.send("NICK", nick)

    def write_line(self, line: bytes) -> bool:
        """Write a line; return ``False`` if the connection is closing."""
        if self.is_closed or self.leaving or self.transport is None:
            return False
        self._write_now(line + b"\r\n")
        return True

    def ask(self, number: int) -> None:
        """Send a numbered PING; :meth:`answered` is called after the reply."""
        if self.write_line(b"PING :hydra-%d" % number):
            self._unanswered_pings.append(number)

    def quit(self, reason: str, timeout: float = LINGER) -> None:
        """Send QUIT; abort if the server does not close the connection within ``timeout`` seconds.

        Lines are read until then. To close with unread data would reset the connection, and the server could discard
        what it has not read either.
        """
        if self.is_closed or self.transport is None:
            self.abort(reason)
            return
        self._end_reason = self._end_reason or reason
        self.send("QUIT", ":" + to_wire("".join(filter(str.isprintable, reason))[:100]))
        if self.registered:
            self.leaving = True
        else:
            self.is_closed = True
            self._transport.unregisterProducer()  # Otherwise Twisted waits for the producer.
            self._transport.loseConnection()
        self._abort_later(timeout)

    def abort(self, reason: str) -> None:
        """Abort the connection; :meth:`ended` gets ``reason`` unless there was an earlier one."""
        if self._ended:
            return
        self._end_reason = self._end_reason or reason
        self.is_closed = True
        if self.transport is not None:
            self._transport.abortConnection()
        elif self._connecting is not None:
            self._connecting.cancel()

    def casefold(self, name: str) -> str:
        """Return a form that is equal for names which the server treats as the same."""
        return name.translate(self._casemapping)

    def is_own(self, nick: str) -> bool:
        """Return whether a nick is that of this connection."""
        return self.casefold(nick) == self.casefold(self.nick)

    # Twisted callbacks

    def connectionMade(self) -> None:
        """Twisted: start registration."""
        if self.is_closed:
            self._transport.abortConnection()
            return
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
            self._transport.setTcpKeepAlive(True)
        self._transport.registerProducer(_AbortWhenBlocked(self), True)
        if self._sasl_open:
            self.send("CAP", "REQ", ":sasl")
        if self.login.password is not None:
            self.send("PASS", to_wire(self.login.password))
        self.request_nick(self.nick)
        self.send("USER", to_wire(self.login.username or self.login.nick), "0", "*", ":" + to_wire(self.login.realname))

    def dataReceived(self, data: bytes) -> None:
        """Twisted: parse received bytes."""
        if self.is_closed:
            return
        self._received_since_ping = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            if not self.is_closed:
                self._handle_line(raw.rstrip(b"\r"))
        if len(self._rest) > MAX_PARTIAL_LINE:
            self.abort("overlong line")
        if not self.is_closed:
            self.batch_ended()

    def _handle_line(self, line: bytes) -> None:
        """Parse and dispatch a line."""
        if line.startswith(b"@"):  # Remove unrequested tags: nodes use tags of their own.
            line = line.partition(b" ")[2].lstrip(b" ")
        if not line:
            return
        if b"\r" in line or b"\0" in line:
            self._discard("unfit")
            return
        parsed = parse_irc_line(line)
        if parsed is None:
            self._discard("malformed")
            return
        try:
            hook = self.hooks.get(parsed.command)
            if hook is not None:
                hook(parsed)
            if not self.is_closed:
                self.line_received(parsed)
        except IndexError:
            self._discard("incomplete")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: handle the end of the connection."""
        self._finish(describe_failure(reason.value))

    # Messages of the server

    def _welcomed(self, line: ParsedLine) -> None:
        if self._sasl_open:
            self.abort("the server does not support SASL")
            return
        if self.registered:
            return
        self.registered = True
        # Some servers truncate long nicks.
        self.nick = line.params[0]
        self.prefix = self.nick
        # Wait for the end of the message of the day, as RPL_ISUPPORT precedes it.
        self.hooks["376"] = self.hooks["422"] = self._motd_ended

    def _motd_ended(self, line: ParsedLine) -> None:
        del self.hooks["376"], self.hooks["422"]
        self.signed_on()

    def _isupport_received(self, line: ParsedLine) -> None:
        words = dict(word.partition("=")[::2] for word in line.params[1:-1])
        numbers = {name: int(text) for name, text in words.items() if fullmatch("[0-9]{1,9}", text)}
        self.limits = IrcLimits(
            numbers.get("LINELEN", self.limits.line),
            numbers.get("TOPICLEN", self.limits.topic),
            numbers.get("KICKLEN", self.limits.kick),
        )
        if "CASEMAPPING" in words:
            self._casemapping = CASEMAPPINGS.get(words["CASEMAPPING"].lower(), CASEMAPPINGS["rfc1459"])

    def _join_seen(self, line: ParsedLine) -> None:
        if self.is_own(line.nick) and "@" in line.prefix:
            self.prefix = line.prefix

    def _host_changed(self, line: ParsedLine) -> None:
        user, at, _ = self.prefix.partition("!")[2].partition("@")
        if at and is_single_param(line.params[1]):
            host = line.params[1]
            self.prefix = f"{self.nick}!{host}" if "@" in host else f"{self.nick}!{user}@{host}"
            self.identity_changed()

    def _nick_changed(self, line: ParsedLine) -> None:
        if self.is_own(line.nick) and is_single_param(line.params[0].encode("latin-1").decode(errors="replace")):
            self.nick = line.params[0]
            _, mark, rest = self.prefix.partition("!")
            self.prefix = self.nick + mark + rest
            self.identity_changed()

    def _nick_refused(self, line: ParsedLine) -> None:
        nick = line.params[1]
        if nick[:1] not in tuple(CHANNEL_TYPES):  # 437 refers to nicks and channels.
            self.nick_refused(line.command, nick)

    def _ping(self, line: ParsedLine) -> None:
        self.send("PONG", ":" + line.params[-1])

    def _pong(self, line: ParsedLine) -> None:
        # Not all servers echo the token, but all answer in order.
        asked = {f"hydra-{number}": number for number in self._unanswered_pings if number is not None}
        number = asked.get(line.params[-1]) if line.params else None
        while self._unanswered_pings:
            found = self._unanswered_pings.popleft()
            if number is None or found == number:
                break
        else:
            return
        if found is not None:
            self.batch_ended()
            self.answered(found)

    def _refused(self, line: ParsedLine) -> None:
        self.abort(f"refused: {for_display(line.params[-1])}")

    def _killed(self, line: ParsedLine) -> None:
        if self.is_own(line.params[0]):
            self._end_reason = self._end_reason or f"killed: {for_display(line.params[-1])}"

    def _error(self, line: ParsedLine) -> None:
        self._end_reason = self._end_reason or f"the server says: {for_display(line.params[-1])}"
        self._abort_later(LINGER)

    # SASL PLAIN

    def _capability(self, line: ParsedLine) -> None:
        verb, names = line.params[1].upper(), line.params[-1].split()
        if not self._sasl_open or "sasl" not in names:
            return
        if verb == "ACK":
            self.send("AUTHENTICATE", "PLAIN")
        elif verb in ("NAK", "DEL"):
            self.abort("the server does not support SASL")

    def _sasl_requested(self, line: ParsedLine) -> None:
        if self.login.sasl is None or not self._sasl_open or line.params[0] != "+":
            return
        account, password = self.login.sasl
        text = b64encode(f"{account}\0{account}\0{password}".encode()).decode()
        for start in range(0, len(text) + 1, SASL_CHUNK):
            self.send("AUTHENTICATE", text[start : start + SASL_CHUNK] or "+")

    def _sasl_done(self, line: ParsedLine) -> None:
        if self._sasl_open:
            self._sasl_open = False
            self.send("CAP", "END")

    def _sasl_refused(self, line: ParsedLine) -> None:
        if self._sasl_open:
            self.abort(f"SASL refused: {for_display(line.params[-1])}")

    # Helpers

    @property
    def _transport(self) -> Any:
        return self.transport

    def _write_now(self, data: bytes) -> None:
        """Pass bytes to the kernel at once if possible, as lines must not be written after the lease."""
        transport = self._transport
        if (
            isinstance(transport, tcp.Connection)
            and not transport.dataBuffer
            and not transport._tempDataBuffer
            and not transport.disconnecting
        ):
            sent = transport.writeSomeData(data)
            if sent == len(data):
                return
            if isinstance(sent, int):
                data = data[sent:]
        # Twisted handles errors of the socket.
        transport.write(data)

    def _discard(self, kind: str) -> None:
        self.counters[kind] += 1
        self.rate_limited_log.warn(kind, self.server, "discarded lines from {source}: {what}", what=kind)

    def _set_timer(self, delay: float, act: Callable[[], None]) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self.clock.callLater(delay, act)

    def _ping_server(self) -> None:
        self._received_since_ping = False
        self.send_ping()
        self._set_timer(self.ping_timeout, self._check_silence)

    def _check_silence(self) -> None:
        if not self._received_since_ping:
            self.abort("silent")
        else:
            self._set_timer(max(0.0, self.ping_interval - self.ping_timeout), self._ping_server)

    def _abort_later(self, delay: float) -> None:
        if self._abort_timer is None:
            self._abort_timer = self.clock.callLater(delay, self.abort, "the server did not close the connection")

    def _dial_failed(self, failure: Failure) -> None:
        # Deferred to the next reactor turn, so that a caller that cancels is not reentered.
        if self.transport is None:
            self.is_closed = True
            self.clock.callLater(0, self._finish, describe_failure(failure.value))

    def _finish(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = self.is_closed = True
        for timer in (self._timer, self._abort_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self.ended(self._end_reason or reason)
