"""Node service on real loopback sockets, with an IRC server in the same process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from prometheus_client import CollectorRegistry, generate_latest
from suite.waiting import DEADLINE, Waiting
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.protocols.basic import LineOnlyReceiver
from zope.interface import alsoProvides, implementer, providedBy

from fyrehose_twisted.errors import ConfigurationError, PublishQueueFull, StateFileError, UnencodableMessage
from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.events import AskIrc, LeaderChanged, LinesMissed, LinesReceived, Outcome, Role, ToIrc
from fyrehose_twisted.hydra.irc.active import Channel, IrcConfig
from fyrehose_twisted.hydra.irc.bots import Bot, IrcLine, StatefulBot
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.service.config import HydraConfig, HydraSettings
from fyrehose_twisted.hydra.service.metrics import HydraCollector
from fyrehose_twisted.hydra.service.service import HydraService
from fyrehose_twisted.hydra.service.storage import LineJournal, LineStorage
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.hydra.wire.messages import Send
from fyrehose_twisted.interfaces import IIrcListener
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.net.boottime import BoottimeReactor
from fyrehose_twisted.net.control.client import connect

reactor: Any = installed_reactor

SCALE = 0.02
TURN = 0.001
"""Seconds that the clock of :class:`Paced` advances per reactor turn."""


class Paced:
    """Reactor with real sockets whose clock advances per turn, so that a busy machine breaks no lease."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_000.0)
        self.callLater = self.clock.callLater
        self.seconds = self.clock.seconds
        self._turning: Any = None
        alsoProvides(self, *(one for one in providedBy(reactor) if one is not IReactorFDSet))

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)

    def start(self) -> None:
        """Start the clock."""
        self._turning = reactor.callLater(0, self._turn)

    def stop(self) -> None:
        """Stop the clock."""
        self._turning.cancel()

    def _turn(self) -> None:
        self._turning = reactor.callLater(0, self._turn)
        self.clock.advance(TURN)


class IrcEnd(LineOnlyReceiver):
    """The server's end of an IRC connection, which accepts every client."""

    delimiter = b"\r\n"
    factory: Ircd

    def connectionMade(self) -> None:
        self.nick = b""
        self.factory.ends.append(self)

    def lineReceived(self, line: bytes) -> None:
        words = line.split(b" ")
        match words[0]:
            case b"NICK":
                self.nick = words[1]
            case b"USER":
                for code in (b"001", b"376"):
                    self.sendLine(b":irc.test %b %b :x" % (code, self.nick))
            case b"JOIN":
                self.factory.joins.append((self.nick, words[1]))
                self.sendLine(b":%b!u@h JOIN :%b" % (self.nick, words[1]))
                self.sendLine(b":irc.test 353 %b = %b :%b @anna" % (self.nick, words[1], self.nick))
                self.sendLine(b":irc.test 366 %b %b :x" % (self.nick, words[1]))
            case b"QUIT":
                self.transport.loseConnection()  # type: ignore[union-attr]
            case b"PING" if self.factory.answers:
                self.sendLine(b":irc.test PONG irc.test " + words[1])
            case b"KICK":
                self.sendLine(b":irc.test 482 %b %b :You're not channel operator" % (self.nick, words[1]))
        self.factory.lines.append(line)
        self.factory.waiting.look()

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.ends.remove(self)
        self.factory.waiting.look()


class Ircd(Factory):
    """Minimal IRC server."""

    protocol = IrcEnd
    noisy = False

    def __init__(self) -> None:
        self.waiting = Waiting()
        self.ends: list[IrcEnd] = []
        self.lines: list[bytes] = []
        self.joins: list[tuple[bytes, bytes]] = []
        self.port: Any = None
        self.answers = True

    @property
    def said(self) -> list[bytes]:
        return [line for line in self.lines if line.startswith(b"PRIVMSG")]

    def send(self, *lines: bytes) -> None:
        """Send lines to all clients."""
        for end in self.ends:
            for line in lines:
                end.sendLine(line)


