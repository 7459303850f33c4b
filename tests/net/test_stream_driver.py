"""Stream driver on fake transports with a fake clock, and on real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from OpenSSL.SSL import Error as SSLError
from twisted.internet import reactor as installed_reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import ConnectingCancelledError, ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, capturedLogs
from twisted.python.failure import Failure
from twisted.web.client import ResponseNeverReceived
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Send, Write
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.interfaces import ILinkNode, IStreamCodec, IStreamDecoder, Outputs
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection, describe_failure
from fyrehose_twisted.net.stream_driver import CROWDED_TURNS, FEW_READS, StreamDriver

reactor: Any = installed_reactor

HERE: Address = ("127.0.0.1", 7878)
THERE: Address = ("192.0.2.7", 7878)
DEADLINE = 120.0
"""Seconds after which a test on real sockets fails."""


@implementer(IStreamDecoder)
class Lines:
    """A decoder of lines; a line that begins with ``!`` is malformed."""

    def __init__(self) -> None:
        self.rest = b""
        self.bad: bytes | None = None

    def feed(self, data: bytes) -> list[str]:
        if self.bad is not None:
            raise MalformedPacket("exclaimed", self.bad.decode())
        *lines, self.rest = (self.rest + data).split(b"\n")
        found: list[str] = []
        for line in lines:
            if line.startswith(b"!"):
                self.bad = line
                if not found:
                    return self.feed(b"")
                break
            found.append(line.decode())
        return found


@implementer(IStreamCodec)
class LineCodec:
    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, message: str) -> bytes:
        if "\n" in message:
            raise UnencodableMessage("two lines")
        self.encoded += 1
        return message.encode() + b"\n"

    def decoder(self) -> Lines:
        return Lines()


@implementer(ILinkNode)
class RecordingNode:
    """A stream node that records its inputs and emits scripted outputs."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.effects: list[Any] = []
        self.events: list[Any] = []
        self.persist: Any = None
        self.drains = 0
        self.on_receive: Callable[[str, Peer], None] = lambda message, peer: None

    def connected(self, peer: Peer, now: float) -> None:
        self.told.append(("connected", peer))

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        self.told.append(("dial failed", address, reason))

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        self.told.append(("disconnected", peer, reason))

    def receive(self, message: str, peer: Peer, now: float) -> None:
        self.told.append((message, peer))
        self.on_receive(message, peer)

    def blocked(self, peer: Peer, now: float) -> None:
        self.told.append(("blocked", peer))

    def unblocked(self, peer: Peer, now: float) -> None:
        self.told.append(("unblocked", peer))

    def tick(self, now: float) -> None:
        pass

    def next_deadline(self) -> float | None:
        return None

    def drain(self) -> Outputs:
        self.drains += 1
        drained = Outputs(self.persist, self.effects, self.events)
        self.persist, self.effects, self.events = None, [], []
        return drained

    @property
    def words(self) -> list[str]:
        """Return the recorded inputs without their peers."""
        return [entry[0] for entry in self.told]


class Wire(StringTransport):
    """A transport with a buffer of ``room`` bytes; :meth:`leave` frees space."""

    room = 65_536

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.taken: list[bytes] = []
        self.lost = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        super().write(data)
        self.taken.append(data)
        self.held += len(data)
        if self.held > self.room and self.producer is not None:
            self.producer.pauseProducing()

    def leave(self) -> None:
        self.held = 0
        if self.producer is not None:
            self.producer.resumeProducing()

    def loseConnection(self) -> None:
        self.lost = True

    def abortConnection(self) -> None:
        self.aborted = True


class Dialled:
    """An endpoint whose dials are answered by the test."""

    def __init__(self) -> None:
        self.factories: list[Any] = []
        self.waiting: list[Deferred[Any]] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        self.factories.append(factory)
        # Like TCP and UDP endpoints when they are cancelled.
        error = ConnectingCancelledError(IPv4Address("TCP", *THERE))
        self.waiting.append(Deferred(lambda cancelled: cancelled.errback(error)))
        return self.waiting[-1]


