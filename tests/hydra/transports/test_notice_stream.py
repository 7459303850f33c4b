"""Notice stream sessions, and IRC links on scripted transports."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.transports.irc import IrcEndpoint, IrcLinkConfig
from fyrehose_twisted.hydra.transports.notice_stream import (
    MAX_FRAGMENT,
    MAX_FRAGMENTS,
    MAX_QUEUED,
    Fragment,
    NoticeState,
    NoticeStream,
    decode_fragment,
    encode_fragment,
)

SECRET = b"sixteen bytes or more"


class Pair:
    """Two ends of a session and the notices in flight between them, in order."""

    def __init__(self, seed: int = 0, *, rate: float = 1_000.0, secrets: Any = (None, None), **more: Any) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.more = {"rate": rate, **more}
        self.secrets = secrets
        self.ends = [self.end(0), self.end(1)]
        self.came = [b"", b""]
        self.sent: list[list[bytes]] = [[], []]
        self.way: list[deque[bytes]] = [deque(), deque()]
        self.lose: Any = lambda sender, message: False
        for end in self.ends:
            end.tick(self.now)

    def end(self, index: int) -> NoticeStream:
        names = (b"ivan", b"boris") if index == 0 else (b"boris", b"ivan")
        token = self.random.randbytes(12)
        return NoticeStream(*names, token, self.now, secret=self.secrets[index], **self.more)

    def collect(self) -> None:
        for index, end in enumerate(self.ends):
            messages, data = end.drain()
            self.came[index] += data
            for message in messages:
                assert len(message) <= 360
                self.sent[index].append(message)
                if not self.lose(index, message):
                    self.way[index].append(message)

    def carry(self) -> None:
        """Deliver all notices in flight and those that they cause."""
        self.collect()
        while any(self.way):
            for index in (0, 1):
                while self.way[index]:
                    self.ends[1 - index].receive(self.way[index].popleft(), self.now)
                    self.collect()

    def advance(self, seconds: float) -> None:
        """Advance the clock from one deadline to the next."""
        end = self.now + seconds
        while True:
            self.carry()
            dues = [due for one in self.ends if (due := one.next_deadline()) is not None]
            self.now = max(self.now, min([end, *dues]))
            for one in self.ends:
                one.tick(self.now)
            if self.now >= end:
                self.carry()
                return

    @property
    def stages(self) -> tuple[NoticeState, NoticeState]:
        return self.ends[0].state, self.ends[1].state


def opened(**more: Any) -> Pair:
    pair = Pair(**more)
    pair.carry()
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)
    return pair


def test_notice_stream_sends_the_documented_messages() -> None:
    pair = opened(burst=100)
    ivan, boris = (sent[0].split()[2] for sent in pair.sent)
    assert pair.sent == [
        [b"H1 OPEN %b -" % ivan, b"H1 OPEN %b %b" % (ivan, boris), b"H1 OPENED %b %b" % (ivan, boris)],
        [b"H1 OPEN %b -" % boris, b"H1 OPEN %b %b" % (boris, ivan), b"H1 OPENED %b %b" % (boris, ivan)],
    ]
    pair.sent = [[], []]
    pair.ends[0].write(b"PING 1 2 3\r\n", 0.0)
    pair.ends[0].write(b"a" * 250, 0.0)
    pair.carry()
    assert pair.sent[0] == [
        b"H1 0 1/1 UElORyAxIDIgMw0K",
        b"H1 1 1/2 " + b"YWFh" * 80,
        b"H1 1 2/2 YWFhYWFhYWFhYQ",
    ]
    pair.ends[0].close(0.0)
    pair.carry()
    assert pair.sent[0][3:] == [b"H1 OVER %b %b" % (ivan, boris)]
    assert pair.came[1] == b"PING 1 2 3\r\n" + b"a" * 250
    assert (pair.ends[0].end_reason, pair.ends[1].end_reason) == ("closed here", "closed")


@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.booleans(), st.binary(max_size=1_200), st.floats(0, 3)), max_size=12),
    st.booleans(),
)
def test_notice_stream_delivers_all_data_in_order(
    seed: int, writes: list[tuple[bool, bytes, float]], proved: bool
) -> None:
    pair = opened(seed=seed, rate=5.0, secrets=(SECRET, SECRET) if proved else (None, None))
    expected = [b"", b""]
    for second, data, wait in writes:
        pair.ends[second].write(data, pair.now)
        expected[1 - second] += data
        pair.advance(wait)
    for _ in range(200):
        if not any(end.waiting for end in pair.ends):
            break
        pair.ends[0].write(b"\n", pair.now)  # Keepalives.
        pair.ends[1].write(b"\n", pair.now)
        expected = [data + b"\n" for data in expected]
        pair.advance(5)
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN), [end.end_reason for end in pair.ends]
    assert pair.came == expected


@given(st.integers(0, 10_000), st.sets(st.integers(0, 30)), st.booleans())
def test_lost_notice_ends_the_session_without_a_gap(seed: int, lost: set[int], proved: bool) -> None:
    pair = Pair(seed, secrets=(SECRET, SECRET) if proved else (None, None), burst=100)
    sent = 0

    def lose(sender: int, message: bytes) -> bool:
        nonlocal sent
        sent += 1
        return sent in lost

    pair.lose = lose
    written = [b"", b""]
    for turn in range(20):
        for end in (0, 1):
            if pair.ends[end].state is NoticeState.OPEN:
                line = b"%d\n" % (turn * 1_000_003) * (1 + turn * 10)
                pair.ends[end].write(line, pair.now)
                written[end] += line
        pair.advance(1.0)
    for end in (0, 1):
        assert written[1 - end].startswith(pair.came[end])
    pair.advance(100)
    opened = [end for end in pair.ends if end.state is NoticeState.OPEN]
    assert not opened  # Each session ends by silence at the latest.


def test_queued_lines_share_notices() -> None:
    pair = opened(rate=1.0)
    pair.advance(10)
    pair.sent = [[], []]
    for number in range(1, 101):
        pair.ends[0].write(b"line %d\n" % number, pair.now)
    assert pair.ends[0].waiting > 0
    pair.carry()
    assert len(pair.sent[0]) == 4
    pair.advance(0.9)
    assert len(pair.sent[0]) == 4
    pair.advance(0.2)
    assert len(pair.sent[0]) == 5
    pair.advance(10)
    assert pair.came[1] == b"".join(b"line %d\n" % number for number in range(1, 101))
    assert len(pair.sent[0]) == 4 + 4
    pieces = [decode_fragment(message, None) for message in pair.sent[0]]
    assert all(piece is not None and piece.total == 1 and len(piece.data) <= MAX_FRAGMENT for piece in pieces)
    assert all(piece.data.endswith(b"\n") for piece in pieces if piece)


def test_notice_stream_keeps_to_its_rate() -> None:
    pair = opened(rate=2.0, burst=3, silence=1_000.0)
    pair.advance(10)
    pair.sent = [[], []]
    pair.ends[0].write(b"x" * MAX_FRAGMENT * 40, pair.now)
    times = []
    for _ in range(200):
        pair.advance(0.1)
        times.append(len(pair.sent[0]))
    assert times[0] == 3
    assert all(count <= 3 + 2 * 0.1 * (index + 1) + 1e-6 for index, count in enumerate(times))
    assert times[-1] == 40


def test_notice_stream_opens_when_the_other_end_appears_later() -> None:
    pair = Pair()
    pair.lose = lambda sender, message: True
    pair.advance(9)
    assert pair.stages == (NoticeState.OFFERED, NoticeState.OFFERED)
    assert len(pair.sent[0]) == 5
    pair.lose = lambda sender, message: False
    pair.advance(2)
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)


def test_lost_handshake_notice_is_repeated() -> None:
    pair = Pair()
    # The first offer of one end, so that the offers do not cross; then the reply to its second.
    lost = [(1, b"H1 OPEN "), (0, b"H1 OPENED ")]

    def lose(sender: int, message: bytes) -> bool:
        if lost and sender == lost[0][0] and message.startswith(lost[0][1]):
            lost.pop(0)
            return True
        return False

    pair.lose = lose
    pair.carry()
    pair.advance(1)
    assert pair.stages.count(NoticeState.OPEN) == 1
    pair.advance(2)
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)


def test_notice_stream_sends_queued_data_before_it_closes() -> None:
    pair = opened(rate=2.0)
    pair.ends[0].write(b"x" * 5_000, pair.now)
    pair.ends[0].close(pair.now)
    pair.ends[0].write(b"too late", pair.now)
    pair.advance(5)
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)
    pair.advance(10)
    assert (pair.ends[0].end_reason, pair.ends[1].end_reason) == ("closed here", "closed")
    assert pair.came[1] == b"x" * 5_000


@pytest.mark.parametrize("restarted", [0, 1])
def test_restarted_end_ends_the_notice_session(restarted: int) -> None:
    pair = opened()
    pair.ends[restarted].write(b"before\n", pair.now)
    pair.carry()
    pair.ends[1 - restarted].write(b"it was on the way\n", pair.now)
    pair.collect()
    pair.ends[restarted] = pair.end(restarted)
    pair.ends[restarted].tick(pair.now)
    pair.carry()
    other = pair.ends[1 - restarted]
    assert (other.state, other.end_reason) == (NoticeState.OVER, "the peer opened a new session")
    assert pair.came[restarted] == b""
    pair.ends[1 - restarted] = pair.end(1 - restarted)
    pair.advance(5)
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)
    pair.ends[1 - restarted].write(b"after\n", pair.now)
    pair.carry()
    assert pair.came[restarted] == b"after\n"


def test_notices_of_an_earlier_session_are_ignored() -> None:
    pair = opened(secrets=(SECRET, SECRET))
    pair.ends[0].write(b"old\n", pair.now)
    pair.collect()
    old = [*pair.sent[0], *pair.sent[1]]
    fresh = Pair(1, secrets=(SECRET, SECRET))
    for message in old:
        fresh.ends[1].receive(message, 0.0)
    assert fresh.ends[1].state is NoticeState.OFFERED
    fresh.advance(3)
    assert fresh.stages == (NoticeState.OPEN, NoticeState.OPEN)
    fresh.ends[1].receive(old[-1], 3.0)
    assert fresh.ends[1].state is NoticeState.OPEN
    data = next(message for message in old if b" 1/1 " in message)
    fresh.ends[1].receive(data, 3.0)
    assert (fresh.ends[1].state, fresh.came[1]) == (NoticeState.OVER, b"")


@pytest.mark.parametrize("secrets", [(SECRET, b"another one of sixteen"), (SECRET, None), (None, SECRET)])
def test_notice_stream_does_not_open_with_different_secrets(secrets: Any) -> None:
    pair = Pair(secrets=secrets)
    pair.advance(20)
    assert pair.stages == (NoticeState.OFFERED, NoticeState.OFFERED)
    assert any(end.counters["unproved"] + end.counters["early"] for end in pair.ends)


def test_reflected_notice_ends_the_session() -> None:
    pair = opened(secrets=(SECRET, SECRET))
    pair.sent = [[], []]
    pair.ends[0].write(b"mine\n", pair.now)
    pair.carry()
    pair.ends[0].receive(pair.sent[0][0], pair.now)
    pair.carry()
    assert (pair.ends[0].state, pair.came[0]) == (NoticeState.OVER, b"")


def messages_of(number: int) -> bytes:
    return encode_fragment(Fragment(number, 1, 1, b"a"), None)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([messages_of(1)], "a message is missing"),
        ([messages_of(0), messages_of(0)], "a message is missing"),
        ([b"H1 0 2/2 YQ"], "a message is missing"),
        ([b"H1 0 1/2 " + b"YWFh" * 80, b"H1 0 2/3 " + b"YWFh" * 80], ""),
        ([b"H1 0 1/2 YQ"], "a message is malformed"),
        ([b"H1 0 0/1 YQ"], "a message is malformed"),
        ([b"H1 0 2/1 YQ"], "a message is malformed"),
        ([b"H1 0 1/17 " + b"YWFh" * 80], "a message is malformed"),
        ([b"H1 00 1/1 YQ"], "a message is malformed"),
        ([b"H1 0 1/1 YR"], "a message is malformed"),
        ([b"H1 0 1/1 YQ=="], "a message is malformed"),
        ([b"H1 0 1/1 YQ "], "a message is malformed"),
        ([b"H1 0 1/1 YQ\n"], "a message is malformed"),
        ([b"H1 0 1/1 Y"], "a message is malformed"),
        ([b"H1 0 1/1 "], "a message is malformed"),
        ([b"H1 0 1/1 " + b"YWFh" * 81], "a message is malformed"),
        ([b"H1 -1 1/1 YQ"], "a message is malformed"),
        ([b"H1 99999999999 1/1 YQ"], "a message is malformed"),
        ([b"H1 0 1/1 YQ AAAAAAAAAAAAAAAA"], "a message is malformed"),
        ([b"H1 CLOSE"], "a message is malformed"),
    ],
)
def test_invalid_notice_ends_the_session(messages: list[bytes], why: str) -> None:
    pair = opened()
    for message in messages:
        pair.ends[1].receive(message, pair.now)
    pair.collect()
    if why:
        assert (pair.ends[1].state, pair.ends[1].end_reason) == (NoticeState.OVER, why)
        assert pair.came[1] in (b"", b"a")
        pair.ends[0].write(b"x", pair.now)
        pair.carry()
        assert pair.ends[0].end_reason == "closed"  # The peer is told.


def test_foreign_notice_is_ignored_and_counted() -> None:
    pair = opened()
    for message in (
        b"hello",
        b"",
        b"H2 0 1/1 YQ",
        b"\x01VERSION\x01",
        b"H1",
        b"H1 OVER " + b"A" * 16 + b" " + b"B" * 16,
    ):
        pair.ends[1].receive(message, pair.now)
    assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)
    assert pair.ends[1].counters["foreign"] == 5


def test_silence_ends_the_notice_session() -> None:
    pair = opened(silence=30.0)
    pair.advance(29)
    pair.ends[0].write(b"\n", pair.now)
    pair.advance(2)
    assert pair.stages == (NoticeState.OVER, NoticeState.OVER)
    assert (pair.ends[0].end_reason, pair.ends[1].end_reason) == ("silent", "closed")


def test_notice_session_with_too_much_unsent_data_ends() -> None:
    pair = opened(rate=1.0)
    pair.ends[0].write(b"x" * MAX_QUEUED, pair.now)
    assert pair.ends[0].state is NoticeState.OPEN
    pair.ends[0].write(b"x" * MAX_FRAGMENT * MAX_FRAGMENTS, pair.now)
    assert pair.ends[0].end_reason == "too much unsent data"
    assert pair.ends[0].waiting == 0
    assert pair.ends[0].next_deadline() is None


@given(st.lists(st.binary(max_size=60) | st.builds(lambda tail: b"H1 " + tail, st.binary(max_size=60)), max_size=5))
def test_arbitrary_notices_deliver_no_data(messages: list[bytes]) -> None:
    for stage in (Pair, opened):
        pair = stage()
        for message in messages:
            pair.ends[0].receive(message, pair.now)
            assert decode_fragment(message, None) is None
        pair.carry()
        assert pair.came == [b"", b""]


class End(Protocol):
    """Protocol that records received data."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: BaseException | None = None
        self.producing = ""

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        assert self.lost is None
        self.lost = reason.value

    def pauseProducing(self) -> None:
        self.producing += "p"

    def resumeProducing(self) -> None:
        self.producing += "r"

    def stopProducing(self) -> None:
        self.producing += "s"


