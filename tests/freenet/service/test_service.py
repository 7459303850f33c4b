"""Freenet services on real sockets of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import pytest_twisted
from prometheus_client import CollectorRegistry, generate_latest
from suite.waiting import DEADLINE, Waiting
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from zope.interface import implementer

from fyrehose_twisted.errors import (
    ConfigurationError,
    MessageTooLarge,
    NotConnected,
    PublishRefused,
    StateFileError,
    TooManyStreams,
    UnencodableMessage,
)
from fyrehose_twisted.freenet.events import Packet, Subscribed
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.protocol import FreenetPeerProtocol
from fyrehose_twisted.freenet.service.config import FreenetConfig
from fyrehose_twisted.freenet.service.metrics import FreenetCollector
from fyrehose_twisted.freenet.service.service import FreenetService
from fyrehose_twisted.freenet.service.storage import PacketStorage
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import Located, Ping
from fyrehose_twisted.freenet.wire.signing import SigningKey, named_key, strip_signature
from fyrehose_twisted.interfaces import IFreenetListener, IRoutingPolicy
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.net.control.client import connect

reactor: Any = installed_reactor
KEY = named_key("news")
PLACE = key_location(KEY)
LOOPBACK = "tcp:0:interface=127.0.0.1"


@implementer(IFreenetListener)
class Listener(Waiting):
    """Listener that lets a test wait for events."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[tuple[bytes, bytes]] = []
        self.changes: list[Any] = []

    def packets_received(self, key: bytes, packets: Any) -> None:
        self.packets += [(key, strip_signature(key, packet.data)) for packet in packets]
        self.look()

    def packets_missed(self, key: bytes, first: int, last: int) -> None:
        raise AssertionError("nothing is missed here")

    def stream_changed(self, event: Any) -> None:
        self.changes.append(event)
        self.look()


Make = Callable[..., FreenetService]


@pytest.fixture
def make() -> Iterator[Make]:
    """Factory of services that are stopped after the test; each has the previous one as peer."""
    made: list[FreenetService] = []
    problems: list[Exception] = []

    def one(*, alone: bool = False, fails: Callable[[Exception], object] = problems.append, **named: Any) -> Any:
        # Those that come later are further from the key, or they would become the root in the middle of a test.
        if "state" not in named:
            named.setdefault("location", (PLACE + 0.1 * len(made)) % 1.0)
        peers = [] if alone else [place for node in made[-1:] for place in node.status()["listening"]["listen"]]
        protocol = named.pop("protocol", FreenetPeerProtocol)
        service = FreenetService(FreenetConfig(peers, listen=LOOPBACK, **named), protocol=protocol, failed=fails)
        made.append(service)
        service.privilegedStartService()
        service.startService()
        return service

    yield one
    for service in made:
        if service.running:
            pytest_twisted.blockon(service.stopService())
    assert problems == []


@pytest_twisted.ensureDeferred
async def test_a_routing_policy_chooses_the_neighbours_that_a_node_asks(make: Make) -> None:
    @implementer(IRoutingPolicy)
    class Never:
        asked: ClassVar[list[float]] = []

        def cost(self, here: float, target: float, neighbour: float) -> float:
            self.asked.append(neighbour)
            return inf

    first = make()
    second = make(routing=Never())
    await first.subscribe(KEY)
    await second.subscribe(KEY)
    assert set(Never.asked) == {first.node.location}
    # It asked no neighbour, and so became the root of a tree of its own.
    assert second.node.streams[KEY].is_root
    with pytest.raises(ConfigurationError, match="does not provide IRoutingPolicy"):
        FreenetService(FreenetConfig(listen=[], routing=object()))  # type: ignore[arg-type]