class Running:
    """A stream driver with a recording node and a fake clock."""

    def __init__(
        self,
        node: RecordingNode | None = None,
        make_link: Callable[[Any], NodeConnection] = NodeConnection,
        perform_other: Callable[[Any], None] | None = None,
        **limits: Any,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1_000.0)
        self.node = RecordingNode() if node is None else node
        self.codec = LineCodec()
        self.endpoint = Dialled()
        self.order: list[Any] = []
        self.failures: list[Exception] = []
        self.links = StreamDriver(
            self.node,
            lambda: make_link(self.codec),
            self.clock,
            on_event=lambda event: self.order.append(("told", event)),
            persist=self.keep,
            on_failure=self.failures.append,
            endpoint_factory=lambda reactor, address: self.endpoint,
            limits=ConnectionLimits(**limits),
            perform_other=perform_other,
        )

    def keep(self, mark: Any) -> None:
        self.order.append(("kept", mark))
        if isinstance(mark, Exception):
            raise mark

    def turn(self) -> None:
        self.clock.advance(0)

    def knock(self, source: str = "192.0.2.1", port: int = 50_000) -> NodeConnection | None:
        return self.links.factory.buildProtocol(IPv4Address("TCP", source, port))

    def accept(self, source: str = "192.0.2.1", port: int = 50_000) -> tuple[Any, Wire]:
        link, wire = self.knock(source, port), Wire()
        assert link is not None
        link.makeConnection(wire)
        return link, wire

    def want(self, *effects: Any) -> None:
        self.node.effects += effects
        self.links.flush_soon()
        self.turn()


@pytest.fixture
def logged() -> Any:
    with capturedLogs() as events:
        yield events


def warnings(events: list[LogEvent]) -> list[str]:
    return [event["log_format"] for event in events if event.get("log_namespace", "").startswith("fyrehose")]


def test_the_test_node_and_codec_provide_their_interfaces() -> None:
    assert verifyObject(ILinkNode, RecordingNode())
    assert verifyObject(IStreamCodec, LineCodec())


def test_inputs_of_several_connections_in_one_turn_are_flushed_once_after_the_first() -> None:
    running = Running()
    (one, _), (two, _), (three, _) = (running.accept(port=50_000 + index) for index in range(3))
    running.turn()
    before = running.node.drains
    one.dataReceived(b"a\nb\n")
    two.dataReceived(b"c\n")
    three.dataReceived(b"d\n")
    assert running.node.words == ["connected", "connected", "connected", "a", "b", "c", "d"]
    assert running.node.drains == before + 1
    running.turn()
    assert running.node.drains == before + 2


def test_a_message_that_arrives_alone_is_flushed_without_a_turn() -> None:
    running = Running()
    one, _ = running.accept()
    running.turn()
    for count in range(3):
        running.clock.advance(1)
        before = running.node.drains
        one.dataReceived(b"a\n")
        assert (count, running.node.drains) == (count, before + 1)
        assert not [call for call in running.clock.getDelayedCalls() if call.getTime() <= running.clock.seconds()]


def test_a_message_read_while_outputs_are_written_is_flushed_afterwards() -> None:
    running = Running()
    link, wire = running.accept()
    running.turn()
    running.clock.advance(1)
    answers, write = [b"answer\n"], wire.write

    def write_and_answer(data: bytes) -> None:
        write(data)
        if answers:
            link.dataReceived(answers.pop())

    wire.write = write_and_answer  # type: ignore[method-assign]
    before = running.node.drains
    running.want(Write(["question"], link.peer))
    assert running.node.words[-1] == "answer"
    assert running.node.drains == before + 2


def test_reads_after_a_crowded_turn_are_flushed_together_until_turns_have_few_reads_again() -> None:
    running = Running()
    links = [running.accept(port=50_000 + index)[0] for index in range(FEW_READS + 2)]
    running.turn()
    for link in links:
        link.dataReceived(b"a\n")
    running.turn()
    for turn in range(CROWDED_TURNS):
        running.clock.advance(1)
        before = running.node.drains
        links[0].dataReceived(b"b\n")
        assert (turn, running.node.drains) == (turn, before)
        running.turn()
        assert (turn, running.node.drains) == (turn, before + 1)
    running.clock.advance(1)
    before = running.node.drains
    links[0].dataReceived(b"c\n")
    assert running.node.drains == before + 1


def test_writes_to_a_peer_are_joined_and_broadcasts_encoded_once() -> None:
    running = Running()
    (one, first), (two, second) = running.accept(), running.accept(port=50_001)
    running.turn()
    message = "to both"
    running.want(Write([message], one.peer), Write(["more"], one.peer), Write([message], two.peer))
    assert first.taken == [b"to both\nmore\n"]
    assert second.taken == [b"to both\n"]
    assert running.codec.encoded == 2


