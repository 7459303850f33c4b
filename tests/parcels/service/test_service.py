"""Nodes as services, on real loopback sockets."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from suite.authority import Authority
from suite.waiting import DEADLINE, Waiting
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, clientFromString, connectProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import LogEvent, capturedLogs, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import (
    ConfigurationError,
    EventsNotHeld,
    MessageTooLarge,
    NotOrdered,
    OperationalError,
    SequenceChanged,
)
from fyrehose_twisted.interfaces import IEventListener, IOrderedEvents
from fyrehose_twisted.journal.errors import JournalFull
from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.service.config import ParcelsConfig
from fyrehose_twisted.parcels.service.service import ParcelsNode
from fyrehose_twisted.parcels.service.storage import Storage
from fyrehose_twisted.parcels.wire.messages import Event, Mode, NodeInfo, Parcel, ParcelType, PublisherRun, node_id
from fyrehose_twisted.web.tokens import Tokens

reactor: Any = installed_reactor

SECRET = b"a secret that is long enough"


@implementer(IEventListener)
class Listener:
    """Listener that records events and gaps."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.skipped: list[tuple[int, int]] = []
        self.waiting = Waiting()

    def events_ordered(self, events: Any) -> None:
        self.events += events
        self.waiting.look()

    def events_skipped(self, first: int, last: int) -> None:
        self.skipped.append((first, last))

    def until(self, count: int) -> Deferred[None]:
        """Wait for a number of events."""
        return self.waiting.until(lambda: len(self.events) >= count)


class Lost(Protocol):
    """Waits for the end of its connection."""

    def __init__(self) -> None:
        self.lost: Deferred[None] = Deferred()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


class Node(ParcelsNode):
    """Node service that re-evaluates the waiting conditions of a test after each event."""

    def __init__(self, name: str, neighbours: tuple[Address, ...] = (), **options: Any) -> None:
        settings = {"neighbours": neighbours, "advertise": ("127.0.0.1", 0), "listen": "tcp:0:interface=127.0.0.1"}
        settings |= {one.name: options.pop(one.name) for one in fields(ParcelsConfig) if one.name in options}
        self.waiting = Waiting()
        self.failures: list[Exception] = []
        self.heard = Listener()
        super().__init__(ParcelsConfig(name, **settings), **{"failed": self.failures.append, **options})
        self.listen(self.heard)

    async def up(self) -> Node:
        self.privilegedStartService()
        self.startService()
        await self.when_started()
        return self

    def kill(self) -> None:
        """Stop without leaving the cluster, which would take a second."""
        self._error = self._error or RuntimeError("killed")

    def until(self, true: Callable[[], Any]) -> Deferred[None]:
        return self.waiting.until(true)

    def has_members(self, *names: str) -> Deferred[None]:
        return self.until(
            lambda: self.state().mode == "Wrk" and {one.name for one in self.state().members} == set(names)
        )

    def _on_event(self, event: Any) -> None:
        super()._on_event(event)
        self.waiting.look()