@pytest_twisted.ensureDeferred
async def test_published_packets_reach_all_subscribed_nodes(make: Make) -> None:
    nodes = [make() for _ in range(3)]
    listeners = [Listener() for _ in nodes]
    for node, listener in zip(nodes, listeners, strict=True):
        node.listen(listener)
        await node.subscribe(KEY)
    first = await nodes[2].publish(KEY, b"one")
    assert await nodes[0].publish(KEY, b"two") == first + 1
    assert await nodes[1].publish(KEY, b"three", number=first + 2) == first + 2
    expected = [(KEY, data) for data in (b"one", b"two", b"three")]
    for listener in listeners:
        await listener.until(lambda listener=listener: len(listener.packets) == 3)
        assert listener.packets == expected
    assert nodes[0].retained_packets(KEY, first) == [Packet(first + 1, b"two"), Packet(first + 2, b"three")]
    assert [node.next_number(KEY) for node in nodes] == [first + 3] * 3
    with pytest.raises(PublishRefused, match="another packet already has this number") as refused:
        await nodes[1].publish(KEY, b"four", number=first)
    assert (refused.value.why, refused.value.next) == ("collision", first + 3)
    # The same packet again is there already.
    assert await nodes[1].publish(KEY, b"one", number=first) == first


@pytest_twisted.ensureDeferred
async def test_packets_that_are_kept_are_not_delivered_again_to_a_listener_that_is_added_then(make: Make) -> None:
    node, early, late = make(alone=True), Listener(), Listener()
    node.listen(early)
    await node.subscribe(KEY)
    publishing = node.publish(KEY, b"under way", allow_no_subscribers=True)
    assert early.packets == []
    late.packets_received(KEY, node.retained_packets(KEY))
    node.listen(late)
    await publishing
    assert early.packets == late.packets == [(KEY, b"under way")]


@pytest_twisted.ensureDeferred
async def test_publishing_fails_if_no_other_node_is_subscribed(make: Make) -> None:
    nodes = [make(), make()]
    await nodes[1].subscribe(KEY)
    with pytest.raises(PublishRefused, match="the stream has no other subscriber") as refused:
        await nodes[1].publish(KEY, b"nobody hears")
    assert refused.value.why == "no-subscribers"
    number = await nodes[1].publish(KEY, b"all the same", allow_no_subscribers=True)
    await nodes[0].subscribe(KEY)
    assert await nodes[1].publish(KEY, b"to one") == number + 1
    nodes[0].unsubscribe(KEY)
    # Another user of the same node is a subscriber, too.
    await nodes[1].subscribe(KEY)
    assert await nodes[1].publish(KEY, b"to the other user") == number + 2


@pytest_twisted.ensureDeferred
async def test_a_stream_is_held_until_every_subscription_has_ended(make: Make) -> None:
    node = make(alone=True)
    for _ in range(2):
        await node.subscribe(KEY)
    node.unsubscribe(KEY)
    assert node.is_local(KEY)
    node.unsubscribe(KEY)
    node.unsubscribe(KEY)
    assert not node.is_local(KEY)
    assert node.status()["streams"] == []
    with pytest.raises(PublishRefused, match=r"\(no-stream\).*subscribe first"):
        await node.publish(KEY, b"")


@pytest_twisted.ensureDeferred
async def test_invalid_arguments_are_refused_at_once(make: Make) -> None:
    node = make(alone=True, policy=Policy(max_streams=1))
    await node.subscribe(KEY)
    for wrong, error in (
        (node.subscribe(b"short"), ConfigurationError),
        (node.subscribe(bytes(20)), TooManyStreams),
        (node.publish(KEY, bytes(1_059)), MessageTooLarge),
        (node.publish(KEY, b"", number=-1), UnencodableMessage),
        (node.publish(KEY, b"", signing_key=SigningKey.generate()), ConfigurationError),
    ):
        with pytest.raises(error):
            await wrong
    assert not node.is_local(bytes(20))
    assert node.is_local(KEY)


@pytest_twisted.ensureDeferred
async def test_signed_stream_accepts_only_packets_of_the_key_holder(make: Make) -> None:
    signing = SigningKey.generate()
    place = key_location(signing.key)
    nodes = [make(location=place), make(location=(place + 0.3) % 1.0)]
    listener = Listener()
    nodes[1].listen(listener)
    for node in nodes:
        await node.subscribe(signing.key)
    number = await nodes[0].publish(signing.key, b"mine", signing_key=signing)
    await listener.until(lambda: listener.packets)
    assert listener.packets == [(signing.key, b"mine")]
    with pytest.raises(ConfigurationError, match="pass the signing key of the stream"):
        await nodes[0].publish(signing.key, b"forged")
    with pytest.raises(PublishRefused, match="bad-signature"):
        await nodes[1].publish(signing.key, bytes(200), number=number + 1)