def test_effects_that_are_not_of_connections_are_carried_out_in_order_with_the_others() -> None:
    done: list[Any] = []
    running = Running(perform_other=lambda effect: done.append((effect, wire.value())))
    link, wire = running.accept()
    running.turn()
    send = Send([b"datagram"], [HERE])
    running.node.persist = "state"
    running.want(Write(["a"], link.peer), send, Write(["b"], link.peer))
    assert done == [(send, b"")]
    assert running.order == [("kept", "state")]
    assert wire.taken == [b"a\nb\n"]


def test_other_input_uses_the_driver_of_the_node() -> None:
    running = Running()
    running.node.effects.append(Dial(THERE))
    running.links.driver.flush()
    assert len(running.endpoint.waiting) == 1
    running.node.events.append("told")
    running.links.driver.flush()
    assert running.order == [("told", "told")]


def test_a_stream_driver_persists_then_sends_then_emits_events() -> None:
    running = Running()
    link, wire = running.accept()
    running.turn()
    wire.write = lambda data: running.order.append(("sent", data))  # type: ignore[method-assign]
    running.node.persist, running.node.events = "promise", ["event"]
    running.want(Write(["x"], link.peer))
    assert running.order == [("kept", "promise"), ("sent", b"x\n"), ("told", "event")]


def test_nothing_is_sent_if_persisting_fails() -> None:
    running = Running()
    link, wire = running.accept()
    running.turn()
    running.node.persist = OSError("full")
    running.want(Write(["x"], link.peer))
    assert wire.taken == []
    assert len(running.failures) == 1
    running.want(Write(["y"], link.peer))
    assert wire.taken == []


def test_an_accepted_connection_has_tcp_nodelay_and_its_own_peer() -> None:
    running = Running()
    (one, wire), (two, _) = running.accept(), running.accept(port=50_001)
    assert wire.noDelay if hasattr(wire, "noDelay") else True
    assert one.peer == Peer(("192.0.2.1", 50_000), 1, False)
    assert two.peer == Peer(("192.0.2.1", 50_001), 2, False)


def test_a_successful_dial_reports_connected() -> None:
    running = Running()
    running.want(Dial(THERE))
    link = running.endpoint.factories[0].buildProtocol(None)
    link.makeConnection(Wire())
    running.endpoint.waiting[0].callback(link)
    running.turn()
    assert running.node.told == [("connected", Peer(THERE, 1, True))]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ConnectionRefusedError(), "refused"), (OSError(113, "No route to host"), "No route to host")],
)
def test_a_failed_dial_reports_its_reason(error: Exception, reason: str) -> None:
    running = Running()
    running.want(Dial(THERE))
    running.endpoint.waiting[0].errback(Failure(error))
    assert running.node.told == [("dial failed", THERE, reason)]


def test_a_dial_without_an_answer_times_out() -> None:
    running = Running(dial_timeout=3.0)
    running.want(Dial(THERE))
    running.clock.advance(2.9)
    assert running.node.told == []
    running.clock.advance(0.1)
    assert running.node.told == [("dial failed", THERE, "timed out")]
    assert running.links.counters["dials_failed"] == 1


def test_an_immediate_dial_failure_is_reported_after_the_current_flush() -> None:
    running = Running()
    link, wire = running.accept()
    running.turn()
    running.endpoint.connect = lambda factory: fail(ConnectionRefusedError())  # type: ignore[method-assign]
    seen: list[int] = []
    running.node.dial_failed = (  # type: ignore[method-assign]
        lambda address, reason, now: seen.append(len(wire.taken))
    )
    running.want(Dial(THERE), Write(["x"], link.peer))
    running.turn()
    assert seen == [1]


def test_an_address_without_an_endpoint_is_a_failed_dial() -> None:
    running = Running()

    def connect(factory: Any) -> Deferred[Any]:
        raise ValueError("what is that?")

    running.endpoint.connect = connect  # type: ignore[method-assign]
    running.want(Dial(THERE))
    running.turn()
    assert running.node.told == [("dial failed", THERE, "what is that?")]