Start = Callable[..., Awaitable[Node]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a node, and stop it after the test."""
    nodes: list[Node] = []

    async def started(*arguments: Any, **options: Any) -> Node:
        nodes.append(Node(*arguments, **options))
        return await nodes[-1].up()

    yield started
    for node in nodes:
        node.kill()
        pytest_twisted.blockon(node.stopService())


def address_of(node: ParcelsNode) -> Address:
    assert node.address is not None
    return node.address


async def trio(start: Start, **options: Any) -> list[Node]:
    """Return three nodes of one cluster with a quorum."""
    first = await start("a", **options)
    others = [await start(name, (address_of(first),), **options) for name in "bc"]
    for node in (first, *others):
        await node.has_members("a", "b", "c")
    return [first, *others]


async def raises(kind: type[Exception], waited: Deferred[Any]) -> Any:
    with pytest.raises(kind) as raised:
        await waited
    return raised.value


@pytest_twisted.ensureDeferred
async def test_single_node_publishes_and_reads_events(start: Start) -> None:
    node = await start("a")
    assert verifyObject(IOrderedEvents, node)
    assert (node.last, node.oldest) == (0, 1)
    assert await node.publish(b"one") == 1
    assert await node.publish_many([b"two", b"three"]) == [2, 3]
    assert await node.publish_many([]) == []
    assert (node.last, node.oldest) == (3, 1)
    assert [event.data for event in node.events(1, 9, 9)] == [b"one", b"two", b"three"]
    assert node.events(2, 3, 1)[0].sequence == 2
    assert [event.sequence for event in node.heard.events] == [1, 2, 3]
    state = node.state()
    assert (state.name, state.mode, state.leader, state.sequence) == ("a", "Wrk", "a", 3)
    assert "links_accepted" in state.counters or state.counters["published"] == 3


@pytest_twisted.ensureDeferred
async def test_the_old_name_of_the_links_still_works(start: Start) -> None:
    node = await start("a")
    with pytest.warns(DeprecationWarning, match=r"\.driver is called links now"):
        assert node.driver is node.links is not None


@pytest_twisted.ensureDeferred
async def test_all_nodes_deliver_events_in_one_order(start: Start) -> None:
    nodes = await trio(start)
    published = [node.publish(b"%d" % number) for number in range(100) for node in nodes]
    numbers = await gatherResults(published)
    assert sorted(numbers) == list(range(1, 301))
    for node in nodes:
        await node.heard.until(300)
    events = [[(event.sequence, event.data) for event in node.heard.events] for node in nodes]
    assert events[0] == events[1] == events[2]
    assert [number for number, _ in events[0]] == list(range(1, 301))


@pytest_twisted.ensureDeferred
async def test_event_with_a_repeated_key_is_ordered_once_at_any_node(start: Start) -> None:
    nodes = await trio(start)
    number = await nodes[0].publish(b"pay", "bank", "order 1")
    assert await nodes[1].publish(b"pay", "bank", "order 1") == number
    assert await nodes[2].publish(b"pay", "bank", "order 2") != number
    assert await nodes[2].publish(b"pay", "bank 2", "order 1") != number
    await nodes[2].heard.until(3)
    assert [event.publisher.partition(":")[0] for event in nodes[2].heard.events] == ["bank", "bank", "bank 2"]
    run = PublisherRun("numbered", 1, 1, [b"x", b"y"])
    first = await nodes[0].publish_run(run)
    assert await nodes[1].publish_run(run) == first


@pytest_twisted.ensureDeferred
async def test_remaining_nodes_continue_after_one_leaves(start: Start) -> None:
    nodes = await trio(start)
    await nodes[0].publish(b"one")
    await nodes[0].stopService()
    for node in nodes[1:]:
        await node.has_members("b", "c")
    assert await nodes[1].publish(b"two") == 2
    gone = await raises(NotOrdered, nodes[0].publish(b"three"))
    assert (gone.why, gone.unknown) == ("not-running", False)


@pytest_twisted.ensureDeferred
async def test_publish_at_a_node_without_a_cluster_fails_with_no_quorum(start: Start) -> None:
    node = await start("a", (("127.0.0.1", 9),))
    refused = await raises(NotOrdered, node.publish(b"one"))
    assert (refused.why, refused.unknown) == ("no-quorum", False)
    assert node.state().mode == "Dsc"


@pytest_twisted.ensureDeferred
async def test_exception_of_a_listener_does_not_affect_the_node(start: Start) -> None:
    @implementer(IEventListener)
    class Broken:
        def events_ordered(self, events: Any) -> None:
            raise RuntimeError("a mistake of an application")

        def events_skipped(self, first: int, last: int) -> None:
            raise RuntimeError("a mistake of an application")

    node = Node("a")
    broken = Broken()
    node.unlisten(node.heard)
    node.listen(broken)
    node.listen(node.heard)
    await node.up()
    with capturedLogs() as logged:
        assert await node.publish(b"one") == 1
        assert len(node.heard.events) == 1
        assert [event for event in logged if "Broken" in str(event.get("listener"))]
    node.unlisten(broken)
    node.unlisten(broken)
    await node.publish(b"two")
    await node.stopService()


@pytest_twisted.ensureDeferred
async def test_invalid_events_are_refused_by_the_service(start: Start) -> None:
    node = await start("a", max_event=100, window_bytes=10_000, pending_bytes=10_000)
    assert (await raises(MessageTooLarge, node.publish(b"x" * 101))).limit == 100
    await raises(MessageTooLarge, node.publish_many([b"x", b"x" * 101]))
    await raises(MessageTooLarge, node.publish_run(PublisherRun("numbered", 1, 1, [b"x" * 100] * 500)))
    await raises(ConfigurationError, node.publish(b"x", "a\nb"))
    with pytest.raises(TypeError, match="an event is bytes, not str"):
        node.publish("text")  # type: ignore[arg-type]


@pytest_twisted.ensureDeferred
async def test_service_raises_events_not_held_for_evicted_events(start: Start) -> None:
    node = await start("a", max_event=100, window_bytes=2_000, pending_bytes=2_000)
    for _ in range(20):
        await node.publish(b"x" * 100)
    assert 1 < node.oldest < 20
    with pytest.raises(EventsNotHeld) as missing:
        node.events(1, 20, 20)
    assert (missing.value.oldest, missing.value.last) == (node.oldest, 20)
    assert node.events(21, 30, 5) == []


@pytest_twisted.ensureDeferred
async def test_neighbour_names_are_resolved_and_the_own_address_is_dropped(start: Start) -> None:
    first = await start("a")
    port = address_of(first)[1]
    places = (("localhost", port), ("127.0.0.1", port), ("no.such.name.invalid", 1))
    with capturedLogs() as logged:
        second = await start("b", places)
        assert [event for event in logged if "resolved again" in event.get("log_format", "")]
    assert second.config.neighbours == (("127.0.0.1", port), ("no.such.name.invalid", 1))
    await second.has_members("a", "b")
    assert await second.publish(b"x") == 1


@pytest_twisted.ensureDeferred
async def test_node_with_only_itself_as_neighbour_forms_a_cluster(start: Start) -> None:
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory())
    number = port.getHost().port
    await port.stopListening()
    listen = f"tcp:{number}:interface=127.0.0.1"
    node = await start("a", (("127.0.0.1", number), ("localhost", number)), listen=listen)
    assert node.config.neighbours == ()
    assert await node.publish(b"x") == 1


@pytest_twisted.ensureDeferred
async def test_port_in_use_fails_the_start_of_a_node() -> None:
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory())
    node = Node("a", listen=f"tcp:{port.getHost().port}:interface=127.0.0.1")
    try:
        with pytest.raises(OperationalError, match=r"cannot listen on tcp:\d+:interface=127.0.0.1: Address already"):
            await node.up()
        assert len(node.failures) == 1
        assert node.state().mode == "Panic"
        assert (await raises(NotOrdered, node.publish(b"x"))).why == "not-running"
    finally:
        await node.stopService()
        await port.stopListening()


@pytest_twisted.ensureDeferred
async def test_node_that_was_never_started_can_be_stopped() -> None:
    node = Node("a")
    assert node.state().mode == "Dsc"
    assert node.events(1, 2, 3) == []
    node.force_new_cluster()
    await node.stopService()


@pytest_twisted.ensureDeferred
async def test_tcp_publisher_publishes_to_a_cluster_with_a_secret(start: Start) -> None:
    nodes = await trio(start, secret=SECRET)
    publisher = ParcelsPublisher([address_of(node) for node in nodes], secret=SECRET)
    stranger = ParcelsPublisher([address_of(node) for node in nodes], secret=SECRET + b"!", timeout=10.0)
    try:
        numbers = await gatherResults([publisher.publish(b"%d" % number) for number in range(1_000)])
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 1_000
        assert await publisher.publish_many([b"x"] * 3) == [1_001, 1_002, 1_003]
        assert (await raises(NotOrdered, stranger.publish(b"evil"))).why == "wrong-secret"
        first = nodes[0]
        later = [publisher.publish(b"later") for _ in range(100)]
        stopped = first.stopService()
        await gatherResults(later)
        await stopped
        assert await publisher.publish(b"last") == 1_104
        await nodes[1].heard.until(1_104)
        assert [event.sequence for event in nodes[1].heard.events] == list(range(1, 1_105))
        assert b"evil" not in {event.data for event in nodes[1].heard.events}
    finally:
        await publisher.close()
        await stranger.close()


class ReferencePeer(ParcelProtocol):
    """Reference peer that sends one discovery request."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: Deferred[Any] = Deferred()

    def connection_ready(self) -> None:
        me = NodeInfo(node_id("old"), Mode.DSC, "old", ("127.0.0.1", 9))
        self.send([Parcel(False, ParcelType.DSC_REQ, me.id, me)])

    def parcels_received(self, messages: Any) -> None:
        self.answered.callback(messages[0])
        self.close()


@pytest_twisted.ensureDeferred
async def test_discovery_request_of_a_reference_peer_is_answered(start: Start) -> None:
    node = await start("a")
    host, port = address_of(node)
    peer: Any = await TCP4ClientEndpoint(reactor, host, port).connect(Factory.forProtocol(ReferencePeer))
    answer = await peer.answered.addTimeout(DEADLINE, reactor)
    assert answer.type is ParcelType.DSC_RES
    assert "a" in [neighbour.name for neighbour in answer.body]


class MalformedClient(ParcelProtocol):
    def __init__(self) -> None:
        super().__init__()
        self.ended: Deferred[str] = Deferred()

    def connection_ready(self) -> None:
        self.write(b"\xff" * 1_000)

    def connection_ended(self, reason: str) -> None:
        self.ended.callback(reason)


@pytest_twisted.ensureDeferred
async def test_malformed_bytes_close_the_connection_and_are_logged_once(start: Start) -> None:
    node = await start("a")
    host, port = address_of(node)
    with capturedLogs() as logged:
        for _ in range(3):
            endpoint = TCP4ClientEndpoint(reactor, host, port)
            malformed: Any = await endpoint.connect(Factory.forProtocol(MalformedClient))
            await malformed.ended.addTimeout(DEADLINE, reactor)
        assert len([event for event in logged if "hung up on" in event.get("log_format", "")]) == 1
    assert node.state().counters["links_malformed"] == 3
    assert await node.publish(b"x") == 1


@pytest_twisted.ensureDeferred
async def test_protocol_subclass_receives_messages_first(start: Start) -> None:
    seen: list[Any] = []

    class Counting(ParcelProtocol):
        def parcels_received(self, messages: Any) -> None:
            seen.extend(messages)
            super().parcels_received(messages)

    await trio(start, protocol=Counting)
    assert {"Parcel", "Hello", "AppendEntries"} <= {type(message).__name__ for message in seen}


@pytest_twisted.ensureDeferred
async def test_service_reads_events_evicted_from_memory_from_its_journal(start: Start, tmp_path: Path) -> None:
    options: Any = {"window_bytes": 20_000, "max_event": 1_000, "pending_bytes": 2**20}
    node = await start("a", storage=Storage(tmp_path), **options)
    for _ in range(10):
        await node.publish_many([b"x" * 500] * 20)
    assert (node.oldest, node.last) == (1, 200)
    read: list[Event] = []
    while len(read) < 200:
        read += node.events(len(read) + 1, 200, 200)
    assert [event.sequence for event in read] == list(range(1, 201))
    await node.stopService()
    again = await start("a", storage=Storage(tmp_path), **options)
    assert (again.oldest, again.last) == (1, 200)
    assert again.events(7, 7, 1)[0].data == b"x" * 500
    await again.has_members("a")
    assert await again.publish(b"next") == 201
    assert again.state().incarnation == node.state().incarnation


@pytest_twisted.ensureDeferred
async def test_second_node_cannot_open_a_journal_in_use(start: Start, tmp_path: Path) -> None:
    await start("a", storage=Storage(tmp_path))
    other = Node("b", storage=Storage(tmp_path))
    with pytest.raises(OperationalError, match="is in use by another process"):
        await other.up()
    await other.stopService()


@pytest_twisted.ensureDeferred
async def test_journal_write_error_stops_the_node(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = Storage(tmp_path)
    node = await start("a", storage=keeping)
    await node.publish(b"one")

    def full(sync: bool = True) -> None:
        raise JournalFull("there is no room")

    assert keeping.history is not None
    monkeypatch.setattr(keeping.history.journal, "commit", full)
    lost = await raises(NotOrdered, node.publish(b"two"))
    assert lost.unknown
    assert [str(error) for error in node.failures] == ["there is no room"]
    assert (node.state().mode, node.state().why) == ("Panic", "there is no room")
    monkeypatch.undo()


@pytest_twisted.ensureDeferred
async def test_mode_and_membership_changes_are_logged(start: Start) -> None:
    said: list[LogEvent] = []
    with capturedLogs() as logged:
        await trio(start)
        said = list(logged)
    lines = [event["log_format"].format(**event) for event in said if event.get("log_source") is not None]
    assert any(line.startswith("node a of cluster default listens on 127.0.0.1:") for line in lines)
    assert any(line.startswith("mode Wrk: ") for line in lines)
    assert any(line.startswith("added neighbour b at 127.0.0.1:") for line in lines)
    assert "members are a, b, c; 2 have to agree" in lines


class Reader(Protocol):
    """Client that reads until the server closes."""

    def __init__(self, words: bytes) -> None:
        self.data = b""
        self.told: Deferred[None] = Deferred()
        self.over: Deferred[None] = Deferred()
        self._words = words

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        if self._words in self.data and not self.told.called:
            self.told.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.over.callback(None)


@pytest_twisted.ensureDeferred
async def test_http_streams_end_before_the_node_has_stopped() -> None:
    pytest.importorskip("treq")
    node = Node("a", http="tcp:0:interface=127.0.0.1")
    await node.up()
    port = node._ports.hosts_by_option["http"][0].port
    reader = Reader(b"200 OK")
    await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), reader)
    ask = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\n\r\n"
    reader.transport.write(ask % port)
    await reader.told.addTimeout(DEADLINE, reactor)
    await node.publish(b"one")
    await node.stopService()
    assert node._http is not None
    # Data not written by the time this fires is lost, because the reactor stops.
    assert node._http.factory.connections == 0
    await reader.over.addTimeout(DEADLINE, reactor)
    assert b"-1\n" in reader.data
    assert reader.data.endswith(b"\r\n0\r\n\r\n")