@implementer(IIrcListener)
class Listener:
    def __init__(self) -> None:
        self.lines: list[tuple[int, int, bytes]] = []
        self.missed: list[LinesMissed] = []
        self.leaders: list[int | None] = []

    def lines_received(self, lines: LinesReceived) -> None:
        self.lines += [(lines.term, number, line) for number, line in enumerate(lines.lines, lines.first)]

    def lines_missed(self, lines: LinesMissed) -> None:
        self.missed.append(lines)

    def leader_changed(self, leader: LeaderChanged) -> None:
        self.leaders.append(leader.leader)

    @property
    def texts(self) -> list[bytes]:
        """Return the text of each line, without tags and prefixes."""
        return [untag(line)[1].split(b" :", 1)[1] for _, _, line in self.lines if b"PRIVMSG" in line]


class Node(HydraService):
    """Node service that re-evaluates the waiting conditions of a test after each event."""

    def __init__(self, ircd: Ircd | None, tag: str = "a", links: Any = (), **options: Any) -> None:
        self.waiting = Waiting()
        self.heard = Listener()
        self.failures: list[Exception] = []
        settings = {"network_size": 1, "bootstrap": True, "irc_rate": 1_000.0, "irc_burst": 100}
        if ircd is not None:
            place = f"127.0.0.1:{ircd.port.getHost().port}"
            options["irc"] = IrcConfig((place,), tag, (Channel("#c"),))
        settings |= {"tag": tag, "timers": Timers(SCALE), "links": links, "guardian": False, "listen": "tcp:0"}
        settings |= {one.name: options.pop(one.name) for one in fields(HydraConfig) if one.name in options}
        super().__init__(HydraConfig(**settings), **{"failed": self.failures.append, **options})
        self.listen(self.heard)

    def until(self, true: Callable[[], Any]) -> Deferred[None]:
        return self.waiting.until(true)

    def on_irc(self) -> Deferred[None]:
        return self.until(lambda: (state := self.state()) is not None and state.irc == "open")

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self.waiting.look()

    def _on_event(self, event: Any) -> None:
        super()._on_event(event)
        self.waiting.look()

    def _call_node(self, *arguments: Any, **more: Any) -> None:
        super()._call_node(*arguments, **more)
        self.waiting.look()


@pytest.fixture
def ircd() -> Iterator[Ircd]:
    server = Ircd()
    server.port = pytest_twisted.blockon(TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(server))
    yield server
    for end in tuple(server.ends):
        end.transport.abortConnection()  # type: ignore[union-attr]
    pytest_twisted.blockon(server.waiting.until(lambda: not server.ends))
    pytest_twisted.blockon(server.port.stopListening())


Start = Callable[..., Awaitable[Node]]


@pytest.fixture
def start() -> Iterator[Callable[..., Node]]:
    """Start a node, and stop it after the test."""
    nodes: list[Node] = []
    paced = Paced()
    paced.start()
    clock = BoottimeReactor(paced, paced.seconds)

    def started(*arguments: Any, **options: Any) -> Node:
        nodes.append(Node(*arguments, **{"reactor": clock, **options}))
        nodes[-1].privilegedStartService()
        nodes[-1].startService()
        return nodes[-1]

    yield started
    for node in nodes:
        if node.running:
            pytest_twisted.blockon(node.stopService())
    paced.stop()