def test_an_unencodable_message_ends_only_its_connection(logged: list[LogEvent]) -> None:
    running = Running()
    (one, first), (two, second) = running.accept(), running.accept(port=50_001)
    running.turn()
    running.want(Write(["good", "bad\nline", "after"], one.peer), Write(["good"], two.peer))
    running.turn()
    assert first.taken == [b"good\n"]
    assert first.aborted
    assert second.taken == [b"good\n"]
    assert running.node.told[-1] == ("disconnected", one.peer, "not encodable")
    assert running.links.counters["unencodable"] == 1


def test_close_sends_written_data_and_is_not_reported_to_the_node() -> None:
    running = Running()
    link, wire = running.accept()
    running.turn()
    running.want(Write(["bye"], link.peer), Close(link.peer), Write(["too late"], link.peer))
    assert wire.taken == [b"bye\n"]
    assert wire.lost
    link.dataReceived(b"more\n")
    link.connectionLost(Failure(ConnectionDone()))
    running.turn()
    assert running.node.words == ["connected"]
    assert len(running.links) == 0


def test_close_aborts_a_connection_whose_peer_does_not_read() -> None:
    running = Running(close_timeout=5.0)
    link, wire = running.accept()
    running.turn()
    running.want(Write(["x" * 70_000], link.peer))
    running.want(Write(["y"], link.peer), Close(link.peer))
    assert not wire.lost
    running.clock.pump([1.0] * 4)
    assert not wire.aborted
    running.clock.pump([1.0] * 2)
    assert wire.aborted


def test_close_waits_for_buffered_data() -> None:
    running = Running()
    link, wire = running.accept()
    running.turn()
    running.want(Write(["x" * 70_000], link.peer))
    running.want(Write(["last"], link.peer), Close(link.peer))
    wire.leave()
    assert wire.taken[-1] == b"last\n"
    assert wire.lost
    assert wire.producer is None  # Twisted closes a transport only without a producer.


@pytest.mark.parametrize(
    ("error", "reason"), [(ConnectionDone(), "closed"), (ConnectionLost(), "reset"), (ValueError("odd"), "odd")]
)
def test_a_disconnect_is_reported_with_its_reason(error: Exception, reason: str) -> None:
    running = Running()
    link, _ = running.accept()
    running.turn()
    link.connectionLost(Failure(error))
    assert running.node.told[-1] == ("disconnected", link.peer, reason)


def test_a_full_write_buffer_reports_blocked_and_unblocked() -> None:
    running = Running(high_watermark=100)
    link, wire = running.accept()
    running.turn()
    running.want(Write(["x" * 70_000], link.peer))  # The transport pauses its producer, but buffers everything.
    running.want(Write(["y" * 90], link.peer))
    assert running.node.words == ["connected"]
    running.want(Write(["z" * 90], link.peer))
    running.turn()
    assert running.node.words == ["connected", "blocked"]
    running.want(Write(["z" * 90], link.peer))
    running.turn()
    assert running.node.words == ["connected", "blocked"]
    wire.leave()
    running.turn()
    assert running.node.words == ["connected", "blocked", "unblocked"]
    assert wire.value() == b"x" * 70_000 + b"\n" + b"y" * 90 + b"\n" + (b"z" * 90 + b"\n") * 2


def test_a_peer_that_does_not_read_is_disconnected(logged: list[LogEvent]) -> None:
    running = Running(max_unsent=1_000)
    link, wire = running.accept()
    running.turn()
    running.want(Write(["x" * 70_000], link.peer))
    running.want(Write(["y" * 999], link.peer))
    assert not wire.aborted
    running.want(Write(["z"], link.peer))
    running.turn()
    assert wire.aborted
    assert running.node.told[-1] == ("disconnected", link.peer, "does not read")
    assert running.links.counters["unread"] == 1
    assert link.unsent_bytes == 0


def test_messages_before_malformed_bytes_are_delivered(logged: list[LogEvent]) -> None:
    running = Running()
    link, wire = running.accept()
    link.dataReceived(b"good\n!bad\nafter\n")
    running.turn()
    link.dataReceived(b"after that\n")
    assert running.node.told[1:] == [("good", link.peer), ("disconnected", link.peer, "malformed: !bad")]
    assert wire.aborted
    assert running.links.counters["malformed_exclaimed"] == 1