def test_one_token_and_a_token_for_each_client_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="token and tokens"):
        ParcelsConfig("a", token=b"a", tokens=Tokens({"b": b"b"}))


@pytest_twisted.ensureDeferred
async def test_node_with_http_publishes_with_a_token(start: Start) -> None:
    treq = pytest.importorskip("treq")
    node = Node("a", http="tcp:0:interface=127.0.0.1", token=b"a-token-of-visible-characters")
    with capturedLogs() as logged:
        await node.up()
        (place,) = [event["place"] for event in logged if event.get("option") == "http"]
    try:
        headers = {"Authorization": "Bearer a-token-of-visible-characters"}
        response = await treq.post(
            f"http://{place}/events", b"one", headers=headers, persistent=False, timeout=DEADLINE
        )
        assert response.code in (200, 201)
        await treq.content(response)
        assert node.last == 1
        refused = await treq.get(f"http://{place}/cluster", persistent=False, timeout=DEADLINE)
        assert refused.code == 401
        await treq.content(refused)
    finally:
        await node.stopService()


@pytest_twisted.ensureDeferred
# Twisted passes certificates in a way that pyOpenSSL deprecates.
@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")
async def test_connection_without_a_valid_certificate_is_counted_and_logged(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("OpenSSL")
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    node = Node("a", listen=f"mtls:0:cert={issued.certificate}:key={issued.key}:ca={authority.path}")
    with capturedLogs() as logged:
        await node.up()
        try:
            assert node.address is not None
            stranger = Lost()
            client = clientFromString(reactor, f"tls:127.0.0.1:{node.address[1]}:trustRoots={authority.path.parent}")
            await connectProtocol(client, stranger)
            await stranger.lost.addTimeout(DEADLINE, reactor)
            await node.until(lambda: node.state().counters.get("links_tls_failed"))
        finally:
            await node.stopService()
    assert "no TLS with 127.0.0.1: peer did not return a certificate" in map(formatEvent, logged)


@pytest_twisted.ensureDeferred
async def test_sighup_reads_the_tokens_again_and_leaves_the_metrics_open(start: Start) -> None:
    treq = pytest.importorskip("treq")
    east, west = b"east-token-of-some-length", b"west-token-of-some-length"
    reread: Deferred[None] = Deferred()

    def reread_tokens() -> Tokens:
        reactor.callLater(0, reread.callback, None)
        return Tokens({"east": east, "west": west})

    node = Node(
        "a",
        http="tcp:0:interface=127.0.0.1",
        metrics="tcp:0:interface=127.0.0.1",
        tokens=Tokens({"east": east}),
        reread_tokens=reread_tokens,
    )

    async def answered(place: str, path: str, token: bytes | None = None) -> tuple[int, bytes]:
        headers = {} if token is None else {"Authorization": f"Bearer {token.decode()}"}
        response = await treq.get(f"http://{place}{path}", headers=headers, persistent=False, timeout=DEADLINE)
        return response.code, await treq.content(response)

    with capturedLogs() as logged:
        await node.up()
        places = {event["option"]: event["place"] for event in logged if "option" in event and "place" in event}
    try:
        assert [(await answered(places["http"], "/cluster", token))[0] for token in (east, west)] == [200, 401]
        code, page = await answered(places["metrics"], "/metrics")
        assert code == 200
        assert b'fyrehose_parcels_leader{leader="a"} 1.0' in page
        assert (await answered(places["http"], "/metrics"))[0] == 401
        with capturedLogs() as logged:
            os.kill(os.getpid(), signal.SIGHUP)
            await reread.addTimeout(DEADLINE, reactor)
        assert "2 tokens" in [event.get("changes") for event in logged]
        assert [(await answered(places["http"], "/cluster", token))[0] for token in (east, west)] == [200, 200]
    finally:
        await node.stopService()


@pytest_twisted.ensureDeferred
async def test_event_is_published_only_behind_the_expected_one(start: Start) -> None:
    first, second, third = await trio(start)
    assert await first.publish(b"a", expect=0) == 1
    error = await raises(SequenceChanged, second.publish(b"b", "me", "key", expect=0))
    assert (str(error), error.last) == ("the last event has number 1, not 0", 1)
    # The key was not used up.
    assert await third.publish(b"c", "me", "key", expect=1) == 2
    assert await first.publish(b"c", "me", "key", expect=1) == 2


@pytest_twisted.ensureDeferred
async def test_synchronized_node_has_delivered_what_others_acknowledged(start: Start) -> None:
    first, second, third = await trio(start)
    assert await second.synchronize() == 0
    numbers = await first.publish_many([b"%d" % number for number in range(500)])
    readers = [third.synchronize() for _ in range(3)]
    assert [await reader for reader in readers] == 3 * [numbers[-1]]
    assert third.last == numbers[-1]
    await third.stopService()
    error = await raises(NotOrdered, third.synchronize())
    assert error.why == "not-running"