@pytest_twisted.ensureDeferred
async def test_stopping_a_node_fails_pending_publishes(make: Make) -> None:
    node = make(alone=True)
    await node.subscribe(KEY)
    publishing = node.publish(KEY, b"x", allow_no_subscribers=True)
    node._pending_publishes[99] = lost = Deferred()
    await node.stopService()
    await publishing
    with pytest.raises(PublishRefused, match="may or may not be published"):
        await lost
    with pytest.raises(NotConnected):
        await node.publish(KEY, b"x")
    with pytest.raises(NotConnected, match="is not running"):
        FreenetService(FreenetConfig(listen=[])).move(0.5)


@pytest_twisted.ensureDeferred
async def test_the_id_and_location_of_a_node_survive_a_restart(make: Make, tmp_path: Path) -> None:
    node = make(alone=True, state=tmp_path / "state", location=0.25)
    before = node.status()
    assert before["location"] == 0.25
    node.move(0.75)
    await node.stopService()
    after = make(alone=True, state=tmp_path / "state").status()
    assert (after["node"], after["location"]) == (before["node"], 0.75)
    assert after["boot"] != before["boot"]
    problems: list[Exception] = []
    make(alone=True, state=tmp_path / "state", fails=problems.append)
    assert [type(problem) for problem in problems] == [StateFileError]


@pytest_twisted.ensureDeferred
async def test_a_journal_restores_the_last_seen_packet(make: Make, tmp_path: Path) -> None:
    always = make(alone=True)
    await always.subscribe(KEY)
    for part in ((b"one", b"two"), (b"three",)):
        peers = always.status()["listening"]["listen"]
        config = FreenetConfig(peers, listen=[], storage=PacketStorage(tmp_path), streams=[KEY])
        node = FreenetService(config, failed=pytest.fail)
        listener = Listener()
        node.listen(listener)
        node.startService()
        await node.when_connected(KEY)
        for data in part:
            await always.publish(KEY, data, allow_no_subscribers=True)
        await listener.until(lambda listener=listener, part=part: len(listener.packets) == len(part))
        await node.stopService()
    with closing(open_reader(tmp_path / f"freenet-{KEY.hex()}")) as reader:
        bounds = reader.bounds(0)
        assert bounds is not None
        kept = [bytes(one) for block in reader.read(0, bounds.first, bounds.last) for one in block.payloads()]
    assert kept == [b"one", b"two", b"three"]


@pytest_twisted.ensureDeferred
async def test_a_service_with_peers_waits_for_a_neighbour_before_it_becomes_a_root(make: Make) -> None:
    first = make(alone=True)
    await first.subscribe(KEY)
    second = make(streams=[KEY])
    assert [stream["phase"] for stream in second.status()["streams"]] == ["searching"]
    await second.when_connected(KEY)
    roots = [stream["is_root"] for node in (first, second) for stream in node.status()["streams"]]
    assert roots == [True, False]


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("started", [False, True])
async def test_packets_that_the_application_has_seen_are_not_delivered_again(make: Make, started: bool) -> None:
    always = make(alone=True)
    await always.subscribe(KEY)
    numbers = [await always.publish(KEY, data, allow_no_subscribers=True) for data in (b"one", b"two", b"three")]
    config = FreenetConfig(always.status()["listening"]["listen"], listen=[])
    node, listener = FreenetService(config, failed=pytest.fail), Listener()
    node.listen(listener)
    if started:
        node.startService()
        connected = node.subscribe(KEY, last_seen=numbers[1])
    else:
        connected = node.subscribe(KEY, last_seen=numbers[1])
        node.startService()
    await connected
    await listener.until(lambda: (KEY, b"three") in listener.packets)
    await node.stopService()
    assert listener.packets == [(KEY, b"three")]