def test_failed_tls_handshake_is_counted_only_where_it_was_accepted(logged: list[LogEvent]) -> None:
    running = Running()
    in_use, _ = running.accept()
    in_use.dataReceived(b"good\n")
    in_use.connectionLost(Failure(SSLError("cut off")))
    running.accept()[0].connectionLost(Failure(ConnectionLost()))
    assert running.links.counters["tls_failed"] == 0
    running.accept()[0].connectionLost(Failure(SSLError([("SSL routines", "", "no certificate")])))
    assert running.links.counters["tls_failed"] == 1
    assert warnings(logged) == ["no TLS with {source}: {reason}"]
    running.want(Dial(THERE))
    link = running.endpoint.factories[0].buildProtocol(None)
    link.makeConnection(Wire())
    running.endpoint.waiting[0].callback(link)
    link.connectionLost(Failure(SSLError([("SSL routines", "", "unknown ca")])))
    assert running.links.counters["tls_failed"] == 1
    assert "ended before the first message" in warnings(logged)[-1]


def test_malformed_bytes_are_logged_once_a_minute_per_source(logged: list[LogEvent]) -> None:
    running = Running()
    for source in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        running.accept(source)[0].dataReceived(b"!\n")
    assert len(warnings(logged)) == 2
    running.clock.advance(60.0)
    running.accept()[0].dataReceived(b"!\n")
    assert len(warnings(logged)) == 3
    assert running.links.counters["malformed"] == 4


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "closed"),
        (ConnectionDone(), "closed"),
        (ConnectionLost(), "reset"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (ValueError(), "ValueError"),
        (SSLError([("SSL routines", "", "certificate verify failed")]), "certificate verify failed"),
        (SSLError([("a", "b", "one"), ("a", "b", "two")]), "one; two"),
        (SSLError([]), "[]"),
        (ResponseNeverReceived([Failure(ConnectionDone()), Failure(ConnectionLost())]), "closed; reset"),
        (ResponseNeverReceived([Failure(SSLError([("a", "b", "one")]))]), "one"),
        (ValueError([5, "text", ()]), "5; text; ()"),
        (ValueError("x" * 1_000), "x" * 200),
    ],
)
def test_the_reason_of_a_disconnect_is_described_briefly(error: BaseException | None, words: str) -> None:
    assert describe_failure(error) == words


def test_a_dialled_connection_lost_without_data_is_logged(logged: list[LogEvent]) -> None:
    running = Running()
    for answer in (b"", b"", b"word\n"):
        running.want(Dial(THERE))
        link = running.endpoint.factories[-1].buildProtocol(None)
        link.makeConnection(Wire())
        link.dataReceived(answer)
        link.connectionLost(Failure(ValueError("certificate verify failed")))
    assert [event["reason"] for event in logged if "reason" in event] == ["certificate verify failed"]
    assert running.node.words.count("disconnected") == 3


def test_an_exception_of_a_node_ends_one_connection(logged: list[LogEvent]) -> None:
    running = Running()
    (one, wire), (two, _) = running.accept(), running.accept(port=50_001)
    running.turn()

    def on_receive(message: str, peer: Peer) -> None:
        if message == "odd":
            raise RuntimeError("a mistake of ours")

    running.node.on_receive = on_receive
    one.dataReceived(b"odd\n")
    two.dataReceived(b"even\n")
    assert wire.aborted
    assert running.node.words[-2:] == ["disconnected", "even"]


def test_accepted_connections_are_limited_in_total_and_per_host(logged: list[LogEvent]) -> None:
    running = Running(max_accepted=3, max_per_source=2)
    link, _ = running.accept()
    running.accept()
    assert running.knock() is None
    other, _ = running.accept("192.0.2.2")
    assert running.knock("192.0.2.3") is None
    assert running.knock("192.0.2.3") is None
    assert running.links.counters["refused"] == 3
    assert len(warnings(logged)) == 2
    for gone in (link, other):
        gone.connectionLost(Failure(ConnectionDone()))
    assert running.links.accepted == 1
    running.accept()
    running.accept("192.0.2.2")


def test_accepted_connections_of_an_ipv6_64_count_as_those_of_one_host() -> None:
    running = Running(max_accepted=10, max_per_source=2)
    link, _ = running.accept("2001:db8::1")
    running.accept("2001:db8::2")
    assert running.knock("2001:db8::3") is None
    running.accept("2001:db8:0:1::3")
    link.connectionLost(Failure(ConnectionDone()))
    running.accept("2001:db8::3")


