"""Twisted protocols on a network of fake ports with a fake clock, and on real sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import MessageLengthError
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst, Datagram, Send
from fyrehose_twisted.errors import (
    MessageTooLarge,
    NotConnected,
    PublishQueueFull,
    PublishTimeout,
    SequenceExhausted,
    SequenceRegressed,
    StateFileError,
    StreamAlreadyNumbered,
)
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.node.backbone.sequencer import SequenceCheckpoint, VolatileSequenceStore
from fyrehose_twisted.fyrehose.node.client.publishing.linger import QUIET_TIME
from fyrehose_twisted.fyrehose.node.client.stream_head import CONTRADICTIONS
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.wire.codec import decode, encode, encode_deliver, encode_push
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    PacketType,
)
from fyrehose_twisted.interfaces import IDatagramSender
from fyrehose_twisted.net.udp import listen

reactor: Any = installed_reactor

BACKBONE: Address = ("192.0.2.1", 2323)
OTHER_HOST: Address = ("192.0.2.99", 99)


@implementer(IDatagramSender)
class Port:
    """A port that stops asynchronously and, like Twisted's, must not be stopped twice."""

    def __init__(self, network: Network, address: Address) -> None:
        self.network = network
        self.address = address
        self.stopping = False

    def getHost(self) -> Any:
        return SimpleNamespace(host=self.address[0], port=self.address[1])

    def send(self, datagrams: Sequence[Datagram | Burst], peers: Sequence[Address]) -> None:
        sent = [bytes(datagram) for datagram in Send(datagrams, peers).iter_datagrams()]
        for peer in peers:
            self.network.under_way += [(datagram, self.address, peer) for datagram in sent]

    def stopListening(self) -> Deferred[None]:
        assert not self.stopping
        self.stopping = True
        stopped: Deferred[None] = Deferred()

        def stop() -> None:
            self.network.protocols.pop(self.address).doStop()
            stopped.callback(None)

        self.network.clock.callLater(0, stop)
        return stopped


