"""TCP publisher outside the cluster, against scripted nodes and a manual clock."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge, NotOrdered, PublishQueueFull
from fyrehose_twisted.interfaces import IPublisher
from fyrehose_twisted.parcels.client.tcp_publisher import (
    BACKOFF,
    HANDSHAKE_TIMEOUT,
    KEEPALIVE_INTERVAL,
    REPLY_TIMEOUT,
    ParcelsPublisher,
)
from fyrehose_twisted.parcels.wire.auth import dialler_proof, welcome_proof
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import (
    MAX_EVENT,
    Hello,
    Message,
    Parcel,
    ParcelType,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
)

A: Address = ("192.0.2.1", 7878)
B: Address = ("192.0.2.2", 7878)
SECRET = b"a secret that is long enough"


class Call:
    """The node's end of one connection."""

    def __init__(self, address: Address, factory: Any) -> None:
        self.address = address
        self.protocol: Any = factory.buildProtocol(None)
        self.transport = StringTransport()
        self.codec = ParcelCodec()
        self.decoder = self.codec.decoder()
        self.protocol.makeConnection(self.transport)

    def heard(self) -> list[Message]:
        """Return messages received from the publisher since the last call."""
        data = self.transport.value()
        self.transport.clear()
        return self.decoder.feed(data) if data else []

    def say(self, *messages: Message) -> None:
        self.protocol.dataReceived(b"".join(map(self.codec.encode, messages)))

    def welcome(self, secret: bytes | None = None) -> tuple[Hello, Welcome]:
        (hello,) = self.heard()
        assert isinstance(hello, Hello)
        welcome = Welcome("node", 1, 2, b"m" * 16, b"")
        welcome = welcome._replace(proof=welcome_proof(secret, hello, welcome))
        self.say(welcome)
        return hello, welcome

    def runs(self) -> list[PublisherRun]:
        return [message.run for message in self.heard() if isinstance(message, Publish)]

    def number(self, run: PublisherRun, first: int) -> None:
        self.say(PublishAck(run.publisher, run.epoch, run.first, ((first, len(run.events)),)))

    def refuse(self, run: PublisherRun, why: RefusalReason) -> None:
        self.say(PublishNack(run.publisher, run.epoch, run.first, why, "not now"))

    def drop(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class World:
    """Scripted nodes, some unresponsive, and one publisher."""

    def __init__(self, nodes: tuple[Address, ...] = (A, B), **options: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_000.0)
        self.calls: list[Call] = []
        self.down: set[Address] = set()
        self.deaf: set[Address] = set()
        self.publisher = ParcelsPublisher(
            nodes,
            reactor=self.clock,
            endpoint_for=lambda reactor, address: Line(self, address),
            rng=Random(1),
            **options,
        )

    def turn(self) -> None:
        self.clock.advance(0)

    @property
    def call(self) -> Call:
        return self.calls[-1]

    def ready(self, **options: Any) -> Call:
        """Connect the publisher without publishing."""
        self.publisher._flush_soon()
        self.turn()
        self.call.welcome(**options)
        self.call.heard()
        return self.call


class Line:
    def __init__(self, world: World, address: Address) -> None:
        self.world = world
        self.address = address

    def connect(self, factory: Any) -> Deferred[Any]:
        if self.address in self.world.down:
            return fail(ConnectionRefusedError())
        if self.address in self.world.deaf:
            return Deferred()
        self.world.calls.append(Call(self.address, factory))
        return succeed(self.world.call.protocol)


def result(deferred: Deferred[Any]) -> Any:
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "it has not fired"
    return found[0]


def error(deferred: Deferred[Any], kind: type[Exception]) -> Any:
    failure = result(deferred)
    assert isinstance(failure, Failure)
    assert isinstance(failure.value, kind)
    return failure.value


def test_tcp_publisher_implements_ipublisher() -> None:
    assert verifyObject(IPublisher, World().publisher)


def test_published_event_fires_with_its_sequence_number() -> None:
    world = World()
    published = world.publisher.publish(b"event")
    world.turn()
    hello, _ = world.call.welcome()
    assert (hello.cluster, hello.name, len(hello.nonce)) == ("default", "", 16)
    proof, publish = world.call.heard()
    assert proof == Proof(b"")
    assert isinstance(publish, Publish)
    assert publish.run.publisher == world.publisher.name
    assert (publish.run.first, list(publish.run.events)) == (1, [b"event"])
    assert world.publisher.pending == 1
    world.call.number(publish.run, 7)
    assert result(published) == 7
    assert world.publisher.pending == 0


def test_event_published_at_an_acknowledgement_is_sent_at_once() -> None:
    world = World()
    following: list[Deferred[int]] = []
    call = world.ready()
    world.publisher.publish(b"1").addCallback(lambda number: following.append(world.publisher.publish(b"2")))
    world.turn()
    (run,) = call.runs()
    call.number(run, 7)
    (run,) = call.runs()
    assert (run.first, run.events) == (2, (b"2",))
    world.turn()
    assert call.runs() == []
    call.number(run, 8)
    assert result(following[0]) == 8


def test_event_published_at_a_late_acknowledgement_dials_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    call = world.ready()
    world.publisher.publish(b"1").addCallback(lambda number: world.publisher.publish(b"2"))
    world.turn()
    (run,) = call.runs()
    monkeypatch.setattr(world.publisher, "_session", None)
    call.number(run, 7)
    world.turn()
    assert len(world.calls) == 2


def test_publisher_with_a_secret_answers_the_proof_of_the_node() -> None:
    world = World(secret=SECRET)
    world.publisher.publish(b"event")
    world.turn()
    hello, welcome = world.call.welcome(SECRET)
    assert world.call.heard()[0] == Proof(dialler_proof(SECRET, hello, welcome))


@pytest.mark.parametrize(("ours", "theirs"), [(SECRET, None), (SECRET, SECRET + b"!"), (None, SECRET)])
def test_node_with_another_secret_receives_no_events(ours: bytes | None, theirs: bytes | None) -> None:
    world = World((A,), secret=ours)
    published = world.publisher.publish(b"event")
    world.turn()
    call = world.call
    call.welcome(theirs)
    assert call.heard() == []
    assert call.transport.disconnecting
    refused = error(published, NotOrdered)
    assert (refused.why, refused.unknown) == ("wrong-secret", False)


def test_events_published_in_one_reactor_turn_share_a_run() -> None:
    world = World()
    call = world.ready()
    one, many = world.publisher.publish(b"a"), world.publisher.publish_many([b"b", b"c"])
    assert call.runs() == []
    world.turn()
    (run,) = call.runs()
    assert list(run.events) == [b"a", b"b", b"c"]
    call.say(PublishAck(run.publisher, run.epoch, 1, ((5, 2), (9, 1))))
    assert result(one) == 5
    assert result(many) == [6, 9]


def test_large_batch_is_split_into_runs_that_fit_a_parcel() -> None:
    world = World()
    call = world.ready()
    world.publisher.publish_many([b"x" * 1_000] * 100)
    world.turn()
    runs = call.runs()
    assert len(runs) == 3
    assert sum(len(run.events) for run in runs) == 100


def test_unacknowledged_run_is_resent_to_the_next_node() -> None:
    world = World()
    call = world.ready()
    first = world.publisher.publish(b"a")
    world.turn()
    second = world.publisher.publish(b"b")
    world.turn()
    runs = call.runs()
    call.number(runs[0], 1)
    call.drop()
    world.turn()
    assert world.call.address == B
    world.call.welcome()
    (again,) = world.call.runs()
    assert again == runs[1]
    world.call.number(again, 2)
    assert (result(first), result(second)) == (1, 2)


def test_refused_connection_fails_over_to_the_next_node() -> None:
    world = World()
    world.down.add(A)
    world.publisher.publish(b"a")
    world.turn()
    world.turn()
    assert world.call.address == B


def test_publish_times_out_when_every_node_refuses_connections() -> None:
    world = World(timeout=10.0)
    world.down |= {A, B}
    published = world.publisher.publish(b"a")
    world.clock.pump([0.0] * 20)
    assert world.clock.seconds() == 1_000.0
    world.clock.pump([0.5] * 19)
    assert not published.called
    world.clock.pump([0.5] * 3)
    gone = error(published, NotOrdered)
    assert (gone.why, gone.unknown) == ("not-connected", False)
    assert "refused" in str(gone)
    world.clock.pump([1.0] * int(2 * BACKOFF[1]))
    world.down.clear()
    later = world.publisher.publish(b"b")
    while not world.calls:
        world.clock.advance(0.1)
    world.call.welcome()
    (run,) = world.call.runs()
    assert list(run.events) == [b"b"]
    world.call.number(run, 3)
    assert result(later) == 3


def test_node_without_a_welcome_fails_over_after_the_handshake_timeout() -> None:
    world = World()
    world.publisher.publish(b"a")
    world.turn()
    assert world.call.address == A
    world.clock.pump([1.0] * int(HANDSHAKE_TIMEOUT + 1))
    assert world.call.address == B


def test_hanging_dial_fails_over_after_the_handshake_timeout() -> None:
    world = World()
    world.deaf.add(A)
    world.publisher.publish(b"a")
    world.turn()
    world.clock.pump([1.0] * int(HANDSHAKE_TIMEOUT + 1))
    assert world.call.address == B


def test_node_warning_is_emitted_once_per_change() -> None:
    told: list[tuple[Address, str | None]] = []
    world = World((A,), on_node_warning=lambda node, trouble: told.append((node, trouble)))
    world.down.add(A)
    published = world.publisher.publish(b"event")
    world.clock.pump([0.1] * 100)
    assert told == [(A, "refused")]
    world.down.clear()
    world.clock.pump([0.1] * 20)
    assert len(world.calls) == 1
    world.clock.advance(HANDSHAKE_TIMEOUT)
    assert told == [(A, "refused"), (A, "no answer")]
    world.clock.pump([0.1] * 20)
    world.call.welcome()
    _, publish = world.call.heard()
    assert len(told) == 2
    assert isinstance(publish, Publish)
    world.call.refuse(publish.run, RefusalReason.NO_QUORUM)
    assert told[2:] == [(A, "not now")]
    world.clock.pump([0.1] * 20)
    world.call.welcome()
    (again,) = world.call.runs()
    world.call.number(again, 1)
    assert result(published) == 1
    assert told[3:] == [(A, None)]
    # No event is pending, so there is nothing to warn of.
    world.call.drop()
    assert len(told) == 4


def test_node_warnings_are_tracked_per_node() -> None:
    told: list[tuple[Address, str | None]] = []
    world = World(on_node_warning=lambda node, trouble: told.append((node, trouble)))
    world.down.add(A)
    world.deaf.add(B)
    world.publisher.publish(b"event")
    world.turn()
    world.clock.pump([0.1] * 150)
    assert told == [(A, "refused"), (B, "no answer")]


def test_silent_node_is_probed_and_then_replaced() -> None:
    world = World()
    call = world.ready()
    world.publisher.publish(b"a")
    world.turn()
    call.runs()
    world.clock.pump([1.0] * int(REPLY_TIMEOUT + 1))
    assert call.heard() == [Parcel(False, ParcelType.SEQ_REQ, 0)]
    world.clock.pump([1.0] * int(REPLY_TIMEOUT))
    assert world.call.address == B


def test_node_that_answers_probes_is_kept() -> None:
    world = World()
    call = world.ready()
    world.publisher.publish(b"a")
    for _ in range(25):
        world.clock.advance(1.0)
        if any(isinstance(message, Parcel) for message in call.heard()):
            call.say(Parcel(True, ParcelType.SEQ_RES, 1, 0))
    assert world.calls == [call]


def test_idle_connection_sends_keepalives() -> None:
    world = World()
    call = world.ready()
    published = world.publisher.publish(b"a")
    world.turn()
    call.number(call.runs()[0], 1)
    assert result(published) == 1
    world.clock.pump([1.0] * int(KEEPALIVE_INTERVAL + 1))
    assert call.heard() == [Parcel(False, ParcelType.SEQ_REQ, 0)]


@pytest.mark.parametrize("why", [RefusalReason.NO_QUORUM, RefusalReason.SHUTTING_DOWN, RefusalReason.TOO_MANY])
def test_temporary_refusal_fails_over_to_the_next_node(why: RefusalReason) -> None:
    world = World()
    call = world.ready()
    published = world.publisher.publish(b"a")
    world.turn()
    (run,) = call.runs()
    call.refuse(run, why)
    world.turn()
    assert world.call.address == B
    world.call.welcome()
    assert world.call.runs() == [run]
    world.call.number(run, 1)
    assert result(published) == 1


def test_repeated_temporary_refusal_until_the_timeout_is_uncertain() -> None:
    world = World((A,), timeout=3.0)
    published = world.publisher.publish(b"a")
    for _ in range(12):
        world.clock.advance(0.5)
        if world.calls and not world.call.transport.disconnecting:
            call = world.call
            if any(isinstance(message, Hello) for message in call.heard()):
                hello = call.protocol._hello
                call.say(Welcome("node", 1, 2, b"m" * 16, welcome_proof(None, hello, Welcome("", 0, 0, b"", b""))))
            for run in call.runs():
                call.refuse(run, RefusalReason.NO_QUORUM)
    late = error(published, NotOrdered)
    assert (late.why, late.unknown) == ("no-quorum", True)
    assert world.publisher.pending == 0


def test_forgotten_publisher_continues_in_a_new_epoch() -> None:
    world = World()
    call = world.ready()
    published = world.publisher.publish(b"a")
    world.turn()
    (run,) = call.runs()
    call.refuse(run, RefusalReason.FORGOTTEN)
    gone = error(published, NotOrdered)
    assert (gone.why, gone.unknown) == ("forgotten", True)
    world.publisher.publish(b"b")
    world.turn()
    (new,) = call.runs()
    assert new.epoch > run.epoch
    assert new.first == 1


def test_publish_fails_at_once_when_every_node_is_in_another_cluster() -> None:
    world = World(cluster="other")
    published = world.publisher.publish(b"a")
    world.turn()
    world.call.say(Refused(RefusalReason.WRONG_CLUSTER, "this is cluster default"))
    world.turn()
    assert not published.called
    assert world.call.address == B
    world.call.say(Refused(RefusalReason.WRONG_CLUSTER, "this is cluster default"))
    gone = error(published, NotOrdered)
    assert (gone.why, str(gone), gone.unknown) == ("wrong-cluster", "this is cluster default", False)


def test_tcp_publisher_refuses_an_oversize_event() -> None:
    world = World()
    assert error(world.publisher.publish(b"x" * (MAX_EVENT + 1)), MessageTooLarge).limit == MAX_EVENT


def test_tcp_publisher_queue_is_bounded_in_bytes() -> None:
    world = World(queue_bytes=100_000)
    world.down |= {A, B}
    world.publisher.publish(b"x" * 40_000)
    world.publisher.publish(b"x" * 40_000)
    error(world.publisher.publish(b"x" * 40_000), PublishQueueFull)


def test_timed_out_event_leaves_the_queue() -> None:
    world = World(timeout=3.0)
    world.down |= {A, B}
    published = world.publisher.publish(b"stale")
    world.clock.pump([1.0] * 5)
    error(published, NotOrdered)
    assert world.publisher.pending == 0


def test_close_fails_pending_events_and_disconnects() -> None:
    world = World()
    call = world.ready()
    published = world.publisher.publish(b"a")
    world.turn()
    closed = world.publisher.close()
    gone = error(published, NotOrdered)
    assert (gone.why, gone.unknown) == ("closed", True)
    assert call.transport.disconnecting
    assert not closed.called
    call.drop()
    assert closed.called
    assert world.publisher.close().called
    assert error(world.publisher.publish(b"b"), NotOrdered).why == "closed"
    assert [call for call in world.clock.getDelayedCalls() if call.active()] == []


def test_close_aborts_the_connection_after_a_timeout() -> None:
    world = World()
    call = world.ready()
    world.publisher.close()
    world.clock.advance(HANDSHAKE_TIMEOUT)
    assert call.transport.disconnected


def test_close_cancels_a_dial_in_progress() -> None:
    world = World()
    world.deaf.add(A)
    published = world.publisher.publish(b"a")
    world.turn()
    assert world.publisher.close().called
    error(published, NotOrdered)
    assert [call for call in world.clock.getDelayedCalls() if call.active()] == []


@pytest.mark.parametrize(
    "options", [{"nodes": ()}, {"cluster": ""}, {"name": "a\nb"}, {"name": "x" * 161}, {"secret": b"short"}]
)
def test_tcp_publisher_refuses_an_invalid_configuration(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        World(**options)


def test_acknowledgement_of_another_run_is_ignored() -> None:
    world = World()
    call = world.ready()
    published = world.publisher.publish(b"a")
    world.turn()
    (run,) = call.runs()
    call.say(PublishAck("somebody else", run.epoch, run.first, ((1, 1),)))
    call.say(PublishAck(run.publisher, run.epoch - 1, run.first, ((2, 1),)))
    call.say(PublishAck(run.publisher, run.epoch, run.first + 1, ((3, 1),)))
    assert not published.called
    call.number(run, 4)
    assert result(published) == 4


def test_malformed_bytes_from_a_node_fail_over_to_the_next_node() -> None:
    world = World()
    world.ready()
    world.publisher.publish(b"a")
    world.turn()
    world.call.protocol.dataReceived(b"\x03abc")
    world.turn()
    assert world.call.address == B


def test_exception_in_the_session_check_does_not_stop_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World((A,), timeout=3.0)
    world.deaf.add(A)
    published = world.publisher.publish(b"one")

    def fail_once(now: float) -> None:
        raise TypeError("a bug")

    with monkeypatch.context() as patch, capturedLogs() as logged:
        patch.setattr(world.publisher, "_check_session", fail_once)
        world.clock.advance(1.0)
    assert [event["what"] for event in logged if "log_failure" in event] == ["the watch of a publisher"]
    world.clock.pump([1.0] * 2)
    assert "no number within 3 s" in str(error(published, NotOrdered))
    world.publisher.close()