def test_a_connection_from_an_ipv4_mapped_address_has_the_ipv4_address() -> None:
    running = Running(max_per_source=2)
    link, _ = running.accept("::ffff:192.0.2.1")
    assert (link.peer.address, link.source) == (("192.0.2.1", 50_000), "192.0.2.1")
    running.accept("192.0.2.1")
    assert running.knock("::ffff:192.0.2.1") is None


def test_dialled_connections_do_not_count_against_the_limits() -> None:
    running = Running(max_accepted=1)
    running.want(Dial(THERE))
    running.endpoint.factories[0].buildProtocol(None).makeConnection(Wire())
    running.accept()


def test_a_silent_connection_is_aborted() -> None:
    running = Running(first_message_timeout=30.0, idle_timeout=100.0)
    (silent, wire), (halting, half) = running.accept(), running.accept(port=50_001)
    (speaking, other), _ = running.accept(port=50_002), running.want(Dial(THERE))
    dialled = Wire()
    running.endpoint.factories[0].buildProtocol(None).makeConnection(dialled)
    speaking.dataReceived(b"here\n")
    for _ in range(29):
        halting.dataReceived(b"x")
        running.clock.advance(1.0)
    assert not wire.aborted
    running.clock.pump([1.0] * 2)
    assert (wire.aborted, half.aborted, other.aborted) == (True, True, False)
    assert ("disconnected", silent.peer, "silent") in running.node.told
    running.clock.pump([1.0] * 80)
    assert other.aborted
    assert not dialled.aborted
    assert running.links.counters["silent"] == 3


def test_idle_sweeps_continue_after_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(first_message_timeout=3.0)
    _, wire = running.accept()

    def fail(link: NodeConnection, reason: str) -> None:
        raise TypeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(NodeConnection, "abort", fail)
        with pytest.raises(TypeError, match="a bug"):
            running.clock.pump([1.0] * 5)
    assert not wire.aborted
    running.clock.pump([1.0] * 2)
    assert wire.aborted


def test_stop_closes_all_connections_and_waits_for_them() -> None:
    running = Running()
    link, wire = running.accept()
    running.want(Dial(THERE))
    stopped = running.links.stop()
    again = running.links.stop()
    assert wire.lost
    assert not stopped.called
    assert running.knock() is None
    link.connectionLost(Failure(ConnectionDone()))
    assert stopped.called
    assert again.called
    assert running.node.words == ["connected"]
    assert [call for call in running.clock.getDelayedCalls() if call.active()] == []


def test_stop_aborts_connections_after_a_timeout() -> None:
    running = Running(close_timeout=5.0)
    _, wire = running.accept()
    running.links.stop()
    running.clock.pump([1.0] * 6)
    assert wire.aborted


def test_stop_without_connections_fires_at_once() -> None:
    assert Running().links.stop().called


def test_a_dial_cancelled_by_stop_is_not_counted_as_failed() -> None:
    running = Running()
    running.want(Dial(THERE))
    running.links.stop()
    running.turn()
    assert running.endpoint.waiting[0].called
    assert running.links.counters["dials_failed"] == 0


def test_a_dial_that_succeeds_after_stop_is_closed() -> None:
    running = Running()
    running.want(Dial(THERE))
    factory = running.endpoint.factories[0]
    running.links.stop()
    wire = Wire()
    factory.buildProtocol(None).makeConnection(wire)
    assert wire.lost
    assert running.node.told == []


class Application(NodeConnection):
    """A connection that answers messages beginning with ``mine`` itself."""

    def connection_ready(self) -> None:
        self.send(["welcome"])

    def messages_received(self, messages: Any) -> None:
        self.send([message.upper() for message in messages if message.startswith("mine")])
        super().messages_received([message for message in messages if not message.startswith("mine")])


def test_a_connection_subclass_handles_messages_before_the_node() -> None:
    running = Running(make_link=Application)
    link, wire = running.accept()
    link.dataReceived(b"mine\nyours\n")
    assert wire.taken == [b"welcome\n", b"MINE\n"]
    assert running.node.words == ["connected", "yours"]