@pytest_twisted.ensureDeferred
async def test_a_failing_listener_does_not_affect_the_others(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    node, failing, listening = make(alone=True), Listener(), Listener()
    monkeypatch.setattr(failing, "packets_received", None)
    node.listen(failing)
    node.listen(listening)
    await node.subscribe(KEY)
    with capturedLogs() as logs:
        await node.publish(KEY, b"x", allow_no_subscribers=True)
        await listening.until(lambda: listening.packets)
    assert [log["log_format"] for log in logs if "log_failure" in log] == ["{listener!r} failed in {method}()"]
    for listener in (failing, listening, listening):
        node.unlisten(listener)


@pytest_twisted.ensureDeferred
async def test_the_status_of_a_service_describes_its_node(make: Make, free_port: Callable[[], int]) -> None:
    port = free_port()
    node = make(alone=True, control=f"tcp:{port}:interface=127.0.0.1")
    other = make()
    await node.subscribe(KEY)
    await other.subscribe(KEY)
    asking = await connect(f"tcp:{port}", reactor, DEADLINE)
    answer = await asking.request(ask="status")
    asking.close()
    status = answer["status"]
    assert status["node"] == node.status()["node"] == json.loads(json.dumps(node.status()))["node"]
    assert [one["node"] for one in status["neighbours"]] == [other.status()["node"]]
    (stream,) = status["streams"]
    assert stream["subscribers"] == [other.status()["node"]] or stream["parent"] == other.status()["node"]
    registry = CollectorRegistry()
    registry.register(FreenetCollector(node))
    text = generate_latest(registry).decode()
    assert 'fyrehose_freenet_streams{phase="settled"} 1.0' in text
    assert "fyrehose_freenet_neighbours 1.0" in text
    assert 'fyrehose_freenet_counted_total{what="links_accepted"} 1.0' in text


@pytest_twisted.ensureDeferred
async def test_an_application_sees_the_messages_of_a_link_first(make: Make) -> None:
    seen: list[Any] = []
    located: Deferred[None] = Deferred()

    class Deaf(FreenetPeerProtocol):
        def freenet_received(self, messages: Any) -> None:
            seen.extend(messages)
            super().freenet_received([one for one in messages if not isinstance(one, Located)])
            if any(isinstance(one, Located) for one in messages):
                located.callback(None)

    deaf = make(alone=True, protocol=Deaf, location=0.5)
    other = make(location=0.25)
    await other.subscribe(KEY)
    other.move(0.75)
    await located.addTimeout(DEADLINE, reactor)
    assert [one["location"] for one in deaf.status()["neighbours"]] == [0.25]
    assert not any(isinstance(one, Ping) for one in seen)


def test_callers_that_wait_for_a_stream_precede_those_that_come_after_it_connected() -> None:
    service: Any = FreenetService(FreenetConfig(listen=[]))
    stream = SimpleNamespace(connected=False)
    service.node = SimpleNamespace(streams={KEY: stream})
    order: list[int] = []
    service.when_connected(KEY).addCallback(lambda _: order.append(1))
    stream.connected = True  # The event that says so is not told yet.
    service.when_connected(KEY).addCallback(lambda _: order.append(2))
    service._resolve_connecting(Subscribed(KEY, 0.0, False))
    service.when_connected(KEY).addCallback(lambda _: order.append(3))
    assert order == [1, 2, 3]


def test_invalid_options_are_refused_by_the_constructor() -> None:
    for named, complaint in (
        ({"location": 1.0}, "a location goes from 0"),
        ({"peers": ["nonsense"]}, "--peer 'nonsense' is neither HOST:PORT"),
        ({"streams": [b"x"]}, "is not a key"),
        ({"secret": b"short"}, "secret"),
        ({"listen": ["nonsense:1"]}, "--listen 'nonsense:1' is not an endpoint"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            FreenetService(FreenetConfig(**named))  # type: ignore[arg-type]


@pytest_twisted.ensureDeferred
async def test_a_port_in_use_is_reported(make: Make) -> None:
    (place,) = make(alone=True).status()["listening"]["listen"]
    failed: Deferred[Exception] = Deferred()
    host, _, port = place.partition(":")
    service = FreenetService(FreenetConfig(listen=f"tcp:{port}:interface={host}"), failed=failed.callback)
    service.startService()
    assert "--listen: cannot listen on" in str(await failed)
    await service.stopService()