class Network:
    """A network that delivers at once and in order, except for losses."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_000.0)
        self.protocols: dict[Address, Any] = {}
        self.under_way: deque[tuple[bytes, Address, Address]] = deque()
        self.sent: list[tuple[bytes, Address, Address]] = []
        self.loses: Callable[[bytes, Address, Address], bool] = lambda datagram, source, target: False

    def attach(self, protocol: Any, address: Address) -> Any:
        protocol.reactor = self.clock
        self.protocols[address] = protocol
        protocol.makeConnection(Port(self, address))
        self.settle()
        return protocol

    def inject(self, datagram: bytes, source: Address, target: Address) -> None:
        self.under_way.append((datagram, source, target))
        self.settle()

    def settle(self) -> None:
        while self.under_way:
            datagram, source, target = self.under_way.popleft()
            self.sent.append((datagram, source, target))
            if target in self.protocols and not self.loses(datagram, source, target):
                self.protocols[target].batch_received(Batch.pack([(datagram, source)]))

    def advance(self, seconds: float) -> None:
        """Advance the clock in steps shorter than every timer."""
        for _ in range(max(1, round(seconds / 0.05))):
            self.clock.advance(0.05)
            self.settle()


class Backbone(BackboneProtocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"settle_time": 0, "reactor": object(), **options})
        self.told: list[tuple[str, Address]] = []

    def client_joined(self, address: Address) -> None:
        self.told.append(("joined", address))

    def client_expired(self, address: Address) -> None:
        self.told.append(("expired", address))


class Recording(PublisherProtocol):
    def __init__(self, config: ClientConfig | None = None) -> None:
        super().__init__(config, reactor=object())
        self.backbone = BACKBONE
        self.told: list[str] = []
        self.found: list[tuple[int, bytes]] = []
        self.lost: list[tuple[int, int]] = []
        self.round_trips: list[float] = []
        self.exception_to_raise: Exception | None = None

    def backbone_connected(self) -> None:
        self.told.append("connected")

    def backbone_disconnected(self) -> None:
        self.told.append("disconnected")

    def acknowledged(self, round_trip: float) -> None:
        self.round_trips.append(round_trip)

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.found += [(message.sequence, message.data) for message in messages]
        if self.exception_to_raise is not None:
            exception_to_raise, self.exception_to_raise = self.exception_to_raise, None
            raise exception_to_raise

    def messages_lost(self, first: int, last: int) -> None:
        self.lost.append((first, last))


def results(*deferreds: Deferred[Any]) -> list[Any]:
    """Return the results of Deferreds, exceptions for failures."""
    found: list[Any] = []
    for deferred in deferreds:
        deferred.addCallbacks(found.append, lambda failure: found.append(failure.value))
    return found


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def backbone(network: Network) -> Backbone:
    attached: Backbone = network.attach(Backbone(), BACKBONE)
    return attached


@pytest.fixture
def make(network: Network) -> Callable[..., Recording]:
    """Return a function that attaches a client to the network."""

    def made(number: int = 2, **config: Any) -> Recording:
        client: Recording = network.attach(Recording(ClientConfig(**config)), (f"192.0.2.{number}", 7))
        network.advance(0.05)
        return client

    return made


Make = Callable[..., Recording]


@pytest.mark.usefixtures("backbone")
def test_published_messages_return_and_reach_subscribers(network: Network, make: Make) -> None:
    publisher, subscriber = make(2), make(3)
    published = results(*(publisher.publish(data) for data in (b"a", b"", b"c")))
    assert publisher.pending == 3
    network.advance(0.1)
    assert published == [1, 2, 3]
    assert publisher.pending == 0
    assert publisher.found == subscriber.found == [(1, b"a"), (2, b""), (3, b"c")]


@pytest.mark.usefixtures("backbone")
def test_publish_many_publishes_all_messages_in_order(network: Network, make: Make) -> None:
    publisher, other = make(2), make(3)
    first = results(publisher.publish_many([b"a", b"b", b"c"]))
    between = results(other.publish(b"x"))
    second = results(publisher.publish_many([b"d"]), publisher.publish_many([]))
    assert (publisher.pending, second) == (4, [[]])
    network.advance(0.1)
    (numbers,) = first
    assert numbers == sorted(numbers)
    given = {**dict(zip(numbers, (b"a", b"b", b"c"), strict=True)), between[0]: b"x", second[1][0]: b"d"}
    assert publisher.found == sorted(given.items())
    assert publisher.pending == 0


@pytest.mark.usefixtures("backbone")
def test_publish_many_publishes_no_message_if_one_does_not_fit(network: Network, make: Make) -> None:
    publisher = make(outbox=OutboxConfig(queue_messages=2))
    with pytest.raises(PublishQueueFull):
        publisher.publish_many([b"1", b"2", b"3"])
    with pytest.raises(MessageTooLarge):
        publisher.publish_many([b"1", bytes(65_500)])
    assert publisher.pending == 0
    network.advance(1)
    assert publisher.found == []


def loses_b(datagram: bytes, source: Address, target: Address) -> bool:
    """Return whether this is a PUSH of ``b"b"``. Ids and tokens are random, and contain any byte now and then."""
    return datagram[0] & 0x0F == PacketType.PUSH and datagram.endswith(b"b")


@pytest.mark.usefixtures("backbone")
def test_publish_many_fails_if_one_message_is_not_published(network: Network, make: Make) -> None:
    publisher = make(outbox=OutboxConfig(timeout=1.0))
    network.loses = loses_b
    failed = results(publisher.publish_many([b"a", b"b", b"b"]))
    network.advance(2)
    (failure,) = failed
    assert isinstance(failure, PublishTimeout)
    assert publisher.pending == 0
    stopped = results(publisher.publish_many([b"b", b"b"]))
    publisher.close()
    network.advance(0.1)
    (failure,) = stopped
    assert isinstance(failure, NotConnected)


@pytest.mark.usefixtures("backbone")
def test_publish_each_reports_the_outcome_of_each_message(network: Network, make: Make) -> None:
    publisher = make(outbox=OutboxConfig(timeout=1.0))
    network.loses = loses_b
    results(publisher.publish(b"before"))
    outcomes: list[tuple[bytes, int | type[Exception]]] = []
    messages = b"a", b"b", b"c"

    def failed(index: int, error: Exception) -> None:
        outcomes.append((messages[index], type(error)))

    for batch in (messages, ()):
        publisher.publish_each(batch, lambda index, sequence: outcomes.append((messages[index], sequence)), failed)
    network.advance(2)
    assert publisher.pending == 0
    numbers = {data: number for number, data in publisher.found}
    assert outcomes == [(b"a", numbers[b"a"]), (b"c", numbers[b"c"]), (b"b", PublishTimeout)]


@pytest.mark.usefixtures("backbone")
def test_messages_published_before_the_backbone_answers_are_queued(network: Network) -> None:
    network.loses = lambda datagram, source, target: True
    publisher = network.attach(Recording(), ("192.0.2.2", 7))
    published = results(publisher.publish(b"early"))
    network.advance(1)
    assert published == []
    network.loses = lambda datagram, source, target: False
    network.advance(1)
    assert published == [1]


@pytest.mark.usefixtures("backbone")
def test_publish_raises_for_each_reason_of_refusal(network: Network, make: Make) -> None:
    with pytest.raises(NotConnected, match="not running; join"):
        Recording().publish(b"too early")
    publisher = make(outbox=OutboxConfig(queue_messages=2))
    with pytest.raises(MessageTooLarge, match="65,479 bytes is over the limit of 65,478"):
        publisher.publish(bytes(65_479))
    network.loses = lambda datagram, source, target: True
    two = results(publisher.publish(b"1"), publisher.publish(b"2"))
    with pytest.raises(PublishQueueFull):
        publisher.publish(b"3")
    assert publisher.pending == 2
    leaving = publisher.leave()
    network.advance(0.1)
    assert leaving.called
    assert [type(error) for error in two] == [NotConnected, NotConnected]
    with pytest.raises(NotConnected):
        publisher.publish(b"too late")


@pytest.mark.usefixtures("backbone")
def test_publish_fails_with_a_timeout_without_an_ack(network: Network, make: Make) -> None:
    publisher = make(outbox=OutboxConfig(timeout=3.0))
    network.loses = lambda datagram, source, target: source == BACKBONE and datagram[:1] == b"\1"
    published = results(publisher.publish(b"1"), publisher.publish(b"2"))
    network.advance(2.9)
    assert published == []
    network.advance(0.2)
    assert [str(error) for error in published] == ["the backbone did not confirm the message within 3 s"] * 2
    assert {type(error) for error in published} == {PublishTimeout}
    assert publisher.pending == 0
    network.loses = lambda datagram, source, target: False
    again = results(publisher.publish(b"3"))
    network.advance(0.5)
    assert isinstance(again[0], int)


@pytest.mark.usefixtures("backbone")
def test_when_room_fires_once_the_queue_is_half_empty(network: Network, make: Make) -> None:
    publisher = make(outbox=OutboxConfig(queue_messages=4))
    assert results(publisher.when_room()) == [None]
    network.loses = lambda datagram, source, target: True
    published = results(publisher.publish(b"1"))
    assert results(publisher.when_room()) == [None]
    published += results(publisher.publish(b"2"))
    rooms = results(publisher.when_room(), publisher.when_room())
    network.advance(0.1)
    assert rooms == []
    network.loses = lambda datagram, source, target: False
    network.advance(2)
    assert rooms == [None, None]


@pytest.mark.usefixtures("backbone")
def test_stopping_a_publisher_fails_pending_messages_and_waits(network: Network, make: Make) -> None:
    publisher = make(outbox=OutboxConfig(queue_messages=4))
    stopped = results(publisher.stopped)
    network.loses = lambda datagram, source, target: True
    waiting = results(publisher.publish(b"1"), publisher.publish(b"2"), publisher.when_room())
    publisher.leave()
    network.advance(0.05)
    assert [type(error) for error in waiting] == [NotConnected] * 3
    assert [str(error) for error in waiting] == ["the publisher stopped before the message was confirmed"] * 3
    assert stopped == [None]
    assert [type(error) for error in results(publisher.when_room())] == [NotConnected]


@pytest.mark.usefixtures("backbone")
def test_a_paused_subscriber_receives_messages_after_resume(network: Network, make: Make) -> None:
    publisher, subscriber = make(2), make(3)
    subscriber.pauseProducing()
    published = results(*(publisher.publish(b"%d" % number) for number in range(3)))
    network.advance(0.2)
    assert published == [1, 2, 3]
    assert subscriber.found == []
    subscriber.resumeProducing()
    assert subscriber.found == [(1, b"0"), (2, b"1"), (3, b"2")]
    subscriber.stopProducing()
    network.advance(0.05)
    assert results(subscriber.stopped) == [None]


def test_a_resumed_subscriber_requests_messages_that_exceeded_its_buffer(
    network: Network, backbone: Backbone, make: Make
) -> None:
    publisher, subscriber = make(2), make(3, buffer_bytes=30_000)
    publisher.publish(b"first")
    network.advance(0.1)
    subscriber.pauseProducing()
    published = results(*(publisher.publish(bytes(1_000)) for _ in range(100)))
    network.advance(3)
    assert len(published) == 100
    assert subscriber.found == [(1, b"first")]
    subscriber.resumeProducing()
    network.advance(5)
    assert [sequence for sequence, _ in subscriber.found] == list(range(1, 102))
    assert subscriber.lost == []


def test_pausing_a_protocol_before_it_runs_has_no_effect() -> None:
    subscriber = Recording()
    subscriber.pauseProducing()
    subscriber.resumeProducing()
    subscriber.stopProducing()
    assert results(subscriber.leave()) == [None]


def test_a_client_reports_disconnect_and_reconnect_of_the_backbone(
    network: Network, backbone: Backbone, make: Make
) -> None:
    client = make()
    assert client.told == ["connected"]
    assert results(client.connected_first) == [None]
    network.loses = lambda datagram, source, target: target == BACKBONE
    with capturedLogs() as logged:
        network.advance(6)
    assert client.told == ["connected", "disconnected"]
    assert [event["log_level"] for event in logged if "has not answered" in event["log_format"]] == [LogLevel.warn]
    assert backbone.told == [("joined", ("192.0.2.2", 7)), ("expired", ("192.0.2.2", 7))]
    network.loses = lambda datagram, source, target: False
    network.advance(2)
    assert client.told == ["connected", "disconnected", "connected"]
    assert backbone.told[2:] == [("joined", ("192.0.2.2", 7))]
    assert client.round_trips
    assert set(client.round_trips) == {0.0}


def test_leave_sends_one_goodbye_and_may_be_called_twice(network: Network, backbone: Backbone, make: Make) -> None:
    client = make()
    first, second = client.leave(), client.leave()
    network.advance(0.05)
    assert first.called
    assert second.called
    packets = [decode(datagram) for datagram, source, _ in network.sent if source != BACKBONE]
    assert [packet.flags for packet in packets if isinstance(packet, Keepalive)] == [Flags.EXTENSIONS, 3]
    assert results(client.stopped) == [None]
    assert results(client.leave()) == [None]


@pytest.mark.usefixtures("backbone")
def test_exceptions_of_a_client_application_are_logged_and_survived(network: Network, make: Make) -> None:
    publisher, subscriber = make(2), make(3)
    subscriber.exception_to_raise = ValueError("a mistake")
    with capturedLogs() as logged:
        published = results(publisher.publish(b"1"), publisher.publish(b"2"))
        network.advance(0.1)
    assert published == [1, 2]
    assert subscriber.found == [(1, b"1"), (2, b"2")]
    assert [str(event["log_failure"].value) for event in logged if "log_failure" in event] == ["a mistake"]


def test_exceptions_of_a_backbone_application_are_logged_and_survived(network: Network, make: Make) -> None:
    class RaisingBackbone(Backbone):
        def client_joined(self, address: Address) -> None:
            raise ValueError("a mistake")

    network.attach(RaisingBackbone(), BACKBONE)
    with capturedLogs() as logged:
        client = make()
        published = results(client.publish(b"1"))
        network.advance(0.1)
    assert published == [1]
    assert [str(event["log_failure"].value) for event in logged if "log_failure" in event] == ["a mistake"]


def test_drops_are_logged_once_a_minute_per_source(network: Network, backbone: Backbone) -> None:
    with capturedLogs() as logged:
        for _ in range(3):
            network.inject(b"\xff", OTHER_HOST, BACKBONE)
        network.advance(61)
        network.inject(b"\xff", OTHER_HOST, BACKBONE)
    warnings = [event for event in logged if event["log_level"] is LogLevel.warn]
    assert [event["detail"] for event in warnings] == ["type byte 0xff is not one of the protocol's"] * 2
    assert backbone.node is not None
    assert backbone.node.drops.counts == {"unknown_type": 4}


class FailingSequenceStore(VolatileSequenceStore):
    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        if checkpoint.last:
            raise StateFileError("no space left")


def test_a_backbone_sends_nothing_that_it_cannot_persist(network: Network) -> None:
    backbone = network.attach(Backbone(state=FailingSequenceStore()), BACKBONE)
    network.inject(encode(Keepalive()), OTHER_HOST, BACKBONE)
    network.sent.clear()
    with capturedLogs() as logged:
        network.inject(encode_push(b"data"), OTHER_HOST, BACKBONE)
        network.inject(encode_push(b"more"), OTHER_HOST, BACKBONE)
    assert [target for _, _, target in network.sent] == [BACKBONE, BACKBONE]
    stopped = results(backbone.stopped)
    network.advance(0.05)
    assert [type(error) for error in stopped] == [StateFileError]
    assert [event["log_level"] for event in logged] == [LogLevel.critical]
    assert BACKBONE not in network.protocols


def test_the_stopped_deferred_reports_why_a_backbone_stopped(network: Network) -> None:
    backbone = network.attach(Backbone(state=VolatileSequenceStore(MAX_SEQUENCE - 1)), BACKBONE)
    stopped = results(backbone.stopped)
    network.inject(encode(Keepalive()), OTHER_HOST, BACKBONE)
    network.inject(encode_push(b"last"), OTHER_HOST, BACKBONE)
    network.inject(encode_push(b"one too many"), OTHER_HOST, BACKBONE)
    network.advance(0.05)
    assert [decode(datagram) for datagram, _, target in network.sent if target == OTHER_HOST] == [
        KeepaliveAck(bytes(16)),
        Deliver(MAX_SEQUENCE, b"last"),
    ]
    assert [type(error) for error in stopped] == [SequenceExhausted]


def test_a_backbone_without_state_refuses_to_number_a_known_stream(network: Network, make: Make) -> None:
    network.attach(Backbone(), BACKBONE)
    client = make()
    client.publish(b"1")
    network.advance(0.1)
    network.protocols.pop(BACKBONE).driver.stop()
    fresh_store = VolatileSequenceStore()
    fresh_store.fresh = True
    backbone = network.attach(Backbone(state=fresh_store, settle_time=2.0), BACKBONE)
    stopped = results(backbone.stopped)
    network.advance(2.1)
    assert [type(error) for error in stopped] == [StreamAlreadyNumbered]
    assert "client 192.0.2.2:7 holds message 1 of this stream" in str(stopped[0])


def test_repeated_sequence_numbers_stop_a_client(network: Network, backbone: Backbone, make: Make) -> None:
    client = make()
    for number in range(12):
        client.publish(b"%d" % number)
        network.advance(1)
    stopped = results(client.stopped)
    network.loses = lambda datagram, source, target: source == BACKBONE and datagram.endswith(b"waiting")
    waiting = results(client.publish(b"waiting"))
    with capturedLogs() as logged:
        for number in range(1, CONTRADICTIONS + 1):
            network.inject(encode_deliver(number, b"something else"), BACKBONE, ("192.0.2.2", 7))
        network.advance(0.05)
    assert [type(error) for error in stopped] == [SequenceRegressed]
    assert str(waiting[0]).startswith(
        "the publisher stopped before the message was confirmed: backbone 192.0.2.1:2323 sent"
    )
    assert [event["log_level"] for event in logged] == [LogLevel.critical]


def test_protocols_keep_their_config_and_have_no_node_before_start() -> None:
    config = replace(BackboneConfig(), max_clients=1)
    assert BackboneProtocol(config, reactor=Clock()).config is config
    assert SubscriberProtocol(reactor=Clock()).node is None
    assert BackboneProtocol(reactor=Clock()).node is None


@pytest.mark.parametrize(("options", "arrives"), [({}, False), ({"maxPacketSize": 65_536}, True)])
@pytest_twisted.ensureDeferred
async def test_a_client_on_a_plain_twisted_port_drops_truncated_datagrams(
    options: dict[str, int], arrives: bool
) -> None:
    """Twisted truncates datagrams over 8,192 bytes by default; the client drops them as truncated."""
    backbone = BackboneProtocol(settle_time=0)
    backbone_port = listen(reactor, 0, backbone)
    client = PublisherProtocol(ClientConfig(keepalive_interval=0.1, outbox=OutboxConfig(raw=True, timeout=120)))
    client.backbone = ("127.0.0.1", backbone_port.getHost().port)
    reactor.listenUDP(0, client, "127.0.0.1", **options)
    found: dict[int, bytes] = {}
    client.messages_received = lambda messages: found.update((m.sequence, m.data) for m in messages)  # type: ignore[method-assign]
    try:
        await client.connected_first.addTimeout(120, reactor)
        assert await client.publish(b"before") == 1
        sizes = [8_182] if not arrives else [8_182, 8_183, 8_184, 20_000, MAX_DELIVERABLE]
        numbers = await gatherResults([client.publish(b"x" * size) for size in sizes])
        # A Deferred fires before its message is delivered, but before the next ack.
        await client.publish(b"after")
        assert [len(found[number]) for number in numbers] == sizes
        if not arrives:
            assert client.node is not None
            too_long = results(client.publish(b"y" * 8_183), client.publish(b"z" * 8_184))
            await client.publish(b"after them")
            assert client.node.drops.counts["truncated"] >= 2
            assert too_long == []
    finally:
        await client.leave()
        await backbone_port.stopListening()


def test_every_close_deferred_fires_once_the_port_is_closed(network: Network, make: Make) -> None:
    client = make()
    first, second = client.close(), client.close()
    assert (first.called, second.called) == (False, False)
    network.advance(0.05)
    assert (first.called, second.called) == (True, True)


def test_a_failed_backbone_sends_nothing_until_its_port_is_closed(network: Network) -> None:
    backbone = network.attach(Backbone(state=VolatileSequenceStore(MAX_SEQUENCE - 1)), BACKBONE)
    results(backbone.stopped)
    network.inject(encode_push(b"last"), OTHER_HOST, BACKBONE)
    network.inject(encode(Keepalive()), OTHER_HOST, BACKBONE)
    assert [target for _, _, target in network.sent if target == OTHER_HOST] == []


@pytest.mark.parametrize("error", [OSError("no route"), MessageLengthError("too long")])
def test_a_send_error_of_a_plain_port_does_not_block_other_peers(error: Exception) -> None:
    written: list[Address] = []

    class Plain:
        def write(self, datagram: bytes, peer: Address) -> None:
            if peer == OTHER_HOST:
                raise error
            written.append(peer)

    protocol = Recording()
    protocol.transport = Plain()
    protocol._send(Send([b"x"], (OTHER_HOST, BACKBONE)))
    assert written == [BACKBONE]


def test_an_overdue_keepalive_does_not_follow_the_goodbye(network: Network, backbone: Backbone, make: Make) -> None:
    client = make()
    network.clock.rightNow += 1.5  # A busy reactor makes the next KEEPALIVE overdue.
    client.leave()
    network.settle()
    network.advance(0.05)
    assert backbone.node is not None
    assert [served.flags for served in backbone.node.clients] == [Flags.NOSUBSCRIBE | Flags.NOJOURNAL]


def test_messages_before_a_sequence_regression_are_delivered(network: Network, make: Make) -> None:
    received_together, received_separately = make(2, start=1), make(3, start=1)
    stopped = results(received_together.stopped, received_separately.stopped)
    messages = [encode(Deliver(number, b"%d" % number)) for number in range(1, 7)]
    again = [encode(Deliver(number, b"anew")) for number in range(1, CONTRADICTIONS + 1)]
    with capturedLogs():
        for client, batches in (
            (received_together, [messages[:3], messages[3:] + again]),
            (received_separately, [messages, again]),
        ):
            for batch in batches:
                client.batch_received(Batch.pack([(datagram, BACKBONE) for datagram in batch]))
            network.advance(0.05)
    assert [type(error) for error in stopped] == [SequenceRegressed] * 2
    assert (
        [number for number, _ in received_together.found]
        == [number for number, _ in received_separately.found]
        == [1, 2, 3, 4, 5, 6]
    )


def test_leaving_from_messages_received_sends_a_goodbye(network: Network, backbone: Backbone, make: Make) -> None:
    class Leaving(Recording):
        def messages_received(self, messages: Sequence[Message]) -> None:
            self.leave()

    network.attach(Leaving(), ("10.0.0.7", 4_000))
    publisher = make()
    publisher.publish(b"enough")
    network.settle()
    network.advance(0.05)
    assert backbone.node is not None
    flags = {served.address[0]: served.flags for served in backbone.node.clients}
    assert flags["10.0.0.7"] == Flags.NOSUBSCRIBE | Flags.NOJOURNAL


class TestLeavingAfterPublishing:
    """A leaving publisher lingers while its messages may be requested."""

    @staticmethod
    def published(network: Network, make: Make, **options: Any) -> Any:
        """Return a publisher whose message was just acknowledged."""
        publisher = make(2, **options)
        done = results(publisher.publish(b"1"))
        network.advance(0.1)
        assert done == [1]
        return publisher

    def ask(self, network: Network, first: int) -> None:
        """Forward a REQUEST from the backbone."""
        network.inject(encode(Forward(("192.0.2.9", 9), first, first)), BACKBONE, ("192.0.2.2", 7))

    @pytest.mark.usefixtures("backbone")
    def test_a_leaving_publisher_lingers_after_its_last_ack(self, network: Network, make: Make) -> None:
        publisher = self.published(network, make)
        leaving = publisher.leave()
        network.advance(QUIET_TIME - 0.15)
        assert not leaving.called
        network.advance(0.25)
        assert leaving.called

    @pytest.mark.usefixtures("backbone")
    def test_a_leaving_publisher_lingers_while_its_messages_are_requested(self, network: Network, make: Make) -> None:
        publisher = self.published(network, make)
        leaving = publisher.leave()
        for _ in range(3):
            network.advance(QUIET_TIME - 0.2)
            self.ask(network, 1)
        network.advance(0.2)
        self.ask(network, 7)  # Not assigned yet.
        network.advance(QUIET_TIME - 0.3)
        assert not leaving.called
        network.advance(0.2)
        assert leaving.called
        assert [target for datagram, _, target in network.sent if target == ("192.0.2.9", 9)] == [("192.0.2.9", 9)] * 3

    @pytest.mark.usefixtures("backbone")
    def test_a_leaving_publisher_lingers_for_ten_seconds_at_most(self, network: Network, make: Make) -> None:
        publisher = self.published(network, make)
        leaving = publisher.leave()
        for _ in range(19):
            network.advance(0.5)
            self.ask(network, 1)
        assert not leaving.called
        network.advance(0.6)
        assert leaving.called

    @pytest.mark.usefixtures("backbone")
    def test_leave_at_once_ends_the_linger(self, network: Network, make: Make) -> None:
        publisher = self.published(network, make)
        leaving, told = publisher.leave(), publisher.leave(at_once=True)
        network.advance(0.05)
        assert leaving.called
        assert told.called
        assert results(publisher.leave()) == [None]

    @pytest.mark.usefixtures("backbone")
    def test_close_ends_the_linger(self, network: Network, make: Make) -> None:
        publisher = self.published(network, make)
        leaving = publisher.leave()
        publisher.close()
        network.advance(0.05)
        assert leaving.called

    @pytest.mark.usefixtures("backbone")
    @pytest.mark.parametrize("options", [{"journal": False}, {"subscribe": False, "journal": False}])
    def test_a_publisher_with_nojournal_does_not_linger(
        self, network: Network, make: Make, options: dict[str, Any]
    ) -> None:
        leaving = self.published(network, make, **options).leave()
        network.advance(0.05)
        assert leaving.called

    @pytest.mark.usefixtures("backbone")
    def test_a_publisher_does_not_linger_for_an_old_message(self, network: Network, make: Make) -> None:
        publisher = self.published(network, make)
        network.advance(QUIET_TIME)
        self.ask(network, 7)
        leaving = publisher.leave()
        network.advance(0.05)
        assert leaving.called

    def test_a_publisher_without_a_backbone_does_not_linger(
        self, network: Network, make: Make, backbone: Backbone
    ) -> None:
        publisher = self.published(network, make)
        backbone.close()
        network.advance(5.2)
        assert publisher.told == ["connected", "disconnected"]
        self.ask(network, 1)
        leaving = publisher.leave()
        network.advance(0.05)
        assert leaving.called

    @pytest.mark.usefixtures("backbone")
    def test_a_client_that_published_nothing_does_not_linger(self, network: Network, make: Make) -> None:
        publisher, other = make(2), make(3)
        other.publish(b"1")
        network.advance(0.1)
        self.ask(network, 1)
        leaving = publisher.leave()
        network.advance(0.05)
        assert leaving.called
