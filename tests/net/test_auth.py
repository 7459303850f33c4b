"""Mutual authentication on scripted transports and a manual clock, and at the end on real sockets."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed_reactor
from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred, fail, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint
from twisted.internet.error import ConnectionDone, ConnectionRefusedError, NoProtocol
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, capturedLogs
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.messages import Call, Keepalive, Malformed
from fyrehose_twisted.net.auth import (
    MAX_BLANK_LINES,
    MAX_PENDING,
    MAX_PROOF_LINE,
    REASONS,
    TIMEOUT,
    AuthClientEndpoint,
    AuthenticationFailed,
    Authenticator,
    auth_server_factory,
)
from fyrehose_twisted.net.connection import NodeConnection

reactor: Any = installed_reactor

SECRET = b"what all nodes share"
DEADLINE = 120.0
"""Seconds after which a test on real sockets fails; reached only on failure."""


class Wire(StringTransport):
    """Transport that records how it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.at_once = False
        self.read = 0

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802
        self.at_once = enabled

    def abortConnection(self) -> None:
        self.aborted = True

    def taken(self) -> bytes:
        """Return data written since the last call."""
        data = self.value()[self.read :]
        self.read += len(data)
        return data


class Speaker(Protocol):
    """Protocol behind an authenticated connection."""

    def __init__(self) -> None:
        self.heard = b""
        self.ends: list[Any] = []
        self.first = b""

    def connectionMade(self) -> None:
        if self.first:
            self.transport.write(self.first)

    def dataReceived(self, data: bytes) -> None:
        self.heard += data

    def connectionLost(self, reason: Any = None) -> None:
        self.ends.append(reason.value)


class Speakers(Factory):
    noisy = False

    def __init__(self, first: bytes = b"") -> None:
        self.built: list[Speaker] = []
        self.first = first
        self.wanted = True
        self.started = 0

    def startFactory(self) -> None:
        self.started += 1

    def stopFactory(self) -> None:
        self.started -= 1

    def buildProtocol(self, addr: Any) -> Speaker | None:
        if not self.wanted:
            return None
        self.built.append(Speaker())
        self.built[-1].first = self.first
        return self.built[-1]