class Net:
    """IRC server on the same clock that relays NOTICEs to the holder of a nick."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.users: dict[str, Any] = {}

    def connect(self, factory: Any) -> Deferred[Any]:
        protocol = factory.buildProtocol(None)
        transport: Any = StringTransport()

        nick = protocol.nick

        def lost() -> None:
            if nick in self.users:
                self.pass_on(nick)
            if self.users.pop(nick, None) is not None:  # A QUIT among the lines has come here, too.
                self.clock.callLater(0, protocol.connectionLost, Failure(ConnectionDone()))

        transport.abortConnection = transport.loseConnection = lost
        protocol.makeConnection(transport)
        self.users[protocol.nick] = protocol
        protocol.dataReceived(b":s 001 %b :hi\r\n:s 376 x :end\r\n" % protocol.nick.encode())
        dial: Deferred[Any] = Deferred()
        dial.callback(protocol)
        return dial

    def endpoint(self, nick: str, peer: str, **more: Any) -> IrcEndpoint:
        settings = {"host": "irc.example.org", "port": 6667, "nick": nick, "peer": peer, "rate": 1_000.0, **more}
        return IrcEndpoint(self.clock, IrcLinkConfig(**settings), endpoint=self)  # type: ignore[arg-type]

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            for nick in tuple(self.users):
                self.pass_on(nick)

    def pass_on(self, nick: str) -> None:
        user = self.users[nick]
        lines = user.transport.value().split(b"\r\n")
        user.transport.clear()
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"NOTICE" and rest.split(b" ")[0].decode() in self.users:
                target = self.users[rest.split(b" ")[0].decode()]
                self.clock.callLater(0, target.dataReceived, b":%b!u@h NOTICE %b\r\n" % (nick.encode(), rest))
            elif word == b"ISON":
                there = rest if rest.decode() in self.users else b""
                self.clock.callLater(0, user.dataReceived, b":s 303 %b :%b\r\n" % (nick.encode(), there))
            elif word == b"QUIT":
                user.transport.loseConnection()
                return

    def link(self, **more: Any) -> tuple[Any, Any]:
        dials = [
            self.endpoint("ivan", "boris", **more).connect(Factory.forProtocol(End)),
            self.endpoint("boris", "ivan", **more).connect(Factory.forProtocol(End)),
        ]
        self.advance(3)
        found: list[Any] = []
        for dial in dials:
            dial.addCallback(found.append)
        return found[0], found[1]


def test_irc_link_carries_data_both_ways() -> None:
    net = Net()
    ivan, boris = net.link(secret=SECRET)
    ivan.transport.writeSequence([b"a\r\n", b"b\r\n"])
    boris.transport.write(b"c" * 1_000)
    net.advance(1)
    assert (ivan.data, boris.data) == (b"c" * 1_000, b"a\r\nb\r\n")
    assert ivan.transport.getPeer().host == "irc:irc.example.org:6667:boris"
    assert ivan.transport.getHost().host == "irc:irc.example.org:6667:ivan"
    boris.transport.write(b"last")
    boris.transport.loseConnection()
    boris.transport.write(b"never")
    net.advance(1)
    assert (type(ivan.lost), type(boris.lost)) == (ConnectionDone, ConnectionDone)
    assert ivan.data.endswith(b"clast")
    assert (net.users, net.clock.getDelayedCalls()) == ({}, [])
    ivan.transport.write(b"nothing")
    ivan.transport.loseConnection()
    ivan.transport.abortConnection()
    net.advance(1)
    ivan.transport.registerProducer(ivan, True)
    assert ivan.producing == "s"


def test_irc_link_accepts_only_notices_of_its_peer() -> None:
    net = Net()
    ivan, _ = net.link()
    user = net.users["ivan"]
    for prefix in (b"boris2!u@h", b"boris", b"bori!u@h", b"ivan!u@h", b""):
        user.dataReceived(b":%b NOTICE ivan :H1 0 1/1 YQ\r\n" % prefix)
    user.dataReceived(b":boris!u@h PRIVMSG ivan :H1 0 1/1 YQ\r\n:boris!u@h NOTICE #c :H1 0 1/1 YQ\r\n")
    assert (ivan.data, ivan.lost) == (b"", None)
    user.dataReceived(b":BORIS!u@h NOTICE IVAN :H1 0 1/1 YQ\r\n")
    assert ivan.data == b"a"


def test_irc_link_pauses_a_fast_producer() -> None:
    net = Net()
    ivan, boris = net.link(rate=10.0)
    ivan.transport.registerProducer(ivan, True)
    ivan.transport.write(b"x" * 1_500)
    assert ivan.producing == ""
    ivan.transport.write(b"x" * 3_000)
    assert ivan.producing == "p"
    net.advance(1)
    assert ivan.producing == "p"
    net.advance(2)
    assert ivan.producing == "pr"
    ivan.transport.loseConnection()
    net.advance(2)
    assert ivan.lost is None  # The producer may write more.
    ivan.transport.write(b"the end")
    ivan.transport.unregisterProducer()
    net.advance(2)
    assert isinstance(ivan.lost, ConnectionDone)
    assert boris.data == b"x" * 4_500 + b"the end"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b":ivan!u@h NICK Guest1\r\n", "changed the nick to Guest1"),
        (b":o!u@h KILL ivan :enough\r\n:s ERROR\r\n", "killed: enough"),
        (b"ERROR :going down\r\n", "going down"),
        (b":s 303 ivan :\r\n", "no longer on IRC"),
        (b":boris!u@h NOTICE ivan :H1 7 1/1 YQ\r\n", "missing"),
        (b":boris!u@h NOTICE ivan :H1 OPEN AAAAAAAAAAAAAAAA -\r\n", "the peer opened a new session"),
    ],
)
def test_irc_error_or_departure_of_the_peer_ends_the_link(line: bytes, reason: str) -> None:
    net = Net()
    ivan, boris = net.link()
    net.users["ivan"].dataReceived(line)
    net.advance(1.5)
    assert isinstance(ivan.lost, ConnectionLost)
    assert reason in str(ivan.lost)
    net.advance(60)
    assert boris.lost is not None
    assert (net.users, net.clock.getDelayedCalls()) == ({}, [])


@pytest.mark.parametrize(("goodbye", "reason"), [(True, "closed"), (False, "no longer on IRC")])
def test_aborted_irc_link_ends_at_both_ends(goodbye: bool, reason: str) -> None:
    net = Net()
    ivan, boris = net.link(max_ping=10.0)
    connection = net.users["boris"].transport
    reset = connection.abortConnection

    def abort() -> None:
        if not goodbye:
            connection.clear()  # The server sees the reset before it has read the QUIT.
        reset()

    connection.abortConnection = abort
    boris.transport.abortConnection()
    net.advance(0.2)
    assert "aborted here" in str(boris.lost)
    assert (ivan.lost is None) is not goodbye
    net.advance(11)
    assert reason in str(ivan.lost)


def test_irc_link_is_closed_by_the_server_and_read_until_then() -> None:
    net = Net()
    ivan, boris = net.link()
    connection = net.users["boris"].transport
    boris.transport.write(b"last")
    boris.transport.loseConnection()
    # To close with unread data would reset the connection, and the server might discard what it has not read either.
    net.users["boris"].dataReceived(b":ivan!u@h NOTICE boris :H1 0 1/1 YQ\r\n:s PING x\r\n")
    assert connection.value().endswith(b"\r\nQUIT :closed here\r\n")
    assert (boris.data, boris.lost) == (b"", None)
    net.advance(0.3)
    assert isinstance(boris.lost, ConnectionDone)
    assert (ivan.data, isinstance(ivan.lost, ConnectionDone)) == (b"last", True)


def test_irc_link_waits_for_the_server_to_close_only_for_a_while() -> None:
    net = Net()
    _, boris = net.link()
    boris.transport.loseConnection()
    net.clock.advance(9.9)
    assert boris.lost is None
    net.clock.advance(0.2)
    assert isinstance(boris.lost, ConnectionDone)


def test_silence_ends_an_irc_link() -> None:
    net = Net()
    ivan, boris = net.link(max_ping=1.0)
    for _ in range(5):
        ivan.transport.write(b"\n")
        boris.transport.write(b"\n")
        net.advance(2)
    assert ivan.lost is None
    net.advance(4)
    assert ivan.lost is not None
    assert boris.lost is not None


def test_exception_of_the_application_ends_its_irc_link() -> None:
    net = Net()
    ivan, boris = net.link()
    ivan.dataReceived = lambda data: 1 / 0
    boris.transport.write(b"x")
    net.advance(1)
    assert isinstance(ivan.lost, ConnectionLost)
    assert boris.lost is not None


def test_refused_or_cancelled_irc_dial_fails() -> None:
    net = Net()

    class Refusing(Factory):
        def buildProtocol(self, addr: Any) -> None:
            return None

    failures: list[Any] = []
    net.endpoint("ivan", "boris").connect(Refusing()).addErrback(failures.append)
    other = net.endpoint("boris", "ivan").connect(Factory.forProtocol(End))
    net.advance(3)
    assert failures[0].check(ConnectError)
    other.addCallback(lambda end: end.transport.loseConnection())

    class Failing(End):
        def connectionMade(self) -> None:
            raise ZeroDivisionError

    net.endpoint("olga", "igor").connect(Factory.forProtocol(Failing)).addErrback(failures.append)
    igor = net.endpoint("igor", "olga").connect(Factory.forProtocol(End))
    net.advance(3)
    igor.addCallback(lambda end: end.transport.loseConnection())
    assert failures.pop().check(ConnectError)
    waiting = net.endpoint("anna", "boris").connect(Factory.forProtocol(End))
    waiting.addErrback(failures.append)
    waiting.cancel()
    net.advance(1)
    assert len(failures) == 2
    assert (net.users, net.clock.getDelayedCalls()) == ({}, [])


def test_cancelled_irc_dial_opens_no_link_until_the_server_closes() -> None:
    net = Net()
    built: list[Any] = []
    failures: list[Any] = []

    class Recording(Factory):
        def buildProtocol(self, addr: Any) -> Protocol:
            built.append(End())
            return built[-1]  # type: ignore[no-any-return]

    waiting = net.endpoint("anna", "boris").connect(Recording())
    waiting.addErrback(failures.append)
    anna = net.users["anna"]
    token = anna.transport.value().partition(b" :H1 OPEN ")[2].split(b" ")[0]
    waiting.cancel()
    anna.dataReceived(b":boris!u@h NOTICE anna :H1 OPENED %b %b\r\n" % (b"A" * 16, token))
    net.advance(1)
    assert built == []
    assert failures[0].check(CancelledError)
    assert (net.users, net.clock.getDelayedCalls()) == ({}, [])


def test_invalid_irc_link_options_are_refused() -> None:
    for nick, peer in (("ivan", "IVAN"), ("a[", "A{"), ("", "b"), ("a", "#b"), ("a", "b c")):
        with pytest.raises(ConfigurationError):
            IrcLinkConfig(host="h", port=1, nick=nick, peer=peer)
    for more in ({"rate": 0.0}, {"burst": 0}, {"secret": b"short"}, {"password": "a b"}):
        with pytest.raises(ConfigurationError):
            IrcLinkConfig(host="h", port=1, nick="a", peer="b", **more)  # type: ignore[arg-type]


def test_irc_link_implements_its_interfaces() -> None:
    from twisted.internet.interfaces import IAddress, IConsumer, IStreamClientEndpoint, ITransport

    net = Net()
    verifyObject(IStreamClientEndpoint, net.endpoint("a", "b"))
    ivan, _ = net.link()
    for interface in (ITransport, IConsumer):
        verifyObject(interface, ivan.transport)
    verifyObject(IAddress, ivan.transport.getPeer())


STEPS = [(SECRET,), (SECRET, b"a successor as long"), (b"a successor as long", SECRET), (b"a successor as long",)]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("one", range(4))
@pytest.mark.parametrize("other", range(4))
def test_sessions_open_between_nodes_one_step_apart_in_a_change_of_the_secret(
    one: int, other: int, swapped: bool
) -> None:
    flip = {SECRET: b"a successor as long", b"a successor as long": SECRET} if swapped else {}
    pair = Pair()
    for index, step in enumerate((one, other)):
        secret, *others = [flip.get(secret, secret) for secret in STEPS[step]]
        names = (b"ivan", b"boris") if index == 0 else (b"boris", b"ivan")
        token = pair.random.randbytes(12)
        pair.ends[index] = NoticeStream(
            *names, token, pair.now, secret=secret, other_secrets=others, rate=1_000.0, burst=100
        )
        pair.ends[index].tick(pair.now)
    pair.carry()
    pair.advance(12.0)
    if abs(one - other) <= 1:
        assert pair.stages == (NoticeState.OPEN, NoticeState.OPEN)
        pair.ends[0].write(b"PING\r\n", pair.now)
        pair.ends[1].write(b"PONG\r\n", pair.now)
        pair.carry()
        assert pair.came == [b"PONG\r\n", b"PING\r\n"]
    elif abs(one - other) == 3:
        assert pair.stages == (NoticeState.OFFERED, NoticeState.OFFERED)
        assert all(end.counters["unproved"] for end in pair.ends)


def test_secrets_of_an_irc_link_are_replaced_and_checked() -> None:
    config = IrcLinkConfig(host="127.0.0.1", port=6667, nick="a", peer="b", secret=SECRET)
    endpoint = IrcEndpoint(Clock(), config)
    endpoint.set_secrets(b"a successor as long", SECRET)
    assert (endpoint._config.secret, endpoint._config.other_secrets) == (b"a successor as long", (SECRET,))
    with pytest.raises(ConfigurationError, match="at least 16"):
        endpoint.set_secrets(SECRET, b"short")