@pytest_twisted.ensureDeferred
async def test_single_node_relays_and_says_lines(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    assert node.heard.leaders == [node.node.id]
    ircd.send(b":n!u@h PRIVMSG #c :one", b":irc.test 372 a :not relayed", b":n!u@h PRIVMSG #c :two")
    await node.until(lambda: len(node.heard.texts) == 2)
    assert node.heard.texts == [b"one", b"two"]
    assert await node.say("PRIVMSG #c :three") is Outcome.SAID
    await ircd.waiting.until(lambda: ircd.said)
    assert ircd.said == [b"PRIVMSG #c :three"]
    assert node.heard.texts == [b"one", b"two", b"three"]
    term = node.node.term
    assert [line[:2] for line in node.heard.lines] == [(term, number) for number in range(len(node.heard.lines))]
    assert await node.say(b"PRIVMSG #c :\xff", retry=True) is Outcome.SAID
    await ircd.waiting.until(lambda: len(ircd.said) == 2)
    assert ircd.said[1:] == [b"PRIVMSG #c :\xff"]
    with pytest.raises(UnencodableMessage):
        await node.say("PRIVMSG #c :a\r\nQUIT")
    await node.stopService()
    assert ircd.lines[-1].startswith(b"QUIT")
    assert ircd.ends == []
    assert await node.say("PRIVMSG #c :four") is Outcome.REFUSED
    assert node.failures == []


@pytest_twisted.ensureDeferred
async def test_line_after_its_deadline_is_not_written_to_irc(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    now = node.reactor.seconds()
    node._on_event(ToIrc(b"PRIVMSG #c :too late", now - 0.001))
    assert node.node.counters["too_late"] == 1
    node._on_event(ToIrc(b"PRIVMSG #c :in time", now + 60.0))
    await ircd.waiting.until(lambda: ircd.said)
    assert ircd.said == [b"PRIVMSG #c :in time"]


@pytest_twisted.ensureDeferred
async def test_unacknowledged_line_is_not_reported_as_said(start: Any, ircd: Ircd) -> None:
    node = start(ircd, irc_patience=1.0)
    await node.on_irc()
    assert await node.say("PRIVMSG #c :one") is Outcome.SAID
    ircd.answers = False
    said = await node.say_and_tell("PRIVMSG #c :two")
    assert said.outcome is Outcome.UNCERTAIN
    assert ircd.said == [b"PRIVMSG #c :one", b"PRIVMSG #c :two"]
    assert node.heard.texts == [b"one"]
    await ircd.waiting.until(lambda: not ircd.ends)
    assert not any(line.startswith(b"QUIT") for line in ircd.lines)
    assert "IRC has not answered" in node.state().why
    assert node.state().counts["irc_silent"] == 1
    ircd.answers = True
    await node.on_irc()  # The line is sent again.
    assert await node.say("PRIVMSG #c :three") is Outcome.SAID


@pytest_twisted.ensureDeferred
async def test_refusal_of_irc_is_reported(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    said = node.say_and_tell("KICK #c anna"), node.say_and_tell("PRIVMSG #c :hi")
    assert (await said[0])[1:] == (Outcome.REFUSED, "482 #c You're not channel operator")
    assert (await said[1])[1:] == (Outcome.SAID, "")
    assert [untag(line)[1] for _, _, line in node.heard.lines][-2:] == [
        b":irc.test 482 a #c :You're not channel operator",
        b":a!u@h PRIVMSG #c :hi",
    ]
    assert node.state().counts["irc_refused"] == 1


@pytest_twisted.ensureDeferred
async def test_long_message_is_split_into_lines_that_irc_does_not_truncate(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    text = "word " * 99 + "end"
    assert await node.say(f"PRIVMSG #c :{text}") is Outcome.SAID
    assert [len(line) < 512 - len(b":a!u@h \r\n") for line in ircd.said] == [True, True]
    assert b" ".join(line.removeprefix(b"PRIVMSG #c :") for line in ircd.said) == text.encode()


@pytest_twisted.ensureDeferred
async def test_no_quit_is_sent_after_the_lease(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    node._lease_until = node.reactor.seconds() - 0.001
    node._close_irc("its time is over", graceful=True)
    await ircd.waiting.until(lambda: not ircd.ends)
    assert not any(line.startswith(b"QUIT") for line in ircd.lines)


@pytest_twisted.ensureDeferred
async def test_no_ping_is_sent_after_the_lease(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    lease, node._lease_until = node._lease_until, node.reactor.seconds() - 0.001
    # The last promise on disk is the latest one.
    node.node._components.leadership.lease.until = node._lease_until
    node._on_event(AskIrc(7))
    node.node._components.leadership.lease.until = lease
    node._on_event(AskIrc(8))
    await ircd.waiting.until(lambda: b"PING :hydra-8" in ircd.lines)
    assert b"PING :hydra-7" not in ircd.lines


@pytest_twisted.ensureDeferred
async def test_lines_before_quit_are_acknowledged(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    said = [node.say(f"PRIVMSG #c :{number}") for number in range(5)]
    await ircd.waiting.until(lambda: ircd.said)
    await node.stopService()
    outcomes = [await one for one in said]
    assert outcomes.count(Outcome.SAID) == len(ircd.said)
    assert ircd.lines[-1].startswith(b"QUIT")


@pytest_twisted.ensureDeferred
async def test_stopping_leader_sends_quit_under_its_lease(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    await node.on_irc()
    node._lease_until = node.reactor.seconds() - 0.001  # Make its last PING look old.
    await node.stopService()
    assert ircd.lines[-1].startswith(b"QUIT")


@pytest_twisted.ensureDeferred
async def test_failed_state_file_stops_the_node_without_quit(start: Any, ircd: Ircd, tmp_path: Path) -> None:
    node = start(ircd, state=tmp_path / "state")
    await node.on_irc()
    said = node.say("PRIVMSG #c :before")
    await said

    def broken(vow: DurableState) -> None:
        raise StateFileError("the disk is full")

    node.links.driver._persist = broken
    await node.until(lambda: node.failures)
    assert [str(error) for error in node.failures] == ["the disk is full"]
    await ircd.waiting.until(lambda: not ircd.ends)
    assert await node.say("PRIVMSG #c :after") is Outcome.REFUSED
    await node.stopService()
    assert ircd.said == [b"PRIVMSG #c :before"]
    assert not any(line.startswith(b"QUIT") for line in ircd.lines)


@pytest_twisted.ensureDeferred
async def test_startup_errors_are_reported(start: Any, tmp_path: Path) -> None:
    first = start(None, state=tmp_path / "state", storage=LineStorage(tmp_path / "journal"), control="tcp:0")
    await first.until(lambda: first.node is not None and first._ports.addresses)
    second = start(None, state=tmp_path / "state")
    assert "in use by another node" in str(second.failures[0])
    third = start(None, storage=LineStorage(tmp_path / "journal"))
    assert "in use by another process" in str(third.failures[0])
    place = first._ports.addresses["control"][0].rpartition(":")[2]
    fourth = start(None, metrics=f"tcp:{place}")
    await fourth.until(lambda: fourth.failures)
    assert str(fourth.failures[0]) == (
        f"--metrics: cannot listen on tcp:{place}:interface=127.0.0.1: Address already in use"
    )
    for wrong in ({"links": ["nonsense"]}, {"listen": ("nonsense:1",)}, {"listen": ("udp:0", "udp:0")}):
        with pytest.raises(ConfigurationError):
            Node(None, **wrong)


@pytest_twisted.ensureDeferred
async def test_journal_restores_terms_and_bot_state_after_a_restart(start: Any, ircd: Ircd, tmp_path: Path) -> None:
    class Counting(Bot):
        def __init__(self) -> None:
            self.seen: list[tuple[str, bool]] = []
            self.led: list[bool] = []

        def line_received(self, line: IrcLine) -> Iterable[str]:
            if line.command != "PRIVMSG" or line.ours:
                return
            self.seen.append((line.text, line.replayed))
            yield f"PRIVMSG #c :{len(self.seen)}"

        def leading(self, leads: bool) -> None:
            self.led.append(leads)

    bot = Counting()
    node = start(ircd, storage=LineStorage(tmp_path), bots=[bot])
    await node.on_irc()
    ircd.send(b":n!u@h PRIVMSG #c :one", b":n!u@h PRIVMSG #c :two")
    await ircd.waiting.until(lambda: len(ircd.said) == 2)
    await node.until(lambda: len(node.heard.texts) == 4)
    before = node.node.term
    await node.stopService()
    assert bot.seen == [("one", False), ("two", False)]
    assert bot.led == [True, False]
    with closing(open_reader(tmp_path / "hydra-default")) as reader:
        bounds = reader.bounds(before)
        assert bounds is not None
        payloads = [payload for block in reader.read(before, 0, bounds.last) for payload in block.payloads()]
    assert payloads == [line for _, _, line in node.heard.lines]

    bot = Counting()
    again = start(ircd, storage=LineStorage(tmp_path), bots=[bot])
    assert bot.seen == [("one", True), ("two", True)]
    await again.on_irc()
    assert again.node.term > before
    assert len(ircd.said) == 2
    ircd.send(b":n!u@h PRIVMSG #c :three")
    await ircd.waiting.until(lambda: len(ircd.said) == 3)
    await ircd.waiting.until(lambda: len(ircd.said) == 3)
    assert ircd.said == [b"PRIVMSG #c :1", b"PRIVMSG #c :2", b"PRIVMSG #c :3"]


@pytest_twisted.ensureDeferred
async def test_two_nodes_relay_lines_through_a_protocol_subclass(start: Any, ircd: Ircd) -> None:
    seen: list[Any] = []

    class Watching(HydraProtocol):
        def hydra_received(self, messages: Any) -> None:
            seen.extend(messages)
            super().hydra_received(messages)

    secret = b"a secret that is long enough"
    first = start(ircd, network_size=2, secret=secret, protocol=Watching)
    await first.until(lambda: first._ports.addresses)
    (place,) = first._ports.addresses["listen"]
    second = start(ircd, "b", [f"tcp:{place}"], network_size=2, bootstrap=False, secret=secret)
    await second.until(lambda: second.node.role is Role.COHORT)
    await first.on_irc()
    assert await second.say("PRIVMSG #c :from afar") is Outcome.SAID
    assert [message.line for message in seen if isinstance(message, Send)] != []
    assert first.heard.texts == second.heard.texts == [b"from afar"]
    state = second.state()
    assert state is not None
    assert (state.leader, len(state.nodes)) == (first.node.id, 2)
    assert state.counts["links_dialled"] >= 1
    await second.stopService()
    await first.until(lambda: len(first.node.state(first.links.now()).nodes) == 1)


@pytest.mark.interpreted
@pytest_twisted.ensureDeferred
async def test_a_node_with_another_secret_is_told_so(start: Any, ircd: Ircd) -> None:
    first = start(ircd, network_size=2, secret=b"a secret that is long enough")
    await first.until(lambda: first._ports.addresses)
    (place,) = first._ports.addresses["listen"]
    stranger = start(None, "c", [f"tcp:{place}"], network_size=2, bootstrap=False, secret=b"another secret, as long")
    reasons: list[str] = []

    def dial_failed(address: Any, reason: str, now: float) -> None:
        reasons.append(reason)
        stranger.waiting.look()

    stranger.node.dial_failed = dial_failed
    await stranger.until(lambda: reasons)
    assert "proof" in reasons[0] or "secret" in reasons[0], reasons


@pytest_twisted.ensureDeferred
async def test_control_socket_answers_commands(start: Any, ircd: Ircd, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    node = start(ircd, control=f"unix:{path}")
    await node.on_irc()
    assert path.stat().st_mode & 0o777 == 0o600
    asking = await connect(f"unix:{path}", reactor, DEADLINE)
    state = (await asking.request(ask="status"))["status"]
    assert (state["role"], state["id"], state["irc"]) == ("leader", node.node.id, "open")
    told: list[dict[str, Any]] = []
    waiting = Waiting()
    asking.on_event = lambda message: (told.append(message), waiting.look())
    assert await asking.request(ask="follow") == {"following": True}
    said = await asking.request_numbered(ask="say", line="PRIVMSG #c :\udcff hi", retry=False)
    assert (said["said"], said["why"]) == ("said", "")
    await waiting.until(lambda: len(told) == 2)
    number = node.heard.lines[-1][1]
    assert told[0] == {"leader": node.node.id, "tag": "a", "term": node.node.term}
    assert told[1] == {"line": ":a!u@h PRIVMSG #c :\udcff hi", "term": node.node.term, "number": number}
    refused = await asking.request_numbered(ask="say", line="QUIT :x", retry=False)
    assert "is not one of" in refused["error"]
    await node.stopService()
    assert (await asking.ended).startswith("the node closed the connection")


@pytest_twisted.ensureDeferred
async def test_metrics_of_a_node_are_exported(start: Any, ircd: Ircd) -> None:
    node = start(ircd)
    registry = CollectorRegistry()
    registry.register(HydraCollector(node))
    await node.on_irc()
    await node.say("PRIVMSG #c :hi")
    lines = dict(
        line.rsplit(" ", 1) for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")
    )
    (info,) = (name for name in lines if name.startswith("fyrehose_info"))
    assert info.startswith('fyrehose_info{network="default",service="hydra",version="')
    assert lines['fyrehose_hydra_leader{leader="a"}'] == "1.0"
    assert lines['fyrehose_hydra_role{role="leader"}'] == "1.0"
    assert lines['fyrehose_hydra_role{role="cohort"}'] == "0.0"
    assert lines["fyrehose_hydra_irc_open"] == "1.0"
    assert lines["fyrehose_hydra_nodes"] == lines["fyrehose_hydra_quorum"] == "1.0"
    assert 0 < float(lines["fyrehose_hydra_lease_seconds"]) <= 7.5 * SCALE
    assert lines['fyrehose_hydra_counted_total{what="said"}'] == "1.0"


@pytest_twisted.ensureDeferred
async def test_node_without_irc_counts_failed_connects(start: Any) -> None:
    with capturedLogs() as logs:
        node = start(None)
        await node.until(lambda: node.node.counters["irc_failed"] > 0)
    assert node.failures == []
    assert not [event for event in logs if event.get("log_failure") is not None]


@pytest_twisted.ensureDeferred
async def test_node_without_links_warns_that_it_has_no_guardian(start: Any) -> None:
    with capturedLogs() as logs:
        node = start(None, guardian=True, network_size=3)
        await node.until(lambda: node.node.id is not None)
    (why,) = (event["why"] for event in logs if "no guardian" in event.get("log_format", ""))
    assert "--link" in why


def test_line_journal_records_gaps_and_terms() -> None:
    journal = MemoryJournal("hydra://default")
    lines = LineJournal(journal, lambda: 1.0)
    assert lines.term == 0
    lines.append(LinesReceived(3, 2, [b"c", b"d"]))
    lines.append(LinesMissed(3, 4, 5))
    lines.append(LinesReceived(3, 6, [b"g"]))
    lines.append(LinesReceived(3, 9, [b"j"]))
    lines.append(LinesMissed(7, 0, 1))
    lines.append(LinesReceived(7, 2, [b"x"]))
    journal.commit()
    assert lines.term == 7
    assert [journal.bounds(term)[:2] for term in (3, 7)] == [(2, 10), (0, 3)]
    assert journal.losses(3, 0, 99) == [(4, 5), (7, 8)]
    assert list(lines.replay(lambda damage: None)) == [
        LinesReceived(3, 2, [b"c", b"d"]),
        LinesMissed(3, 4, 5),
        LinesReceived(3, 6, [b"g"]),
        LinesMissed(3, 7, 8),
        LinesReceived(3, 9, [b"j"]),
        LinesMissed(7, 0, 1),
        LinesReceived(7, 2, [b"x"]),
    ]
    # A relayed line is journalled verbatim.
    lines.append(LinesReceived(3, 2, [b"C"]))
    journal.commit()
    record = journal.get(3, 2)
    assert record is not None
    assert record.payload == b"c"


@pytest_twisted.ensureDeferred
async def test_full_queue_is_reported_at_once(start: Any) -> None:
    node = start(None, network_size=3, bootstrap=False, max_queue=2)
    waiting = [node.say_and_tell(f"PRIVMSG #c :{number}") for number in range(2)]
    with pytest.raises(PublishQueueFull):
        node.say_and_tell("PRIVMSG #c :3")
    with pytest.raises(PublishQueueFull):
        await node.say("PRIVMSG #c :3")
    await node.stopService()
    assert [(await one).outcome for one in waiting] == [Outcome.REFUSED] * 2


class OpsBot(StatefulBot):
    """Bot that obeys the operators of a channel, and counts what they said."""

    def __init__(self) -> None:
        self.count = 0

    def line_received(self, line: IrcLine) -> Iterable[str]:
        if line.command == "PRIVMSG" and self.irc.is_op("#c", line.nick):
            self.count += 1
            yield f"PRIVMSG #c :{self.count}"

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, state: bytes) -> None:
        self.count = int(state)


def trio_of_nodes(start: Any, ircd: Ircd) -> tuple[list[Node], list[OpsBot]]:
    """Start three linked nodes that run a bot; the first leads."""
    nodes: list[Node] = []
    bots: list[OpsBot] = []
    for tag in "abc":
        bots.append(OpsBot())
        links = [f"tcp:127.0.0.1:{node._ports.addresses['listen'][0].rsplit(':', 1)[1]}" for node in nodes]
        nodes.append(start(ircd, tag, links, network_size=3, bootstrap=tag == "a", bots=bots[-1:]))
    return nodes, bots


@pytest_twisted.ensureDeferred
async def test_next_leader_is_in_the_channels_and_has_the_nick_of_the_last_one(start: Any, ircd: Ircd) -> None:
    (a, b, c), _ = trio_of_nodes(start, ircd)
    await a.on_irc()
    await c.until(lambda: c.leader is not None and c.leader.leader == a.node.id)
    for line in ("JOIN #new key", "PART #c", "NICK robot"):
        assert await b.say(line) is Outcome.SAID
    await c.until(lambda: c.view.wanted_nick == "robot")
    await a.stopService()
    await c.until(lambda: "open" in (b.state().irc, c.state().irc))
    assert ircd.joins == [(b"a", b"#c"), (b"a", b"#new"), (b"robot", b"#new")]
    assert ircd.lines[-1] == b"JOIN #new key"


@pytest_twisted.ensureDeferred
async def test_new_node_gets_the_state_of_bots_and_channels_without_a_journal(start: Any, ircd: Ircd) -> None:
    nodes, bots = trio_of_nodes(start, ircd)
    a, b, c = nodes
    await a.on_irc()
    await c.until(lambda: c._bots.shared.complete and b._bots.shared.complete)
    await c.stopService()
    ircd.send(b":anna!u@h PRIVMSG #c :one", b":bob!u@h PRIVMSG #c :no operator", b":anna!u@h PRIVMSG #c :two")
    assert await b.say("JOIN #new") is Outcome.SAID
    await b.until(lambda: bots[1].count == 2)
    late = OpsBot()
    links = [f"tcp:127.0.0.1:{node._ports.addresses['listen'][0].rsplit(':', 1)[1]}" for node in (a, b)]
    d = start(ircd, "d", links, network_size=3, bootstrap=False, bots=[late])
    await d.until(lambda: d._bots.shared.complete)
    assert (late.count, d.view.joined, d.view.is_op("#new", "anna")) == (2, ["#c", "#new"], True)
    assert d.state().counts["state_restored"] == 1
    ircd.send(b":anna!u@h PRIVMSG #c :three")
    await d.until(lambda: late.count == 3)
    await b.until(lambda: [bot.count for bot in bots[:2]] == [3, 3])
    await ircd.waiting.until(lambda: len(ircd.said) == 3)
    assert ircd.said == [b"PRIVMSG #c :1", b"PRIVMSG #c :2", b"PRIVMSG #c :3"]
    assert a.state().counts["snapshots"] >= 1


@pytest_twisted.ensureDeferred
async def test_ctcp_requests_to_the_leader_are_answered_once(start: Any, ircd: Ircd) -> None:
    (a, b, _), _ = trio_of_nodes(start, ircd)
    await a.on_irc()
    ircd.send(b":anna!u@h PRIVMSG a :\x01PING 7\x01", b":anna!u@h PRIVMSG #c :\x01PING 8\x01")
    await ircd.waiting.until(lambda: any(line.startswith(b"NOTICE") for line in ircd.lines))
    assert await b.say("PRIVMSG #c :after") is Outcome.SAID
    assert [line for line in ircd.lines if line.startswith(b"NOTICE")] == [b"NOTICE anna :\x01PING 7\x01"]
    assert a.state().counts["ctcp_answered"] == 1


@pytest_twisted.ensureDeferred
async def test_ctcp_is_left_to_bots_on_request(start: Any, ircd: Ircd) -> None:
    node = start(
        None, irc=IrcConfig((f"127.0.0.1:{ircd.port.getHost().port}",), "a", (Channel("#c"),), ctcp_version="")
    )
    await node.on_irc()
    ircd.send(b":anna!u@h PRIVMSG a :\x01VERSION\x01")
    await node.until(lambda: any(b"VERSION" in line for _, _, line in node.heard.lines))
    assert await node.say("PRIVMSG #c :after") is Outcome.SAID
    assert not any(line.startswith(b"NOTICE") for line in ircd.lines)


OLD, NEW = b"the secret so far, long enough", b"its successor, as long at least"


@pytest_twisted.ensureDeferred
async def test_secret_is_replaced_on_one_node_after_the_other(start: Any, ircd: Ircd) -> None:
    first = start(ircd, network_size=2, secret=OLD)
    (place,) = first._ports.addresses["listen"]
    second = start(ircd, "b", [f"tcp:{place}"], network_size=2, bootstrap=False, secret=OLD)
    await first.on_irc()
    for secrets in ((OLD, NEW), (NEW, OLD), (NEW,)):
        for node in (first, second):
            settings = replace(node.config.settings, secret=secrets[0], other_secrets=secrets[1:])
            (told,) = node.reconfigure(settings)
            assert told == f"the secret, and {len(secrets) - 1} other secret{'s' * (len(secrets) != 2)} accepted"
            assert node.reconfigure(settings) == []
            dialled = second.links.counters["dialled"]
            for link in list(second.links._connections):
                link.transport.abortConnection()
            # The lease may end before the link is back.
            while await second.say(f"PRIVMSG #c :{len(secrets)}") is not Outcome.SAID:
                pass
            assert second.links.counters["dialled"] > dialled
    stranger = start(None, "c", [f"tcp:{place}"], network_size=2, bootstrap=False, secret=OLD)
    while not stranger.links.counters["dials_failed"]:
        await second.say("PRIVMSG #c :meanwhile")


@pytest_twisted.ensureDeferred
async def test_channels_and_bots_are_replaced_in_a_running_node(start: Any, ircd: Ircd) -> None:
    told: list[HydraSettings] = []
    node = start(ircd, reload=lambda: told[-1])
    await node.on_irc()
    bot = OpsBot()
    told.append(HydraSettings(channels=(Channel("#new", "key"),), bots=(bot,)))
    assert node.reload() == ["joins #new, leaves #c", "bots OpsBot"]
    await ircd.waiting.until(lambda: b"PART #c" in ircd.lines)
    assert b"JOIN #new key" in ircd.lines
    ircd.send(b":anna!u@h PRIVMSG #c :counted")
    await node.until(lambda: bot.count == 1)
    assert node.reload() == []
    await node.until(lambda: [channel.name for channel in node.view.to_join(node.config.irc.channels)] == ["#new"])
    told.append(HydraSettings(channels=(Channel("#new", "key"),), bots=()))
    assert node.reload() == ["bots none"]


def test_settings_that_need_a_restart_are_refused() -> None:
    node = Node(None)
    for settings, why in (
        (HydraSettings(secret=NEW), "first secret"),
        (HydraSettings(channels=(Channel("#c"),)), "--irc"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            node.reconfigure(settings)
    assert node.reload() == []
