"""Active IRC connection on a scripted transport and a manual clock."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, UnencodableMessage
from fyrehose_twisted.hydra.irc.active import ActiveConnection, Channel, IrcConfig
from fyrehose_twisted.hydra.irc.nick_service import RELEASE_COMMANDS, NickServiceConfig
from fyrehose_twisted.hydra.wire.irc_line import parse_irc_line
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits

reactor: Any = installed_reactor

WELCOME = b":s 001 bot :Welcome\r\n:s 005 bot CASEMAPPING=rfc1459 NICKLEN=30 :are supported\r\n:s 422 bot :No MOTD\r\n"
JOINED = b":bot!u@h JOIN #c\r\n"


class Wire(StringTransport):
    """Transport that reports an abort to its protocol in the next turn, like TCP."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.protocol: Any = None
        self.aborted = False

    def abortConnection(self) -> None:
        if not self.aborted:
            self.aborted = True
            self.clock.callLater(0, self.protocol.connectionLost, Failure(ConnectionAborted()))


class Server:
    """Scripted IRC server and an active connection to it."""

    def __init__(self, **more: Any) -> None:
        self.clock = Clock()
        self.told: list[tuple[str, Any]] = []
        self.batches: list[Sequence[bytes]] = []
        self.dials: list[tuple[Any, Deferred[Any]]] = []
        self.cancelled = 0
        self.transport = Wire(self.clock)
        channels = tuple(map(Channel, more.pop("channels", "#c").split()))
        config = IrcConfig(**{"servers": ("127.0.0.1:6667",), "nick": "bot", "channels": channels, **more})
        self.connection = ActiveConnection(
            config,
            self.clock,
            on_opened=lambda prefix: self.told.append(("opened", prefix)),
            on_closed=lambda reason: self.told.append(("closed", reason)),
            on_received=self.batches.append,
            on_answered=lambda number: self.told.append(("answered", number)),
            on_prefix_changed=lambda prefix: self.told.append(("renamed", prefix)),
        )
        self.connection._endpoints = [self] * len(config.servers)  # type: ignore[list-item]

    def connect(self, factory: Any) -> Deferred[Any]:
        def cancelled(_: Any) -> None:
            self.cancelled += 1

        self.dials.append((factory, Deferred(cancelled)))
        return self.dials[-1][1]

    def accept(self) -> Server:
        """Complete the last dial."""
        factory, dial = self.dials[-1]
        protocol = factory.buildProtocol(None)
        assert factory.buildProtocol(None) is None  # A dial completes once.
        self.transport = Wire(self.clock)
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        dial.callback(protocol)
        return self

    def says(self, data: bytes) -> None:
        self.transport.protocol.dataReceived(data)

    def read(self) -> list[bytes]:
        """Return lines written since the last call."""
        lines = self.transport.value().split(b"\r\n")
        self.transport.clear()
        assert lines.pop() == b""
        return lines

    def close(self) -> None:
        self.transport.protocol.connectionLost(Failure(ConnectionDone()))

    def advance(self, seconds: float) -> None:
        """Advance the clock in steps, so that timers set by timers run."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)

    @property
    def lines(self) -> list[bytes]:
        return [line for batch in self.batches for line in batch]

    @property
    def closed(self) -> list[Any]:
        return [value for word, value in self.told if word == "closed"]


def dialled(**more: Any) -> Server:
    server = Server(**more)
    server.connection.open()
    return server


def opened(**more: Any) -> Server:
    """Return a server whose client is registered and in its channel."""
    server = dialled(**more).accept()
    server.says(WELCOME + JOINED)
    assert server.told == [("opened", b"bot!u@h")]
    server.read()
    return server


def test_reply_is_reported_after_the_lines_before_it() -> None:
    server = opened()
    server.connection.on_received = lambda lines: server.told.append(("received", len(lines)))
    server.connection.say(b"PRIVMSG #c :hi")
    server.connection.ask(7)
    assert server.read() == [b"PRIVMSG #c :hi", b"PING :hydra-7"]
    server.says(b":x!y@z PRIVMSG #c :one\r\n:s PONG s :hydra-7\r\n:x!y@z PRIVMSG #c :two\r\n")
    assert server.told[1:] == [("received", 1), ("answered", 7), ("received", 1)]


@pytest.mark.parametrize("says", [b":s PONG s :%b", b"PONG %b", b":s PONG s bot", b":s PONG"])
def test_replies_are_matched_in_order_whatever_their_token(says: bytes) -> None:
    server = opened()
    for number in (1, 2):
        server.connection.ask(number)
        if number == 1:
            server.transport.protocol.send_ping()
    words = (b"hydra-1", b"hydra", b"hydra-2")
    told = []
    for word in words:
        server.says((says % word if b"%" in says else says) + b"\r\n")
        told.append(server.told[1:])
    assert told == [[("answered", 1)], [("answered", 1)], [("answered", 1), ("answered", 2)]]
    server.says(b":s PONG s :hydra-2\r\n")
    assert server.told[1:] == told[-1]


def test_reply_to_a_later_ping_answers_the_earlier_ones() -> None:
    server = opened()
    server.connection.ask(1)
    server.connection.ask(2)
    server.says(b":s PONG s :hydra-2\r\n")
    assert server.told[1:] == [("answered", 2)]


def test_ping_may_be_answered_after_quit() -> None:
    server = opened()
    server.connection.say(b"PRIVMSG #c :hi")
    server.connection.ask(7)
    server.connection.close("over")
    assert server.read() == [b"PRIVMSG #c :hi", b"PING :hydra-7", b"QUIT :over"]
    server.says(b":s PONG s :hydra-7\r\n")
    assert server.told[1:] == [("answered", 7)]
    server.connection.ask(8)
    assert server.read() == []


def test_no_ping_is_sent_without_a_connection() -> None:
    server = Server()
    server.connection.ask(1)
    assert server.connection.limits == IrcLimits()


def test_limits_of_the_server_are_parsed() -> None:
    server = dialled().accept()
    server.says(b":s 005 bot LINELEN=1024 TOPICLEN=307 KICKLEN= NETWORK=x :are supported by this server\r\n")
    server.says(b":s 005 bot TOPICLEN=nonsense KICKLEN=255 :are supported by this server\r\n")
    assert server.connection.limits == IrcLimits(1024, 307, 255)


def test_errors_of_the_server_are_reported_in_order() -> None:
    server = opened()
    server.batches.clear()
    lines = [b":x!y@z PRIVMSG #c :one", b":s 404 bot #d :Cannot send to channel", b":x!y@z PRIVMSG #c :two"]
    server.says(b"\r\n".join(lines) + b"\r\n:s 332 bot #c :a topic\r\n")
    assert server.batches == [lines]


def test_connection_registers_and_joins_its_channels() -> None:
    server = dialled(username="u", realname="A bot", password="pass:word", channels="#c #d").accept()
    assert server.read() == [b"PASS pass:word", b"NICK bot", b"USER u 0 * :A bot"]
    server.says(b"NOTICE AUTH :*** Looking you up\r\n:x!y@z PRIVMSG bot :too early\r\nPING :42 a\r\n")
    assert server.read() == [b"PONG :42 a"]
    server.says(WELCOME)
    assert server.read() == [b"CAP REQ :multi-prefix", b"JOIN #c", b"JOIN #d"]
    server.says(JOINED + b":anna!a@b PRIVMSG #c :before the second channel\r\n")
    assert (server.told, server.batches) == ([], [])
    server.says(b":bot!u@h JOIN :#D\r\n:anna!a@b PRIVMSG #d :hi\r\n")
    assert server.told == [("opened", b"bot!u@h")]
    assert server.batches == [
        [
            WELCOME.split(b"\r\n")[1],
            b":bot!u@h JOIN #c",
            b":anna!a@b PRIVMSG #c :before the second channel",
            b":bot!u@h JOIN :#D",
            b":anna!a@b PRIVMSG #d :hi",
        ]
    ]
    assert (server.connection.prefix, server.connection.server) == (b"bot!u@h", "127.0.0.1:6667")
    server.says(b":s 396 bot cloak.example :is your host\r\n")
    assert server.told[-1] == ("renamed", b"bot!u@cloak.example")


def test_a_password_of_several_words_or_lines_is_refused() -> None:
    for password in ("a b", "a\r\nQUIT", ":a", ""):
        with pytest.raises(ConfigurationError, match="password") as caught:
            IrcConfig(("h:1",), "bot", (Channel("#c"),), password=password)
        assert password == "" or password not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": ()},
        {"channels": ()},
        {"nick": "a b"},
        {"nick": ""},
        {"nick": "#a"},
        {"nick": "a!b"},
        {"nick": "a\r\nQUIT"},
        {"username": "a@b"},
        {"realname": "a\nb"},
        {"sasl": ("account", "")},
        {"sasl": ("a\0b", "c")},
    ],
)
def test_invalid_configurations_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        IrcConfig(**{"servers": ("h:1",), "nick": "bot", "channels": (Channel("#c"),), **wrong})


@pytest.mark.parametrize("wrong", [("c",), ("",), ("#a,b",), ("#a b",), ("#a\r\nb",), ("#a", "k,"), ("#a", ":k")])
def test_invalid_channels_are_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        Channel(*wrong)


def test_invalid_servers_are_refused() -> None:
    for text in ("irc.example.org", "nonsense:irc.example.org:1", "tls:"):
        config = IrcConfig((text,), "bot", (Channel("#c"),))
        with pytest.raises(ConfigurationError, match="neither HOST:PORT nor"):
            ActiveConnection(config, Clock(), on_opened=print, on_closed=print, on_received=print)


def test_lines_are_relayed_verbatim() -> None:
    server = opened()
    server.batches.clear()
    lines = [
        b":x!y@z PRIVMSG #c :\xe9t\xe9 \x01\x10r\xff ",
        b":x!y@z privmsg #c  :  two  blanks",
        b":\xc3\xa0!y@z TOPIC #\xc3\xa0 :\xa0\x85",
        b":x!y@z MODE #c",
        b":x!y@z NICK z",
        b":z!y@z INVITE bot #d",
        b":s 353 bot = #c :@x +z",
        b":s NOTICE bot :private",
        b"QUIT",
    ]
    data = b"\r\n".join(lines) + b"\r\n"
    server.says(data)
    assert server.batches == [lines]
    server.batches.clear()
    for value in data:
        server.says(bytes((value,)))
    assert server.batches == [[line] for line in lines]
    server.batches.clear()
    server.says(b":x!y@z PRIVMSG #c :LF alone\n:s 372 bot :no\r\n:x!y@z AWAY z\r\nWALLOPS :no\r\n\r\n")
    assert server.batches == [[b":x!y@z PRIVMSG #c :LF alone"]]


def test_misleading_lines_are_not_relayed() -> None:
    server = opened()
    server.batches.clear()
    server.says(b":x!y@z PRIVMSG #c :a\rQUIT\r\n:x!y@z PRIVMSG #c :a\0b\r\n:x!y@z PRI\xffVMSG #c :a\r\n: \r\n")
    assert server.batches == []
    assert server.connection.counters["unfit"] == 2
    assert server.connection.counters["malformed"] == 2
    server.says(b"@+hydra/n=1;x=y :x!y@z PRIVMSG #c :its tag is not ours\r\n@alone\r\n")
    assert server.batches == [[b":x!y@z PRIVMSG #c :its tag is not ours"]]


def test_say_writes_allowed_lines_at_once() -> None:
    server = dialled()
    assert not server.connection.say(b"PRIVMSG #c :early")
    server.accept()
    assert not server.connection.say(b"PRIVMSG #c :early")
    server.says(WELCOME + JOINED)
    server.read()
    assert server.connection.say(b"PRIVMSG #c :\xe9\x01 ")
    assert server.read() == [b"PRIVMSG #c :\xe9\x01 "]
    for line in (b"PRIVMSG #c :a\r\nQUIT", b"PRIVMSG #c :a\n", b"PRIVMSG #c :\0", b"QUIT :a", b"", b"OPER root secret"):
        with pytest.raises(UnencodableMessage):
            server.connection.say(line)
    assert server.read() == []
    server.close()
    assert not server.connection.say(b"PRIVMSG #c :late")
    assert server.connection.counters["said"] == 1
    assert server.connection.counters["unsaid"] == 3


def test_nothing_is_answered_but_the_server() -> None:
    server = opened()
    server.says(b":x!y@z PRIVMSG bot :\x01VERSION\x01\r\n:x!y@z PRIVMSG bot :\x01DCC SEND a 1 2 3\x01\r\n")
    assert server.read() == []
    assert len(server.lines) == 4


@pytest.mark.parametrize("size", [10, 298, 299, 300, 301, 900])
def test_sasl_plain(size: int) -> None:
    password = "p" * (size - len("\0acc\0acc") - 1)
    server = dialled(sasl=("acc", password)).accept()
    assert server.read() == [b"CAP REQ :sasl", b"NICK bot", b"USER bot 0 * :hydra"]
    server.says(b":s CAP * ACK :sasl \r\n")
    assert server.read() == [b"AUTHENTICATE PLAIN"]
    server.says(b"AUTHENTICATE +\r\n")
    chunks = [line.removeprefix(b"AUTHENTICATE ") for line in server.read()]
    assert all(len(chunk) == 400 for chunk in chunks[:-1])
    assert len(chunks[-1]) < 400
    expected = b64encode(f"acc\0acc\0{password}".encode())
    assert b"".join(chunks).replace(b"+", b"") == expected.replace(b"+", b"")
    server.says(b":s 900 bot u@h acc :You are\r\n:s 903 bot :SASL\r\n")
    assert server.read() == [b"CAP END"]
    server.says(WELCOME + JOINED)
    assert server.told == [("opened", b"bot!u@h")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b":s CAP * NAK :sasl\r\n", "the server does not support SASL"),
        (b":s CAP * ACK :sasl\r\n:s 904 bot :SASL failed\r\n", "SASL refused: SASL failed"),
        (WELCOME, "the server does not support SASL"),
        (b":s 464 bot :Password incorrect\r\n", "refused: Password incorrect"),
    ],
)
def test_failed_sasl_ends_the_connection(answer: bytes, reason: str) -> None:
    server = dialled(sasl=("account", "the password")).accept()
    server.says(answer)
    server.advance(0.1)
    assert server.told == [("closed", reason)]


def test_no_secret_is_ever_logged() -> None:
    with capturedLogs() as events:
        server = dialled(sasl=("acc", "sasl-word"), password="pass-word").accept()
        server.says(b":s CAP * ACK :sasl\r\nAUTHENTICATE +\r\n:s 903 * :ok\r\n" + WELCOME + JOINED + b"\xff\r\n")
        server.says(b":s 475 bot #c :no\r\n:x!y@z KICK #c bot :out\r\nERROR :gone\r\n")
        server.close()
    text = "".join(map(str, events)) + "".join(str(formatEvent(event)) for event in events)
    config = server.connection.config
    text += repr(config) + repr(config.login()) + repr(Channel("#c", "key-word"))
    assert "closed" in text
    for secret in ("sasl-word", "pass-word", "key-word", b64encode(b"acc\0acc\0sasl-word").decode()):
        assert secret not in text


def test_connection_times_out_without_an_answer() -> None:
    server = dialled()
    server.advance(14.9)
    assert (server.told, server.cancelled) == ([], 0)
    server.advance(0.2)
    assert (server.told, server.cancelled) == ([("closed", "no answer")], 1)
    server.connection.open()
    server.accept()
    server.says(b"NOTICE * :*** hello\r\n")
    server.advance(15.2)
    assert server.transport.aborted
    assert server.closed == ["no answer"] * 2
    server.connection.open()
    server.accept().says(WELCOME)
    server.advance(15.2)
    assert server.closed == ["no answer"] * 3
    assert server.clock.getDelayedCalls() == []


def test_refused_connection_is_reported() -> None:
    server = dialled(servers=("127.0.0.1:1", "127.0.0.1:2"))
    assert server.connection.server == "127.0.0.1:1"
    server.dials[0][1].errback(ConnectionRefusedError())
    assert server.told == []  # Not while it is connecting.
    server.advance(0.1)
    assert server.told == [("closed", "refused")]
    server.connection.open()
    assert server.connection.server == "127.0.0.1:2"
    server.connection.close("changed my mind")
    assert server.told == [("closed", "refused")]
    server.advance(0.1)
    assert server.closed == ["refused", "changed my mind"]
    server.connection.open()
    assert server.connection.server == "127.0.0.1:1"
    assert server.clock.getDelayedCalls()
    server.connection.close("again", graceful=False)
    server.advance(0.1)
    assert server.clock.getDelayedCalls() == []
    server.connection.close("when it is closed")
    assert len(server.closed) == 3


def test_exception_of_the_endpoint_is_reported() -> None:
    server = Server()

    def broken(factory: Any) -> Deferred[Any]:
        raise OSError(12, "no memory")

    server.connect = broken  # type: ignore[method-assign]
    server.connection.open()
    server.advance(0.1)
    assert server.told == [("closed", "no memory")]


def test_connection_that_opens_after_an_abort_is_closed() -> None:
    server = dialled()
    factory = server.dials[0][0]
    protocol = factory.buildProtocol(None)
    server.connection.close("not wanted")
    server.transport.protocol = protocol
    protocol.makeConnection(server.transport)
    assert server.read() == []
    server.advance(0.1)
    assert server.transport.aborted
    assert server.told == [("closed", "not wanted")]


def test_silent_server_ends_the_connection() -> None:
    server = opened()
    server.advance(29.8)
    assert server.read() == []
    server.advance(0.4)
    assert server.read() == [b"PING :hydra"]
    server.advance(19)
    server.says(b":s PONG s :hydra\r\n")
    server.advance(12)
    assert server.read() == [b"PING :hydra"]
    server.advance(18)
    assert not server.transport.aborted
    server.advance(2)
    assert server.transport.aborted
    assert server.closed == ["silent"]
    assert server.clock.getDelayedCalls() == []


def test_graceful_close_sends_quit() -> None:
    server = opened()
    server.connection.close("leave it\r\nJOIN #0")
    assert server.read() == [b"QUIT :leave itJOIN #0"]
    assert server.closed == []
    before = len(server.lines)
    # A message that arrived before the error is processed.
    server.says(b":x!y@z PRIVMSG #c :late\r\nPING :x\r\nERROR :Closing Link\r\n")
    assert server.lines[before:] == [b":x!y@z PRIVMSG #c :late"]
    assert not server.connection.say(b"PRIVMSG #c :late")
    server.connection.close("once is enough")
    assert server.read() == []
    server.close()
    assert server.closed == ["leave it\r\nJOIN #0"]
    assert server.clock.getDelayedCalls() == []


def test_quit_before_registration_closes_the_connection() -> None:
    server = Server()
    server.connection.open()
    server.accept().read()
    server.connection.close("stopping")
    assert server.read() == [b"QUIT :stopping"]
    assert server.transport.disconnecting
    assert server.transport.producer is None  # Twisted would wait for the producer.
    server.says(b":s 001 bot :welcome\r\n")
    assert server.read() == []
    server.close()
    assert server.closed == ["stopping"]
    assert server.clock.getDelayedCalls() == []


def test_unanswered_quit_ends_in_an_abort() -> None:
    server = opened()
    server.connection.close("bye")
    server.advance(0.9)
    assert not server.transport.aborted
    server.advance(0.3)
    assert server.transport.aborted
    assert server.closed == ["bye"]


def test_abort_ends_the_connection_at_once() -> None:
    server = opened()
    server.connection.close("the lease is over", graceful=False)
    assert (server.read(), server.transport.aborted, server.closed) == ([], True, [])
    server.connection.close("once more")
    server.advance(0.1)
    assert server.closed == ["the lease is over"]
    server = opened()
    server.connection.close("polite")
    server.connection.close("not any more", graceful=False)
    assert server.transport.aborted
    server.advance(0.1)
    assert server.closed == ["polite"]


def test_error_of_the_server_is_the_close_reason() -> None:
    server = opened()
    server.close()
    assert server.closed == ["closed"]
    server = opened()
    server.says(b":x!y@z PRIVMSG #c :last\r\nERROR :Closing Link: bot (\x1b[31mExcess Flood)\r\n")
    assert server.lines[-1] == b":x!y@z PRIVMSG #c :last"
    server.close()
    assert server.closed == ["the server says: Closing Link: bot (?[31mExcess Flood)"]
    server = opened()
    server.says(b":oper!o@h KILL other :no\r\n:oper!o@h KILL bot :enough\r\nERROR :Closing Link\r\n")
    server.advance(1.2)  # The server does not close.
    assert server.transport.aborted
    assert server.closed == ["killed: enough"]


def test_unterminated_line_ends_the_connection() -> None:
    server = opened()
    for _ in range(16):
        server.says(b"x" * 1_024)
    assert not server.transport.aborted
    server.says(b"x")
    assert server.transport.aborted
    server.says(b"x" * 100_000)
    server.advance(0.1)
    assert server.closed == ["overlong line"]


def test_server_that_does_not_read_is_disconnected() -> None:
    server = opened()
    server.transport.producer.pauseProducing()
    server.advance(0.1)
    assert server.closed == ["the server does not read"]


def test_taken_nick_is_replaced() -> None:
    server = dialled().accept()
    server.read()
    asked = []
    for code in (b"433", b"436", b"437", b"433"):
        server.says(b":s %b * bot :taken\r\n" % code)
        asked += server.read()
    assert asked == [b"NICK bot_", b"NICK bot__", b"NICK bo_", b"NICK b__"]
    server.says(b":s 433 * b__ :taken\r\n")
    server.advance(0.1)
    assert server.closed == ["the nick bot and its variants are taken"]


def test_refused_nick_ends_the_connection() -> None:
    server = dialled().accept()
    server.says(b":s 432 * bot :Erroneous nickname\r\n")
    server.advance(0.1)
    assert server.closed == ["the nick bot is not allowed on this server"]
    server = dialled().accept()
    server.read()
    server.says(b":s 433 * bot :taken\r\n:s 432 * bot_ :too long\r\n:s 432 * bot__ :too long\r\n")
    assert server.read() == [b"NICK bot_", b"NICK bot__", b"NICK bo_"]
    assert not server.transport.aborted


def with_another_nick(**more: Any) -> Server:
    server = dialled(**more).accept()
    server.says(b":s 433 * bot :taken\r\n" + WELCOME.replace(b" bot ", b" bot_ "))
    server.says(b":bot_!u@h JOIN #c\r\n")
    assert server.told == [("opened", b"bot_!u@h")]
    server.read()
    return server


def test_preferred_nick_is_requested_until_it_is_free() -> None:
    server = with_another_nick(ping_interval=10_000)
    server.advance(4.8)
    assert server.read() == []
    server.advance(0.4)
    assert server.read() == [b"NICK bot"]
    server.says(b":s 433 bot_ bot :taken\r\n")
    server.advance(5)
    assert server.read() == [b"NICK bot"]
    server.says(b":bot_!u@h NICK :bot\r\n")
    assert server.told[-1] == ("renamed", b"bot!u@h")
    server.advance(20)
    assert server.read() == []


@pytest.mark.parametrize("line", [b":BOT!x@y QUIT :timeout\r\n", b":Bot!x@y NICK other\r\n"])
def test_preferred_nick_is_taken_when_its_holder_leaves(line: bytes) -> None:
    server = with_another_nick()
    server.says(b":other!x@y QUIT :timeout\r\n")
    assert server.read() == []
    server.says(line)
    assert server.read() == [b"NICK bot"]


def test_forced_nick_change_is_followed() -> None:
    server = opened()
    server.says(b":bot!u@h NICK Guest7\r\n")
    assert server.told[-1] == ("renamed", b"Guest7!u@h")
    server.says(b":bot!u@h NICK nobody\r\n:other!u@h NICK bot2\r\n")
    assert server.connection.prefix == b"Guest7!u@h"
    assert server.read() == [b"NICK bot"]
    server.says(b":x!y@z KICK #c bot :somebody else\r\n:x!y@z KICK #c Guest7 :us\r\n")
    server.advance(2.1)
    assert server.read() == [b"JOIN #c"]
    server.advance(3)
    assert server.read() == [b"NICK bot"]
    server.says(b":x!y@z KICK #c Guest7 :once more\r\n")
    server.close()
    assert server.clock.getDelayedCalls() == []


def test_truncated_nick_is_accepted() -> None:
    server = dialled(nick="bottomless").accept()
    server.says(WELCOME.replace(b" bot ", b" bottomles ") + b":bottomles!u@h JOIN #c\r\n")
    assert server.told == [("opened", b"bottomles!u@h")]


def test_kicked_client_rejoins_with_backoff() -> None:
    server = opened(ping_interval=10_000)
    for wait in (2, 4, 8, 16, 32, 60, 60):
        server.says(b":x!y@z KICK #C BOT :out\r\n:s 404 bot #c :Cannot send to channel\r\n")
        server.advance(wait - 0.2)
        assert server.read() == []
        server.advance(0.4)
        assert server.read() == [b"JOIN #c"]
        server.says(JOINED)
    server.advance(61)
    server.says(b":bot!u@h PART #c :SAPART\r\n")
    server.advance(2.2)
    assert server.read() == [b"JOIN #c"]


def test_parted_channel_is_not_rejoined() -> None:
    server = opened(channels="#c")
    server.connection.say(b"PART #x,#C :bye")
    server.says(b":bot!u@h PART #c\r\n")
    server.read()
    server.advance(10)
    assert server.read() == []
    server.says(JOINED + b":x!y@z KICK #c bot :out\r\n")
    server.advance(2.2)
    assert server.read() == [b"JOIN #c"]


def test_refusing_channel_is_retried() -> None:
    server = dialled(channels="#c #d #e").accept()
    server.says(WELCOME)
    server.read()
    server.says(JOINED + b":s 471 bot #d :full\r\n")
    assert server.told == []
    server.says(b":s 437 bot #e :not now\r\n")
    assert server.told == [("opened", b"bot!u@h")]
    server.advance(29.8)
    assert server.read() == []
    server.advance(0.4)
    assert sorted(server.read()) == [b"JOIN #d", b"JOIN #e", b"PING :hydra"]
    server.says(b":s 471 bot #D :full\r\n:bot!u@h JOIN #e\r\n")
    server.advance(30)
    assert b"JOIN #d" in server.read()
    assert server.told == [("opened", b"bot!u@h")]


def test_connection_ends_when_all_channels_refuse() -> None:
    server = dialled(channels="#c #d").accept()
    server.says(WELCOME + b":s 474 bot #c :banned\r\n:s 403 bot #d :none\r\n")
    server.advance(0.1)
    assert server.closed == ["no channel could be joined (#c: 474 banned; #d: 403 none)"]


def test_unresponsive_channel_does_not_block_the_others() -> None:
    server = dialled(channels="#c #d").accept()
    server.says(WELCOME + JOINED)
    server.advance(15.2)
    assert server.told == [("opened", b"bot!u@h")]
    assert len(server.lines) == 2
    server.read()
    server.advance(30)
    assert b"JOIN #d" in server.read()


@given(st.lists(st.binary(max_size=200) | st.sampled_from([WELCOME, JOINED, b":s 4", b" bot #c", b"\r\n", b"NICK"])))
def test_arbitrary_server_lines_cause_no_failure(pieces: list[bytes]) -> None:
    server = dialled(sasl=None).accept()
    for piece in pieces:
        server.says(piece)
    server.advance(2)
    for line in server.lines:
        assert not set(line) & set(b"\r\n\0")
        assert line[:1] != b"@"
    server.connection.close("over", graceful=False)
    server.advance(0.1)
    assert len(server.closed) == 1
    assert server.clock.getDelayedCalls() == []


@given(
    st.sampled_from(
        [
            "001",
            "005",
            "396",
            "433",
            "437",
            "464",
            "904",
            "903",
            "CAP",
            "AUTHENTICATE",
            "ERROR",
            "JOIN",
            "PART",
            "KICK",
            "KILL",
            "NICK",
            "PING",
            "QUIT",
        ]
    )
)
def test_empty_line_is_ignored(command: str) -> None:
    server = dialled(sasl=("a", "b")).accept()
    for prefix in ("", ":bot ", ": ", ":bot!u@h "):
        for params in ("", " bot", " :", " bot #c"):
            if not server.transport.aborted:
                server.says(f"{prefix}{command}{params}\r\n".encode())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b":n!u@h PRIVMSG #c :a :b", ("n", "PRIVMSG", ("#c", "a :b"))),
        (b"ping x", ("", "PING", ("x",))),
        (b":s 005 bot  A=1   :", ("s", "005", ("bot", "A=1", ""))),
        (b":s  JOIN :#c", ("s", "JOIN", ("#c",))),
    ],
)
def test_irc_line_is_parsed(raw: bytes, expected: tuple[Any, ...]) -> None:
    line = parse_irc_line(raw)
    assert line is not None
    assert (line.nick, line.command, line.params) == expected


class SilentServer(Protocol):
    """Server connection that accepts and never writes."""

    def __init__(self) -> None:
        self.gone: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        self.gone.callback(None)


@pytest_twisted.ensureDeferred
async def test_silent_listener_on_a_socket_times_out() -> None:
    mute = SilentServer()
    build: Callable[[Any], Protocol] = lambda address: mute  # noqa: E731
    factory = Factory()
    factory.buildProtocol = build  # type: ignore[method-assign, assignment]
    port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
    closed: Deferred[str] = Deferred()
    config = IrcConfig((f"127.0.0.1:{port.getHost().port}",), "bot", (Channel("#c"),), timeout=0.2)
    connection = ActiveConnection(config, reactor, on_opened=print, on_closed=closed.callback, on_received=print)
    connection.open()
    assert await closed.addTimeout(20, reactor) == "no answer"
    await mute.gone.addTimeout(20, reactor)
    await port.stopListening()


def test_channels_joined_at_run_time_are_joined_again_after_a_kick() -> None:
    server = opened()
    server.connection.say(b"JOIN #new,#keyed ,key")
    server.says(b":bot!u@h JOIN #New\r\n:bot!u@h JOIN #keyed\r\n")
    server.read()
    server.says(b":x!y@z KICK #new bot :out\r\n:x!y@z KICK #keyed bot :out\r\n")
    server.advance(2.1)
    assert server.read() == [b"JOIN #New", b"JOIN #keyed key"]
    server.says(b":bot!u@h JOIN #New\r\n")
    server.connection.say(b"PART #new")
    server.read()
    server.says(b":bot!u@h PART #New\r\n")
    server.advance(60)
    assert b"JOIN #New" not in server.read()


def test_refused_join_of_a_node_is_not_repeated() -> None:
    server = opened()
    server.connection.say(b"JOIN #shut")
    server.says(b":s 473 bot #shut :Cannot join\r\n")
    server.read()
    server.advance(60)
    assert not any(b"JOIN" in line for line in server.read())


def test_channels_beyond_the_limit_are_not_kept() -> None:
    server = opened()
    server.says(b"".join(b":bot!u@h JOIN #%d\r\n" % number for number in range(60)))
    assert server.connection.counters["channels_not_kept"] == 11


def test_connection_opens_with_other_channels_and_another_nick() -> None:
    server = Server(channels="#c #d")
    server.connection.open([Channel("#e", "key")], "robot")
    server.accept()
    assert server.read()[0] == b"NICK robot"
    server.says(WELCOME.replace(b"bot", b"robot"))
    assert server.read()[1:] == [b"JOIN #e key"]


def test_connection_without_channels_opens_at_once() -> None:
    server = Server()
    server.connection.open([], "no nick")
    server.accept()
    assert server.read()[0] == b"NICK bot"
    server.says(WELCOME)
    assert server.told == [("opened", b"bot")]


def test_nick_that_a_node_asked_for_is_the_preferred_one() -> None:
    server = opened()
    server.connection.say(b"NICK robot")
    server.says(b":s 433 bot robot :in use\r\n")
    server.advance(20)
    assert server.read() == [b"NICK robot"]  # A refused nick is not asked for again ...
    server.connection.say(b"NICK robot")
    server.says(b":bot!u@h NICK Robot\r\n")
    server.read()
    server.says(b":Robot!u@h NICK Guest1\r\n")
    server.advance(5.1)
    assert server.read() == [b"NICK Robot"]  # ... but a granted one is, after a service took it.


def nick_server(nick: bytes = b"bot", **more: Any) -> Server:
    """Return a server that has registered a client with an account at NickServ."""
    server = dialled(nick_service=NickServiceConfig("s3cret", **more)).accept()
    if nick != b"bot":
        server.says(b":s 433 * bot :in use\r\n")
    server.read()
    server.says(WELCOME.replace(b"bot", nick))
    return server


def test_nick_service_identifies_the_connection_before_it_joins() -> None:
    server = nick_server(account="acc")
    assert server.read()[1:] == [b"PRIVMSG NickServ :IDENTIFY acc s3cret", b"JOIN #c"]


@pytest.mark.parametrize("release", RELEASE_COMMANDS)
def test_nick_service_frees_the_nick_and_the_connection_takes_it(release: str) -> None:
    server = nick_server(b"bot_", release=release, service="NickServ@services.example")
    told = b"PRIVMSG NickServ@services.example :"
    assert server.read()[1:] == [told + b"IDENTIFY s3cret", told + release.encode() + b" bot s3cret", b"JOIN #c"]
    server.says(b":bot_!u@h JOIN #c\r\n:NickServ!s@services.example NOTICE bot_ :It is free now.\r\n")
    assert server.read() == [b"NICK bot"]
    server.says(b":bot_!u@h NICK bot\r\n")
    assert server.read() == [told + b"IDENTIFY s3cret"]
    server.says(b":bot!u@h NICK x\r\n:x!u@h NICK bot\r\n")
    assert server.read() == []


def test_channel_that_needs_an_account_is_joined_once_the_service_has_answered() -> None:
    server = dialled(nick_service=NickServiceConfig("s3cret"), channels="#c #r").accept()
    server.says(WELCOME + JOINED + b":s 477 bot #r :You need a registered nick\r\n")
    server.read()
    server.says(b":anna!u@h NOTICE bot :You are now identified.\r\n")
    server.advance(0.2)
    assert server.read() == []
    server.says(b":NickServ!s@h NOTICE bot :You are now identified.\r\n")
    server.advance(0.2)
    assert server.read() == [b"JOIN #r"]
    server.says(b":s 477 bot #r :You need a registered nick\r\n:s 900 bot bot!u@h acc :You are now logged in\r\n")
    server.advance(0.2)
    assert server.read() == [b"JOIN #r"]


def test_password_for_the_nick_service_is_relayed_and_logged_nowhere() -> None:
    with capturedLogs() as logs:
        server = nick_server(b"bot_")
        server.says(b":bot_!u@h JOIN #c\r\n:NickServ!s@h NOTICE bot_ :wrong password\r\n")
        server.close()
    assert "s3cret" not in "".join(str(formatEvent(event)) for event in logs) + repr(server.connection.config)
    assert not any(b"s3cret" in line for line in server.lines)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"password": "two words"}, "password for the nick service"),
        ({"password": ""}, "password for the nick service"),
        ({"password": "x", "service": "#c"}, "is not the nick of a service"),
        ({"password": "x", "service": "a,b"}, "is not the nick of a service"),
        ({"password": "x", "account": "a b"}, "is not an account"),
        ({"password": "x", "release": "DROP"}, "frees no nick"),
    ],
)
def test_invalid_account_with_a_nick_service_is_refused(more: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        NickServiceConfig(**more)


@pytest.mark.parametrize("version", ["x\x01", "x" * 101])
def test_invalid_reply_to_ctcp_version_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match="CTCP VERSION"):
        IrcConfig(("h:1",), "bot", (Channel("#c"),), ctcp_version=version)