def test_a_connection_works_without_a_stream_driver() -> None:
    link, wire = Application(LineCodec()), Wire()
    link.makeConnection(wire)
    link.dataReceived(b"mine\n")
    link.connectionLost(Failure(ConnectionDone()))
    assert wire.taken == [b"welcome\n", b"MINE\n"]


class Echo(RecordingNode):
    """A node that answers each message and fires a Deferred at a given one."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: dict[str, Deferred[Any]] = {}

    def until(self, word: str) -> Deferred[Any]:
        waited: Deferred[Any] = self.waited.setdefault(word, Deferred())
        return waited.addTimeout(DEADLINE, reactor)

    def tell(self, word: str) -> None:
        if word in self.waited:
            self.waited.pop(word).callback(None)

    def connected(self, peer: Peer, now: float) -> None:
        super().connected(peer, now)
        self.tell("connected")

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        super().disconnected(peer, reason, now)
        self.tell("disconnected")

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        super().dial_failed(address, reason, now)
        self.tell("dial failed")

    def receive(self, message: str, peer: Peer, now: float) -> None:
        super().receive(message, peer, now)
        if not peer.dialled:
            self.effects.append(Write([message], peer))
        self.tell(message[:8])

    def blocked(self, peer: Peer, now: float) -> None:
        super().blocked(peer, now)
        self.tell("blocked")

    def unblocked(self, peer: Peer, now: float) -> None:
        super().unblocked(peer, now)
        self.tell("unblocked")


def links_of(node: RecordingNode, **limits: Any) -> StreamDriver:
    codec = LineCodec()
    return StreamDriver(
        node, lambda: NodeConnection(codec), reactor, on_event=lambda event: None, limits=ConnectionLimits(**limits)
    )


@pytest_twisted.ensureDeferred
async def test_two_stream_nodes_exchange_messages_over_real_sockets() -> None:
    here, there = Echo(), Echo()
    ours, theirs = links_of(here), links_of(there)
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(theirs.factory)
    try:
        connected = here.until("connected")
        here.effects.append(Dial(("127.0.0.1", port.getHost().port)))
        ours.flush()
        await connected
        peer = here.told[0][1]
        echoed = here.until("last")
        here.effects.append(Write([*map(str, range(1_000)), "x" * 3_000_000, "last"], peer))
        ours.flush()
        await echoed
        assert here.words == ["connected", *map(str, range(1_000)), "x" * 3_000_000, "last"]
        for links in (ours, theirs):
            for link in links._connections:
                transport: Any = link.transport
                assert transport.getTcpNoDelay()
                assert transport.getTcpKeepAlive()
        gone = there.until("disconnected")
        here.effects.append(Close(peer))
        ours.flush()
        await gone
        assert there.told[-1][2] == "closed"
    finally:
        await maybeDeferred(port.stopListening)
        await ours.stop()
        await theirs.stop()


@pytest_twisted.ensureDeferred
async def test_a_real_dial_to_a_closed_port_is_refused() -> None:
    here = Echo()
    ours = links_of(here)
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(ours.factory)
    address = ("127.0.0.1", port.getHost().port)
    await maybeDeferred(port.stopListening)
    failed = here.until("dial failed")
    here.effects.append(Dial(address))
    ours.flush()
    await failed
    assert here.told == [("dial failed", address, "refused")]
    await ours.stop()


@pytest_twisted.ensureDeferred
async def test_a_real_peer_that_stops_reading_blocks_and_later_reads_everything() -> None:
    here, there = Echo(), Echo()
    ours, theirs = links_of(here, high_watermark=65_536), links_of(there)
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(theirs.factory)
    try:
        connected, met = here.until("connected"), there.until("connected")
        here.effects.append(Dial(("127.0.0.1", port.getHost().port)))
        ours.flush()
        await connected
        await met
        transport: Any = next(iter(theirs._connections)).transport
        transport.stopReading()
        peer, blocked = here.told[0][1], here.until("blocked")
        for letter in "abcdefgh":  # More than the kernel buffers of two sockets hold.
            here.effects.append(Write([letter * 1_900_000], peer))
            ours.flush()
        await blocked
        unblocked, last = here.until("unblocked"), there.until("h" * 8)
        transport.startReading()
        await unblocked
        await last
        assert [word[0] for word in there.words[1:]] == list("abcdefgh")
    finally:
        await maybeDeferred(port.stopListening)
        await ours.stop()
        await theirs.stop()