@implementer(IStreamClientEndpoint)
class Dialling:
    """Endpoint that connects at once."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.prover: Any = None

    def connect(self, factory: Any) -> Deferred[Any]:
        self.prover = factory.buildProtocol(IPv4Address("TCP", "192.0.2.7", 6_174))
        self.prover.makeConnection(self.wire)
        return succeed(self.prover)


class End:
    """One end of a connection.

    :param dials: whether it dialled.
    """

    def __init__(
        self, dials: bool, secret: bytes | Authenticator = SECRET, *, symmetric: bool = False, first: bytes = b""
    ) -> None:
        self.clock = Clock()
        self.counted: list[str] = []
        self.speakers = Speakers(first)
        self.proving = (
            secret if isinstance(secret, Authenticator) else Authenticator(secret, self.clock, self.counted.append)
        )
        self.connected: list[Any] = []
        if dials:
            dialling = Dialling()
            endpoint = AuthClientEndpoint(dialling, self.proving, self.clock, symmetric=symmetric)
            endpoint.connect(self.speakers).addBoth(self.connected.append)
            self.prover, self.wire = dialling.prover, dialling.wire
        else:
            self.factory = auth_server_factory(self.speakers, self.proving, self.clock)
            self.wire = Wire()
            self.prover = self.factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 50_000))
            self.prover.makeConnection(self.wire)

    @property
    def speaker(self) -> Speaker:
        (speaker,) = self.speakers.built
        return speaker

    @property
    def failed(self) -> str:
        """Return the reported reason of the failure."""
        assert self.speakers.built == []
        (reason,) = self.counted
        if self.connected:
            assert self.connected[0].check(AuthenticationFailed)
            assert self.connected[0].value.reason == reason
        return reason

    def feed(self, data: bytes, size: int = 10_000) -> None:
        for at in range(0, len(data), size):
            self.prover.dataReceived(data[at : at + size])


def carry(first: End, second: End, size: int = 10_000) -> bytes:
    """Exchange data of two ends until both are quiet; return all of it."""
    said = b""
    while True:
        one, other = first.wire.taken(), second.wire.taken()
        if not one + other:
            return said
        said += one + other
        second.feed(one, size)
        first.feed(other, size)


@pytest.fixture
def logged() -> Any:
    with capturedLogs() as events:
        yield events


def complaints(events: list[LogEvent]) -> list[str]:
    return [event["log_format"].format(**event) for event in events if event["log_level"].name == "warn"]


class TestSuccess:
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_protocols_connect_after_both_ends_authenticated(self, symmetric: bool, size: int) -> None:
        ours = End(True, symmetric=symmetric, first=b"KNOCK 7\r\n")
        theirs = End(symmetric, symmetric=symmetric, first=b"KNOCK 8\r\n")
        said = carry(ours, theirs, size)
        assert said.count(b"AUTH ") == said.count(b"PROOF ") == 2
        for end, heard in ((ours, b"KNOCK 8\r\n"), (theirs, b"KNOCK 7\r\n")):
            assert end.speaker.heard == heard
            assert end.speaker.transport is end.wire
            assert end.counted == []
            assert end.clock.getDelayedCalls() == []
            assert repr(end.proving) == "<Authenticator with 0 pending>"
        assert ours.connected == [ours.speaker]

    def test_handshake_lines_are_malformed_for_nodes(self) -> None:
        said = carry(End(True), End(False))
        lines = said.split(b"\r\n")
        assert lines.pop() == b""
        for line in lines:
            assert re.fullmatch(rb"AUTH [0-9a-f]{32}|PROOF [0-9a-f]{64}", line)
        found = HydraCodec().decoder().feed(said)
        assert [one.reason for one in found if isinstance(one, Malformed)] == ["unknown-command"] * 4

    def test_handshake_reveals_neither_the_secret_nor_its_hash(self) -> None:
        said = carry(End(True), End(False))
        assert SECRET not in said
        for digest in ("sha256", "sha1", "md5"):
            assert hmac.new(SECRET, b"", digest).hexdigest().encode() not in said

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_proof_is_an_hmac_of_the_role_and_both_nonces(self, symmetric: bool) -> None:
        ours, theirs = End(True, symmetric=symmetric), End(symmetric, symmetric=symmetric)
        carry(ours, theirs)
        (first, own), (second, other) = (end.wire.value().split(b"\r\n")[:2] for end in (ours, theirs))
        if symmetric and second < first:
            first, own, second, other = second, other, first, own
        nonces = bytes.fromhex((first[5:] + second[5:]).decode())
        kind = b"level-" if symmetric else b""
        for role, proof in ((b"first", own), (b"second", other)):
            expected = hmac.new(SECRET, b"hydra-proof\0" + kind + role + b"\0" + nonces, "sha256").hexdigest()
            assert proof == b"PROOF " + expected.encode()

    def test_proof_depends_on_the_label(self) -> None:
        proving = Authenticator(SECRET, Clock(), label=b"other")
        ours = End(True, proving)
        nonce = ours.wire.value()[5:37]
        ours.feed(b"AUTH " + b"ab" * 16 + b"\r\n")
        nonces = bytes.fromhex(nonce.decode()) + b"\xab" * 16
        expected = hmac.new(SECRET, b"other-proof\0first\0" + nonces, "sha256").hexdigest().encode()
        assert ours.wire.value().endswith(b"PROOF " + expected + b"\r\n")

    def test_protocol_is_built_after_the_proof_and_then_gets_data_directly(self) -> None:
        ours, theirs = End(True), End(False)
        theirs.feed(ours.wire.taken())
        ours.feed(theirs.wire.taken())
        assert ours.speakers.built == theirs.speakers.built == []
        assert ours.wire.at_once
        assert len(theirs.factory) == 1
        carry(ours, theirs)
        assert len(theirs.factory) == 0
        assert ours.prover.dataReceived == ours.speaker.dataReceived
        ours.prover.dataReceived(b"CALL 1\r\n")
        assert ours.speaker.heard == b"CALL 1\r\n"
        ours.prover.connectionLost(Failure(ConnectionDone()))
        assert [type(end) for end in ours.speaker.ends] == [ConnectionDone]
        assert ours.counted == []

    def test_data_right_after_the_proof_is_not_lost(self) -> None:
        ours, theirs = End(True), End(False, first=b"KNOCK 8\r\nCA")
        theirs.feed(ours.wire.taken())
        ours.feed(theirs.wire.taken())
        theirs.feed(ours.wire.taken())
        ours.feed(theirs.wire.taken() + b"LL 1\r\n")
        assert ours.speaker.heard == b"KNOCK 8\r\nCALL 1\r\n"

    def test_empty_lines_during_the_handshake_are_ignored(self) -> None:
        ours, theirs = End(True), End(False)
        ours.feed(b"\r\n" * MAX_BLANK_LINES)
        carry(ours, theirs)
        assert ours.speaker.connected

    def test_connection_refused_by_the_inner_factory_is_aborted(self) -> None:
        ours, theirs = End(True), End(False)
        ours.speakers.wanted = theirs.speakers.wanted = False
        carry(ours, theirs)
        assert ours.wire.aborted
        assert theirs.wire.aborted
        assert ours.connected[0].check(NoProtocol)

    def test_inner_factory_is_started_and_stopped(self) -> None:
        end = End(False)
        end.factory.doStart()
        assert end.speakers.started == 1
        end.factory.doStop()
        assert end.speakers.started == 0

    def test_auth_client_endpoint_implements_its_interface(self) -> None:
        verifyObject(IStreamClientEndpoint, AuthClientEndpoint(Dialling(), SECRET, Clock()))

    def test_empty_secret_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="empty"):
            Authenticator(b"", Clock())


class TestStrangers:
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_different_secret_fails(self, symmetric: bool) -> None:
        ours, theirs = End(True, symmetric=symmetric), End(symmetric, b"something else", symmetric=symmetric)
        said = carry(ours, theirs)
        # The first end to send its proof is rejected and receives none.
        assert said.count(b"PROOF ") == 1
        (found_out,) = [end for end in (ours, theirs) if end.counted]
        assert symmetric or found_out is theirs
        assert found_out.failed == "wrong-proof"
        assert found_out.wire.aborted
        other = ours if found_out is theirs else theirs
        other.prover.connectionLost(Failure(ConnectionDone()))
        assert other.failed == "closed"
        assert other.clock.getDelayedCalls() == []

    @pytest.mark.parametrize("dials", [True, False])
    def test_dialler_without_a_secret_is_rejected(self, dials: bool) -> None:
        end = End(dials)
        end.feed(b"KNOCK 7 ivan\r\n")
        assert end.failed == "not-auth"
        assert end.wire.aborted
        assert end.wire.value().startswith(b"AUTH ")
        assert b"PROOF" not in end.wire.value()

    @pytest.mark.parametrize("dials", [True, False])
    def test_listener_without_a_secret_is_rejected(self, dials: bool) -> None:
        link = NodeConnection(HydraCodec())
        heard: list[Any] = []
        link.messages_received = heard.extend  # type: ignore[method-assign]
        wire = Wire()
        link.makeConnection(wire)
        end = End(dials)
        link.dataReceived(end.wire.taken())
        assert [message.reason for message in heard] == ["unknown-command"]
        link.send([Keepalive()])
        end.feed(wire.value())
        assert end.counted == []
        link.send([Call(1)])
        end.feed(wire.value())
        assert end.failed == "not-auth"

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"GET / HTTP/1.1\r\n\r\n", "not-auth"),
            (b"AUTH \r\n", "not-auth"),
            (b"AUTH " + b"0" * 31 + b"\r\n", "not-auth"),
            (b"AUTH " + b"0" * 33 + b"\r\n", "not-auth"),
            (b"AUTH " + b"G" * 32 + b"\r\n", "not-auth"),
            (b"AUTH " + b"A" * 32 + b"\r\n", "not-auth"),
            (b"auth " + b"0" * 32 + b"\r\n", "not-auth"),
            (b"AUTH " + b"0" * 32 + b" \r\n", "not-auth"),
            (b"PROOF " + b"0" * 64 + b"\r\n", "not-auth"),
            (b"\xff\0\n\r\r\n", "not-auth"),
            (b"x" * (MAX_PROOF_LINE + 1), "overlong-line"),
            (b"x" * 100_000 + b"\r\n", "overlong-line"),
            (b"\r\n" * (MAX_BLANK_LINES + 1), "overlong-line"),
            (b"AUTH " + b"0" * 32 + b"\r\n" + b"KNOCK 7\r\n", "not-proof"),
            (b"AUTH " + b"0" * 32 + b"\r\n" + b"AUTH " + b"0" * 32 + b"\r\n", "not-proof"),
            (b"AUTH " + b"0" * 32 + b"\r\n" + b"PROOF " + b"0" * 63 + b"\r\n", "not-proof"),
            (b"AUTH " + b"0" * 32 + b"\r\n" + b"PROOF " + b"0" * 64 + b"\r\n", "wrong-proof"),
            (b"AUTH " + b"0" * 32 + b"\r\n" + b"x" * (MAX_PROOF_LINE + 1), "overlong-line"),
        ],
    )
    @pytest.mark.parametrize("dials", [True, False])
    @pytest.mark.parametrize("size", [1, 10_000])
    def test_garbage_fails_the_handshake(self, data: bytes, reason: str, dials: bool, size: int) -> None:
        end = End(dials)
        end.feed(data, size)
        assert end.failed == reason
        assert end.wire.aborted
        assert end.clock.getDelayedCalls() == []
        end.prover.connectionLost(Failure(ConnectionDone()))
        assert end.counted == [reason]

    def test_silent_peer_receives_no_proof(self) -> None:
        end = End(False)
        end.feed(b"AUTH " + b"0" * 32 + b"\r\n")
        assert b"PROOF" not in end.wire.value()

    @pytest.mark.parametrize("said", [b"", b"\r\n", b"AUTH " + b"0" * 32 + b"\r\n", b"AUTH 00"])
    @pytest.mark.parametrize("dials", [True, False])
    def test_silence_fails_the_handshake(self, said: bytes, dials: bool) -> None:
        end = End(dials)
        end.feed(said)
        end.clock.advance(TIMEOUT - 0.1)
        assert end.counted == []
        end.clock.advance(0.1)
        assert end.failed == "silent"
        assert end.wire.aborted

    def test_slow_bytes_do_not_extend_the_timeout(self) -> None:
        end = End(False)
        for _ in range(10):
            end.feed(b"A")
            end.clock.advance(TIMEOUT / 10)
        assert end.failed == "silent"

    def test_recorded_handshake_cannot_be_replayed(self) -> None:
        for replayed in ("dialler", "acceptor"):
            ours, theirs = End(True), End(False)
            overheard: dict[str, bytes] = {"dialler": b"", "acceptor": b""}
            while True:
                one, other = ours.wire.taken(), theirs.wire.taken()
                if not one + other:
                    break
                overheard["dialler"] += one
                overheard["acceptor"] += other
                theirs.feed(one)
                ours.feed(other)
            fresh = End(replayed == "acceptor", SECRET)
            fresh.feed(overheard[replayed])
            assert fresh.failed == "wrong-proof"

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_reflected_nonce_is_detected(self, symmetric: bool) -> None:
        for dials in (True,) if symmetric else (True, False):
            end = End(dials, symmetric=symmetric)
            end.feed(end.wire.taken())
            assert end.failed == "reflected"

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_reflected_nonce_on_another_connection_is_detected(self, symmetric: bool) -> None:
        counted: list[str] = []
        proving = Authenticator(SECRET, Clock(), counted.append)
        one, other = End(True, proving, symmetric=symmetric), End(symmetric, proving, symmetric=symmetric)
        carry(one, other)
        assert counted == ["reflected"]
        assert one.speakers.built == other.speakers.built == []

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_reflected_proof_is_wrong(self, symmetric: bool) -> None:
        end = End(True, symmetric=symmetric)
        end.feed(b"AUTH " + b"f" * 32 + b"\r\n")
        proof = end.wire.value()[-72:]
        assert proof.startswith(b"PROOF ")
        end.feed(proof)
        assert end.failed == "wrong-proof"

    def test_two_connections_to_one_listener_cannot_be_relayed(self) -> None:
        one, other = End(False), End(False)
        carry(one, other)
        for end in (one, other):
            assert end.speakers.built == []
            assert b"PROOF" not in end.wire.value()

    def test_two_dialled_connections_cannot_be_relayed(self) -> None:
        one, other = End(True), End(True)
        carry(one, other)
        assert one.failed == other.failed == "wrong-proof"

    def test_proof_with_another_label_is_wrong(self) -> None:
        ours, theirs = End(True), End(False)
        theirs.proving = Authenticator(SECRET, theirs.clock, theirs.counted.append, label=b"other")
        theirs.factory = auth_server_factory(theirs.speakers, theirs.proving, theirs.clock)
        theirs.wire = Wire()
        theirs.prover = theirs.factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 50_000))
        theirs.prover.makeConnection(theirs.wire)
        carry(ours, theirs)
        assert theirs.failed == "wrong-proof"

    def test_symmetric_proof_is_invalid_for_dialler_and_listener(self) -> None:
        ours = End(True, symmetric=True)
        theirs = End(False)
        carry(ours, theirs)
        assert ours.speakers.built == theirs.speakers.built == []

    @pytest.mark.parametrize("at", range(0, 64, 7))
    def test_nearly_correct_proof_is_wrong(self, at: int) -> None:
        ours, theirs = End(True), End(False)
        theirs.feed(ours.wire.taken())
        ours.feed(theirs.wire.taken())
        proof = bytearray(ours.wire.taken())
        proof[6 + at] = ord("0") if proof[6 + at] != ord("0") else ord("1")
        theirs.feed(bytes(proof))
        assert theirs.failed == "wrong-proof"


class TestBounds:
    def test_oldest_pending_connection_is_evicted(self) -> None:
        speakers, counted = Speakers(), list[str]()
        factory = auth_server_factory(speakers, Authenticator(SECRET, Clock(), counted.append), Clock())
        wires = []
        for _ in range(MAX_PENDING + 2):
            wires.append(Wire())
            factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 50_000)).makeConnection(wires[-1])
        assert len(factory) == MAX_PENDING
        assert counted == ["crowded"] * 2
        assert [wire.aborted for wire in wires] == [True] * 2 + [False] * MAX_PENDING

    def test_each_reason_and_source_is_logged_once_a_minute(self, logged: list[LogEvent]) -> None:
        clock, counted = Clock(), list[str]()
        factory = auth_server_factory(Speakers(), Authenticator(SECRET, clock, counted.append), clock)

        def fail_from(source: str, data: bytes) -> None:
            prover = factory.buildProtocol(IPv4Address("TCP", source, 50_000))
            prover.makeConnection(Wire())
            prover.dataReceived(data)

        for _ in range(20):
            fail_from("192.0.2.1", b"KNOCK 7\r\n")
        expected = "hung up on 192.0.2.1: it has no secret, or is not a node of this network"
        assert complaints(logged) == [expected]
        assert counted == ["not-auth"] * 20
        fail_from("192.0.2.2", b"KNOCK 7\r\n")
        fail_from("192.0.2.1", b"x" * 1_000)
        assert len(complaints(logged)) == 3
        clock.advance(61)
        fail_from("192.0.2.1", b"KNOCK 7\r\n")
        assert complaints(logged).count(expected) == 2

    def test_every_failure_reason_has_a_text(self) -> None:
        for reason, why in REASONS.items():
            assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason)
            assert why in str(AuthenticationFailed(reason))


class TestDials:
    def test_failed_dial_is_reported(self) -> None:
        class Refused:
            def connect(self, factory: Any) -> Deferred[Any]:
                return fail(ConnectionRefusedError())

        ends: list[Any] = []
        endpoint = AuthClientEndpoint(Refused(), SECRET, Clock())  # type: ignore[arg-type]
        endpoint.connect(Speakers()).addErrback(ends.append)
        assert ends[0].check(ConnectionRefusedError)

    def test_cancel_before_the_connection_cancels_the_dial(self) -> None:
        cancelled: list[Any] = []
        factories: list[Any] = []

        class Never:
            def connect(self, factory: Any) -> Deferred[Any]:
                factories.append(factory)
                return Deferred(cancelled.append)

        ends: list[Any] = []
        dial = AuthClientEndpoint(Never(), SECRET, Clock()).connect(Speakers())  # type: ignore[arg-type]
        dial.addErrback(ends.append)
        late = factories[0].buildProtocol(IPv4Address("TCP", "192.0.2.7", 6_174))
        dial.cancel()
        assert len(cancelled) == 1
        assert ends[0].check(CancelledError)
        # Twisted may have a connection all the same.
        wire = Wire()
        late.makeConnection(wire)
        assert wire.aborted
        assert wire.value() == b""

    def test_cancel_during_authentication_aborts_the_connection(self) -> None:
        dialling, clock, ends, counted = Dialling(), Clock(), list[Any](), list[str]()
        dial = AuthClientEndpoint(dialling, Authenticator(SECRET, clock, counted.append), clock).connect(Speakers())
        dial.addErrback(ends.append)
        dial.cancel()
        assert dialling.wire.aborted
        assert ends[0].check(CancelledError)
        assert clock.getDelayedCalls() == []
        dialling.prover.connectionLost(Failure(ConnectionDone()))
        assert counted == []

    def test_failing_protocol_fails_the_dial(self) -> None:
        ours, theirs = End(True), End(False)

        def broken() -> None:
            raise ZeroDivisionError

        class Broken(Speaker):
            connectionMade = staticmethod(broken)

        ours.speakers.buildProtocol = lambda addr: Broken()  # type: ignore[method-assign,assignment]
        with pytest.raises(ZeroDivisionError):
            carry(ours, theirs)
        ours.prover.connectionLost(Failure(ConnectionDone()))
        assert ours.connected[0].check(ConnectionDone)


class Talking(NodeConnection):
    """Link protocol that records messages and signals changes."""

    def __init__(self) -> None:
        super().__init__(HydraCodec())
        self.messages: list[Any] = []
        self.enough: Deferred[None] = Deferred()
        self.ended: Deferred[str] = Deferred()
        self.wanted = 1

    def connection_ready(self) -> None:
        self.send([Call(1)])

    def messages_received(self, messages: Any) -> None:
        self.messages += messages
        if len(self.messages) >= self.wanted and not self.enough.called:
            self.enough.callback(None)

    def connection_ended(self, reason: str) -> None:
        if not self.ended.called:
            self.ended.callback(reason)


class TalkingFactory(Factory):
    noisy = False

    def __init__(self) -> None:
        self.links: list[Talking] = []
        self.built: Deferred[None] = Deferred()

    def buildProtocol(self, addr: Any) -> Talking:
        self.links.append(Talking())
        if not self.built.called:
            self.built.callback(None)
        return self.links[-1]


def when(counted: list[str]) -> tuple[Callable[[str], None], Deferred[None]]:
    """Return a counter, and a Deferred that fires at its first call."""
    first: Deferred[None] = Deferred()

    def count(reason: str) -> None:
        counted.append(reason)
        if not first.called:
            first.callback(None)

    return count, first.addTimeout(DEADLINE, reactor)


@pytest_twisted.ensureDeferred
async def test_real_links_authenticate_and_then_write_to_their_sockets() -> None:
    dialled, accepted = TalkingFactory(), TalkingFactory()
    server = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
    port: Any = await server.listen(auth_server_factory(accepted, SECRET, reactor))
    try:
        client = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        link: Any = await AuthClientEndpoint(client, SECRET, reactor).connect(dialled).addTimeout(DEADLINE, reactor)
        await accepted.built.addTimeout(DEADLINE, reactor)
        (other,) = accepted.links
        for one in (link, other):
            await one.enough.addTimeout(DEADLINE, reactor)
            assert one.messages == [Call(1)]
            assert isinstance(one.transport, tcp.Connection)
            one.enough, one.wanted = Deferred(), 5_001
        messages = [Call(number) for number in range(5_000)]
        link.send(messages)
        other.send(messages)
        for one in (link, other):
            await one.enough.addTimeout(DEADLINE, reactor)
            assert one.messages == [Call(1), *messages]
        link.close()
        assert await other.ended.addTimeout(DEADLINE, reactor) == "closed"
    finally:
        await maybeDeferred(port.stopListening)


@pytest_twisted.ensureDeferred
async def test_real_connections_with_a_wrong_secret_are_rejected(logged: list[LogEvent]) -> None:
    accepted, counted = TalkingFactory(), list[str]()
    count, found_out = when(counted)
    server = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
    port: Any = await server.listen(auth_server_factory(accepted, Authenticator(SECRET, reactor, count), reactor))
    try:
        client = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        with pytest.raises(AuthenticationFailed, match="closed the connection"):
            await (
                AuthClientEndpoint(client, b"another", reactor).connect(TalkingFactory()).addTimeout(DEADLINE, reactor)
            )
        await found_out
        assert counted == ["wrong-proof"]
        plain: Any = await client.connect(TalkingFactory())
        await plain.ended.addTimeout(DEADLINE, reactor)
        assert counted == ["wrong-proof", "not-auth"]
        assert accepted.links == []
    finally:
        await maybeDeferred(port.stopListening)
    assert len(complaints(logged)) == 3


@pytest_twisted.ensureDeferred
async def test_real_listener_without_a_secret_is_rejected() -> None:
    accepted, counted = TalkingFactory(), list[str]()
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(accepted)
    try:
        client = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        proving = Authenticator(SECRET, reactor, counted.append)
        with pytest.raises(AuthenticationFailed, match="no secret"):
            await AuthClientEndpoint(client, proving, reactor).connect(TalkingFactory()).addTimeout(DEADLINE, reactor)
        assert counted == ["not-auth"]
        await accepted.links[0].ended.addTimeout(DEADLINE, reactor)
        assert [type(message) for message in accepted.links[0].messages] in ([], [Malformed])
    finally:
        await maybeDeferred(port.stopListening)


OLD, NEW = b"the secret so far, long enough", b"its successor, as long at least"
STEPS = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
"""Secrets of a node in the course of a change: the first one is proved, the others are accepted."""


class TestChangeOfTheSecret:
    @pytest.mark.parametrize("symmetric", [False, True])
    @pytest.mark.parametrize("dialler", range(4))
    @pytest.mark.parametrize("acceptor", range(4))
    def test_nodes_one_step_apart_authenticate(self, dialler: int, acceptor: int, symmetric: bool) -> None:
        ends = End(True, symmetric=symmetric), End(symmetric, symmetric=symmetric)
        for end, step in zip(ends, (dialler, acceptor), strict=True):
            end.proving.set_secrets(*STEPS[step])
        both = End(True, ends[0].proving, symmetric=symmetric), End(symmetric, ends[1].proving, symmetric=symmetric)
        said = carry(*both)
        assert OLD not in said
        assert NEW not in said
        if abs(dialler - acceptor) <= 1:
            assert [len(end.speakers.built) for end in both] == [1, 1]
        elif abs(dialler - acceptor) == 3:
            assert [len(end.speakers.built) for end in both] == [0, 0]

    def test_secret_is_that_at_the_arrival_of_the_nonce(self) -> None:
        first, second = End(True, OLD), End(False, OLD)
        second.feed(first.wire.taken())
        first.proving.set_secrets(NEW, OLD)
        first.feed(second.wire.taken())
        carry(first, second)
        # The acceptor does not know the secret that the dialler proves since its nonce arrived.
        assert first.speakers.built == second.speakers.built == []
        assert second.wire.aborted

    def test_replaced_secret_is_no_longer_accepted(self) -> None:
        proving = Authenticator(OLD, Clock())
        proving.set_secrets(NEW, OLD)
        assert proving.secrets == (NEW, OLD)
        proving.set_secrets(NEW)
        dialler, acceptor = End(True, OLD), End(False, proving)
        carry(dialler, acceptor)
        assert acceptor.wire.aborted
        assert acceptor.speakers.built == []

    @pytest.mark.parametrize("secrets", [(b"",), (NEW, b"")])
    def test_empty_secret_is_refused(self, secrets: tuple[bytes, ...]) -> None:
        with pytest.raises(ConfigurationError, match="the secret is empty"):
            Authenticator(OLD, Clock()).set_secrets(*secrets)
