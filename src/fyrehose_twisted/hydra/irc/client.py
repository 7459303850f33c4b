"""One connection to an IRC server: registers, stays alive, ends for certain, and leaves lines as they are.

Twisted's ``IRCClient`` cannot do that: it hangs up at a line that is not UTF-8, undoes quoting of its own, and does
CTCP and DCC, which nobody wants from a node.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from re import fullmatch
from typing import Any, ClassVar

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
    CHANNEL_TYPES,
    MAPPINGS,
    Line,
    Login,
    one_word,
    parse_line,
    readable,
    wire,
)
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.net.addresses import parse_place, tcp_endpoint
from fyrehose_twisted.net.connection import describe
from fyrehose_twisted.rate_limited_log import Complaints

MAX_UNENDED = 16_384
"""Bytes that a server may send before it ends a line."""
SASL_CHUNK = 400
"""Characters of one AUTHENTICATE; a shorter one is the last."""
LINGER = 1.0
"""Seconds that a server may take to close the connection, once one side said that it is over."""


def irc_endpoint(reactor: Any, server: str) -> IStreamClientEndpoint:
    """Return what connects to a server: ``HOST:PORT``, or a client endpoint such as ``tls:irc.example.org:6697``.

    :raises ConfigurationError: if it is neither.
    """
    with suppress(ConfigurationError):
        return tcp_endpoint(reactor, parse_place(server))
    try:
        endpoint: IStreamClientEndpoint = clientFromString(reactor, server)
    except Exception as problem:
        raise ConfigurationError(f"{server!r} is neither HOST:PORT nor a client endpoint: {problem}") from problem
    return endpoint


class _Only(Factory):
    """Lets one connection through; an endpoint that tries several addresses may open more."""

    noisy = False

    def __init__(self, client: IrcClient) -> None:
        self._client: IrcClient | None = client

    def buildProtocol(self, addr: Any) -> IrcClient | None:
        """Twisted: a connection is open."""
        client, self._client = self._client, None
        return client


@implementer(IPushProducer)
class _Impatient:
    """Ends a connection whose other end does not read: what waits would be said too late."""

    def __init__(self, client: IrcClient) -> None:
        self._client = client

    def pauseProducing(self) -> None:
        """Twisted: the transport has no room for more."""
        if self._client.registered:  # Before that, TLS may not be ready.
            self._client.cut_off("the server does not read")

    def resumeProducing(self) -> None:
        """Twisted: it has room."""

    def stopProducing(self) -> None:
        """Twisted: nothing can be written any more."""


class IrcClient(Protocol):
    """Registers with a server, answers its PINGs, and ends if it is silent.

    A subclass changes the hooks. :meth:`dial` it once; :meth:`ended` is called once after that, whatever happens.

    :cvar hears_out: whether it reads, after its goodbye, what was said before the server has read that.
    :param timeout: seconds from dialling until :meth:`settled` has to be called.
    :param ping_every: seconds between PINGs to the server.
    :param answer_within: seconds of silence after one that end the connection.
    :ivar nick: the one that it has, or asks for.
    :ivar prefix: ``nick!user@host``, as far as it is known.
    :ivar limits: what the server says that it takes.
    :ivar registered: whether the server has let it in.
    :ivar leaving: whether it said goodbye: nothing more is written, and read is what comes until the server lets go.
    :ivar over: whether nothing is read or written any more; the transport may be open still.
    """

    log = Logger()
    hears_out: ClassVar[bool] = False

    def __init__(
        self,
        login: Login,
        clock: Any,
        *,
        server: str = "",
        timeout: float = 15.0,
        ping_every: float = 30.0,
        answer_within: float = 20.0,
    ) -> None:
        self.login = login
        self.clock = clock
        self.server = server
        self.timeout = timeout
        self.ping_every = ping_every
        self.answer_within = answer_within
        self.nick = wire(login.nick)
        self.prefix = ""
        self.registered = False
        self.leaving = False
        self.over = False
        self.counts: Counter[str] = Counter()
        self.complaints = Complaints(self.log, clock.seconds)
        self.hooks: dict[str, Callable[[Line], None]] = {
            "001": self._welcomed,
            "005": self._supports,
            "396": self._host_changed,
            "903": self._sasl_done,
            "907": self._sasl_done,
            "AUTHENTICATE": self._sasl_asked,
            "CAP": self._capability,
            "ERROR": self._error,
            "JOIN": self._seen,
            "KILL": self._killed,
            "NICK": self._nick_changed,
            "PING": self._ping,
            "PONG": self._pong,
            **dict.fromkeys(("431", "432", "433", "436", "437"), self._nick_refused),
            **dict.fromkeys(("464", "465"), self._refused),
            **dict.fromkeys(("902", "904", "905", "906", "908"), self._sasl_refused),
        }
        self._why: str | None = None
        """Why it ends, as far as that is known."""
        self._rest = b""
        self._folding = MAPPINGS["rfc1459"]
        self.limits = IrcLimits()
        self._questions: deque[int | None] = deque()
        """PINGs that are not answered, by number; ``None`` for one that only asks whether the server is there."""
        self._dial: Deferred[Any] | None = None
        self._ended = False
        self._sasl_open = login.sasl is not None
        self._timer: IDelayedCall | None = None
        """Until it has to be settled; then until the next PING, or its answer."""
        self._cut: IDelayedCall | None = None
        self._heard = False
        """Whether anything came since the last PING to the server."""

    # What subclasses change

    def signed_on(self) -> None:
        """The server has let it in, and said all that servers say to begin with."""

    def nick_refused(self, code: str, nick: str) -> None:
        """The nick cannot be had."""
        self.cut_off(f"the nick {readable(nick)} is refused ({code})")

    def nick_taken(self) -> None:
        """It has another nick, or another prefix."""

    def line_received(self, line: Line) -> None:
        """A line has come."""

    def data_over(self) -> None:
        """All lines that came together were received."""

    def pinging(self) -> None:
        """The server is asked whether it is there."""
        self._questions.append(None)
        self.send("PING", ":hydra")

    def answered(self, number: int) -> None:
        """The server has read all that was written before a question, and said what it has to say of that."""

    def ended(self, reason: str) -> None:
        """It is over, and its transport is closed or was never open."""

    # What they call

    def dial(self, endpoint: IStreamClientEndpoint) -> None:
        """Connect."""
        self._timer = self.clock.callLater(self.timeout, self.unsettled)
        try:
            self._dial = endpoint.connect(_Only(self))
        except Exception as problem:
            self._dial_failed(Failure(problem))
            return
        self._dial.addErrback(self._dial_failed)

    def settled(self) -> None:
        """All that should happen within the time has."""
        if not self.over:
            self._set_timer(self.ping_every, self._ask)

    def unsettled(self) -> None:
        """It has not."""
        self.cut_off("no answer")

    def send(self, *words: str) -> None:
        """Write a line made of words; it has to be one."""
        line = " ".join(words).encode("latin-1")
        assert line.translate(None, b"\r\n\0") == line, "what is configured was checked, what came has no line ends"
        self.put(line)

    def ask_for(self, nick: str) -> None:
        """Ask for a nick."""
        if not self.registered:
            self.nick = nick
        self.send("NICK", nick)

    def put(self, line: bytes) -> bool:
        """Write a line, and say whether that was still possible."""
        if self.over or self.leaving or self.transport is None:
            return False
        self._hand_over(line + b"\r\n")
        return True

    def ask(self, number: int) -> None:
        """Ask the server a question; :meth:`answered` is told once it has an answer."""
        if self.put(b"PING :hydra-%d" % number):
            self._questions.append(number)

    def leave(self, reason: str, within: float = LINGER) -> None:
        """Say goodbye; if the server does not let go within the time, :meth:`cut_off`."""
        if self.over or self.transport is None:
            self.cut_off(reason)
            return
        self._why = self._why or reason
        self.send("QUIT", ":" + wire("".join(filter(str.isprintable, reason))[:100]))
        if self.registered and self.hears_out:
            self.leaving = True
        else:
            self.over = True
            self._transport.unregisterProducer()  # Or Twisted would wait for what it produces.
            self._transport.loseConnection()
        self._cut_in(within)

    def cut_off(self, reason: str) -> None:
        """End it at once; :meth:`ended` is told ``reason``, unless the end began before."""
        if self._ended:
            return
        self._why = self._why or reason
        self.over = True
        if self.transport is not None:
            self._transport.abortConnection()
        elif self._dial is not None:
            self._dial.cancel()

    def fold(self, name: str) -> str:
        """Return what is equal for two nicks or channels if the server takes them for the same."""
        return name.translate(self._folding)

    def is_own(self, nick: str) -> bool:
        """Say whether that is the nick of this connection."""
        return self.fold(nick) == self.fold(self.nick)

    # What Twisted calls

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        if self.over:
            self._transport.abortConnection()
            return
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
            self._transport.setTcpKeepAlive(True)
        self._transport.registerProducer(_Impatient(self), True)
        if self._sasl_open:
            self.send("CAP", "REQ", ":sasl")
        if self.login.password is not None:
            self.send("PASS", wire(self.login.password))
        self.ask_for(self.nick)
        self.send("USER", wire(self.login.username or self.login.nick), "0", "*", ":" + wire(self.login.realname))

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes have come."""
        if self.over:
            return
        self._heard = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            if not self.over:
                self._take(raw.rstrip(b"\r"))
        if len(self._rest) > MAX_UNENDED:
            self.cut_off("a line without end")
        if not self.over:
            self.data_over()

    def _take(self, line: bytes) -> None:
        """Take a line in."""
        if line.startswith(b"@"):  # Tags that nobody asked for; nodes put meaning into tags of their own.
            line = line.partition(b" ")[2].lstrip(b" ")
        if not line:
            return
        if b"\r" in line or b"\0" in line:
            self._drop("unfit")
            return
        parsed = parse_line(line)
        if parsed is None:
            self._drop("malformed")
            return
        try:
            hook = self.hooks.get(parsed.command)
            if hook is not None:
                hook(parsed)
            if not self.over:
                self.line_received(parsed)
        except IndexError:
            self._drop("incomplete")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        self._finish(describe(reason.value))

    # What servers say

    def _welcomed(self, line: Line) -> None:
        if self._sasl_open:
            self.cut_off("the server does not know SASL")
            return
        if self.registered:
            return
        self.registered = True
        # Some cut what is too long for them.
        self.nick = line.params[0]
        self.prefix = self.nick
        # Not before the message of the day is over, for what it supports comes first.
        self.hooks["376"] = self.hooks["422"] = self._begun

    def _begun(self, line: Line) -> None:
        del self.hooks["376"], self.hooks["422"]
        self.signed_on()

    def _supports(self, line: Line) -> None:
        words = dict(word.partition("=")[::2] for word in line.params[1:-1])
        numbers = {name: int(text) for name, text in words.items() if fullmatch("[0-9]{1,9}", text)}
        self.limits = IrcLimits(
            numbers.get("LINELEN", self.limits.line),
            numbers.get("TOPICLEN", self.limits.topic),
            numbers.get("KICKLEN", self.limits.kick),
        )
        if "CASEMAPPING" in words:
            self._folding = MAPPINGS.get(words["CASEMAPPING"].lower(), MAPPINGS["rfc1459"])

    def _seen(self, line: Line) -> None:
        if self.is_own(line.nick) and "@" in line.prefix:
            self.prefix = line.prefix

    def _host_changed(self, line: Line) -> None:
        user, at, _ = self.prefix.partition("!")[2].partition("@")
        if at and one_word(line.params[1]):
            host = line.params[1]
            self.prefix = f"{self.nick}!{host}" if "@" in host else f"{self.nick}!{user}@{host}"
            self.nick_taken()

    def _nick_changed(self, line: Line) -> None:
        if self.is_own(line.nick) and one_word(line.params[0].encode("latin-1").decode(errors="replace")):
            self.nick = line.params[0]
            _, mark, rest = self.prefix.partition("!")
            self.prefix = self.nick + mark + rest
            self.nick_taken()

    def _nick_refused(self, line: Line) -> None:
        nick = line.params[1]
        if nick[:1] not in tuple(CHANNEL_TYPES):  # 437 is for both.
            self.nick_refused(line.command, nick)

    def _ping(self, line: Line) -> None:
        self.send("PONG", ":" + line.params[-1])

    def _pong(self, line: Line) -> None:
        # Not all servers say what they were asked, but all answer in order.
        asked = {f"hydra-{number}": number for number in self._questions if number is not None}
        number = asked.get(line.params[-1]) if line.params else None
        while self._questions:
            found = self._questions.popleft()
            if number is None or found == number:
                break
        else:
            return
        if found is not None:
            self.data_over()
            self.answered(found)

    def _refused(self, line: Line) -> None:
        self.cut_off(f"refused: {readable(line.params[-1])}")

    def _killed(self, line: Line) -> None:
        if self.is_own(line.params[0]):
            self._why = self._why or f"killed: {readable(line.params[-1])}"

    def _error(self, line: Line) -> None:
        self._why = self._why or f"the server says: {readable(line.params[-1])}"
        self._cut_in(LINGER)

    # SASL PLAIN

    def _capability(self, line: Line) -> None:
        verb, names = line.params[1].upper(), line.params[-1].split()
        if not self._sasl_open or "sasl" not in names:
            return
        if verb == "ACK":
            self.send("AUTHENTICATE", "PLAIN")
        elif verb in ("NAK", "DEL"):
            self.cut_off("the server does not know SASL")

    def _sasl_asked(self, line: Line) -> None:
        if self.login.sasl is None or not self._sasl_open or line.params[0] != "+":
            return
        account, password = self.login.sasl
        text = b64encode(f"{account}\0{account}\0{password}".encode()).decode()
        for start in range(0, len(text) + 1, SASL_CHUNK):
            self.send("AUTHENTICATE", text[start : start + SASL_CHUNK] or "+")

    def _sasl_done(self, line: Line) -> None:
        if self._sasl_open:
            self._sasl_open = False
            self.send("CAP", "END")

    def _sasl_refused(self, line: Line) -> None:
        if self._sasl_open:
            self.cut_off(f"SASL refused: {readable(line.params[-1])}")

    # Within

    @property
    def _transport(self) -> Any:
        return self.transport

    def _hand_over(self, data: bytes) -> None:
        """Give bytes to the kernel now, where it has room: a line may be said only until a certain time."""
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
        # What fails is left to Twisted, which finds out why.
        transport.write(data)

    def _drop(self, kind: str) -> None:
        self.counts[kind] += 1
        self.complaints.complain(kind, self.server, "lines from {source} are left out: {what}", what=kind)

    def _set_timer(self, delay: float, act: Callable[[], None]) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self.clock.callLater(delay, act)

    def _ask(self) -> None:
        self._heard = False
        self.pinging()
        self._set_timer(self.answer_within, self._look)

    def _look(self) -> None:
        if not self._heard:
            self.cut_off("silent")
        else:
            self._set_timer(max(0.0, self.ping_every - self.answer_within), self._ask)

    def _cut_in(self, delay: float) -> None:
        if self._cut is None:
            self._cut = self.clock.callLater(delay, self.cut_off, "does not go away")

    def _dial_failed(self, failure: Failure) -> None:
        # Later, for whoever cancels it is not told of the end in the middle of that.
        if self.transport is None:
            self.over = True
            self.clock.callLater(0, self._finish, describe(failure.value))

    def _finish(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = self.over = True
        for timer in (self._timer, self._cut):
            if timer is not None and timer.active():
                timer.cancel()
        self.ended(self._why or reason)
