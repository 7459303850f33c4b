"""HTTP client against real sites: failover, order and exactly-once publishing."""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import Memory, Serve, Served, WaitUntil
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from zope.interface import implementer

from fyrehose_twisted.errors import (
    EventsNotHeld,
    KeyReused,
    LocalError,
    MessageTooLarge,
    NotOrdered,
    PublishQueueFull,
    SequenceChanged,
)
from fyrehose_twisted.interfaces import IEventListener
from fyrehose_twisted.parcels.web import WebConfig

client_module: Any = pytest.importorskip("fyrehose_twisted.parcels.client.http_client")
ParcelsClient, NoNodeAnswers = client_module.ParcelsClient, client_module.NoNodeAnswers
RequestRefused = client_module.RequestRefused

inline = pytest_twisted.ensureDeferred
reactor: Any = installed_reactor

PACKED = gzip.compress(b'{"sequence":1}', mtime=0)

NO_LISTENER = "http://127.0.0.1:9"
"""URL without a listener."""


MakeClient = Callable[..., ParcelsClient]


@pytest.fixture
def client() -> Iterator[MakeClient]:
    """Return a factory of clients, which are closed after the test."""
    made: list[ParcelsClient] = []

    def make(*nodes: str, **more: Any) -> ParcelsClient:
        made.append(ParcelsClient(nodes, **{"timeout": 120.0, "timeout_total": 120.0, **more}))
        return made[-1]

    yield make
    for one in made:
        pytest_twisted.blockon(one.close())


@implementer(IEventListener)
class Listener:
    """Listener that records events and gaps."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.data: list[bytes] = []
        self.skipped: list[tuple[int, int]] = []
        self.raising: Exception | None = None

    def events_ordered(self, events: Any) -> None:
        if self.raising is not None:
            raise self.raising
        self.numbers += [event.sequence for event in events]
        self.data += [event.data for event in events]

    def events_skipped(self, first: int, last: int) -> None:
        self.skipped.append((first, last))


class Relay(Protocol):
    """Relay that forwards a request and then closes or falls silent before the response."""

    def dataReceived(self, data: bytes) -> None:
        self.factory.take(self, data)  # type: ignore[union-attr]


@inline
async def test_http_client_publishes_in_order(web: Served, client: MakeClient) -> None:
    me = client(web.url, publisher="me")
    sequences = await gatherResults([me.publish(b"%d" % number) for number in range(40)])
    assert sequences == list(range(1, 41))
    assert [event.data for event in web.node.log] == [b"%d" % number for number in range(40)]
    assert {event.publisher for event in web.node.log} == {"me"}
    assert len({key for _, key in web.node.keys}) == 40
    assert await me.publish(b"again", key="k") == await me.publish(b"again", key="k") == 41


@inline
async def test_http_client_has_one_publish_in_flight(web: Served, client: MakeClient, reached: WaitUntil) -> None:
    web.node.held = deque()
    me = client(web.url, max_waiting=2)
    published = [me.publish(b"%d" % number) for number in range(3)]
    with pytest.raises(PublishQueueFull):
        await me.publish(b"too many")
    for count in (1, 2, 3):
        await reached(lambda: bool(web.node.held))
        assert len(web.node.log) == count
        web.node.held.popleft()()
        assert await published[count - 1] == count


@inline
async def test_http_client_fails_over_to_a_working_node(
    memory: Memory, serve: Serve, another: type[Memory], client: MakeClient
) -> None:
    minority = another()
    minority.no_quorum()
    nodes = NO_LISTENER, serve(minority).url, serve(memory).url
    me = client(*nodes, publisher="me")
    assert await me.publish(b"x") == 1
    assert me.nodes._preferred == 2
    minority.quorum()
    assert await me.publish(b"y") == 2
    assert minority.log == []
    assert (await me.cluster())["members"][0]["name"] == "node-1"
    found = await me.health()
    assert list(found) == list(nodes)
    assert "ConnectionRefused" in found[NO_LISTENER]["error"]
    assert found[nodes[2]] == {"mode": "Wrk", "why": "alone"}


@inline
async def test_lost_http_reply_does_not_duplicate_the_event(
    memory: Memory, serve: Serve, client: MakeClient, relays: Callable[[int], Any]
) -> None:
    web = serve(memory)
    relay = relays(web.number)
    me = client(relay.url, web.url)
    assert await gatherResults([me.publish(b"%d" % number) for number in range(5)]) == [1, 2, 3, 4, 5]
    assert relay.lost == 1
    assert len(memory.log) == 5


@pytest.fixture
def relays() -> Iterator[Callable[[int], Any]]:
    """Return a factory of relays that close the connection instead of returning a POST response."""
    ports: list[Any] = []

    def make(number: int) -> Any:
        factory: Any = Factory.forProtocol(Relay)
        factory.lost = 0

        def take(front: Any, data: bytes) -> None:
            class Behind(Protocol):
                def connectionMade(self) -> None:
                    self.transport.write(data)  # type: ignore[union-attr]

                def dataReceived(self, answer: bytes) -> None:
                    factory.lost += 1
                    front.transport.abortConnection()
                    self.transport.loseConnection()  # type: ignore[union-attr]

            reactor.connectTCP("127.0.0.1", number, quiet_factory(Behind))

        factory.take = take
        ports.append(reactor.listenTCP(0, factory, interface="127.0.0.1"))
        factory.url = f"http://127.0.0.1:{ports[-1].getHost().port}"
        return factory

    yield make
    for port in ports:
        pytest_twisted.blockon(port.stopListening())


def quiet_factory(protocol: Any) -> Any:
    from twisted.internet.protocol import ClientFactory

    factory: Any = ClientFactory.forProtocol(protocol)
    factory.noisy = False
    return factory


@inline
async def test_http_client_gives_up_after_its_timeout_with_a_reason(
    memory: Memory, serve: Serve, client: MakeClient, reached: WaitUntil, says: Callable[[bytes], Any]
) -> None:
    clock = Clock()

    async def failing(asked: Deferred[Any]) -> Any:
        """Advance the clock until the request fails."""
        found: list[Any] = []
        asked.addErrback(lambda failure: found.append(failure.value))
        await reached(lambda: bool(clock.advance(0.01) or found))
        return found[0]

    memory.no_quorum()
    url = serve(memory).url
    me = client(NO_LISTENER, url, timeout_total=3.0, reactor=TimedReactor(clock))
    error = await failing(me.publish(b"x"))
    assert isinstance(error, NotOrdered)
    assert (error.why, error.unknown) == ("no-quorum", False)
    assert f"{NO_LISTENER}: ConnectionRefusedError" in str(error)
    assert f"{url}: 503 no-quorum: 1 of 3 members can be reached" in str(error)
    memory.refusing = NotOrdered("forgotten", "x", unknown=True)
    assert (await failing(me.publish(b"x"))).unknown
    error = await failing(client(says(b"").url, timeout_total=1.0, reactor=TimedReactor(clock)).publish(b"x"))
    assert (error.why, error.unknown) == ("no-node-answers", True)
    nobody = client(NO_LISTENER, timeout_total=1.0, reactor=TimedReactor(clock))
    assert isinstance(await failing(nobody.cluster()), NoNodeAnswers)


@inline
async def test_unresponsive_node_fails_over_after_the_request_timeout(
    memory: Memory, serve: Serve, another: type[Memory], client: MakeClient, reached: WaitUntil
) -> None:
    silent = another()
    silent.held = deque()
    clock = Clock()
    me = client(serve(silent).url, serve(memory).url, reactor=TimedReactor(clock), timeout=4.0)
    published = me.publish(b"x")
    await reached(lambda: bool(silent.held))
    clock.advance(3.9)
    assert not published.called
    clock.advance(0.2)
    assert await published == 1
    assert len(memory.log) == 1


class TimedReactor:
    """Reactor with real sockets and a manual clock."""

    def __init__(self, clock: Clock) -> None:
        self.callLater = clock.callLater
        self.seconds = clock.seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


@inline
async def test_permanent_http_refusal_is_not_retried(memory: Memory, serve: Serve, client: MakeClient) -> None:
    web = serve(memory, WebConfig(max_body=10), token=b"t")
    me = client(NO_LISTENER, web.url, token="t")
    with pytest.raises(MessageTooLarge) as large:
        await me.publish(b"x" * 11)
    assert (large.value.size, large.value.limit) == (11, 10)
    with pytest.raises(RequestRefused) as caught:
        await me.publish(b"")
    assert caught.value.status == 400
    assert await me.publish(b"x") == 1
    with pytest.raises(RequestRefused, match="401") as caught:
        await client(web.url, token="wrong").publish(b"x")
    assert "wrong" not in str(caught.value)
    with pytest.raises(LocalError):
        ParcelsClient([])


@inline
async def test_http_client_raises_key_reused_for_another_body(web: Served, client: MakeClient) -> None:
    web.node.refusing = KeyReused("used before")
    with pytest.raises(KeyReused, match="used before"):
        await client(web.url).publish(b"pay 99", "order-4711")


@inline
async def test_http_client_publishes_behind_the_expected_event(web: Served, client: MakeClient) -> None:
    me = client(web.url)
    assert await me.publish(b"a", expect=0) == 1
    with pytest.raises(SequenceChanged, match="the last event has number 1, not 0") as raised:
        await me.publish(b"b", expect=0)
    assert raised.value.last == 1
    assert await me.publish(b"b", expect=raised.value.last) == 2


@inline
async def test_http_client_reads_paged_event_ranges(memory: Memory, serve: Serve, client: MakeClient) -> None:
    web = serve(memory, WebConfig(page_events=7))
    memory.order(*[b"%d" % number for number in range(30)])
    me = client(web.url)
    events = await me.events(3, 28)
    assert [event.sequence for event in events] == list(range(3, 29))
    assert [event.data for event in events] == [b"%d" % number for number in range(2, 28)]
    assert len(await me.events(29, 99)) == 2
    assert await me.events(31, 99) == []
    memory.forget(10)
    with pytest.raises(EventsNotHeld) as caught:
        await me.events(9, 12)
    assert (caught.value.oldest, caught.value.last) == (10, 30)


@inline
async def test_http_client_follows_new_and_earlier_events(web: Served, client: MakeClient, reached: WaitUntil) -> None:
    web.node.order(*[b"x"] * 5)
    live, all_ = Listener(), Listener()
    me = client(web.url)
    following = me.follow(live)
    me.follow(all_, 1)
    await reached(lambda: following.next == 6 and len(all_.numbers) == 5)
    web.node.order(b"{}", b"\xff")
    await reached(lambda: len(live.numbers) == 2 and len(all_.numbers) == 7)
    assert (live.numbers, live.data, all_.numbers) == ([6, 7], [b"{}", b"\xff"], list(range(1, 8)))
    following.stop()
    await following.stopped
    web.node.order(b"y")
    await reached(lambda: len(all_.numbers) == 8)
    assert live.numbers == [6, 7]
    await reached(lambda: web.site.connections <= 1)


@inline
async def test_follower_fails_over_without_loss_or_duplicates(
    memory: Memory, serve: Serve, another: type[Memory], client: MakeClient, reached: WaitUntil
) -> None:
    """Both nodes hold the same order; the second lags at first and holds fewer early events."""
    other = another()
    one, two = serve(memory), serve(other)
    memory.order(*[b"%d" % number for number in range(1, 11)])
    other.order(*[b"%d" % number for number in range(1, 8)])
    listener = Listener()
    client(one.url, two.url).follow(listener, 1)
    await reached(lambda: len(listener.numbers) == 10)
    one.site.close()
    # The second node refuses, so the first is asked again.
    await reached(lambda: two.site.requests["/events", b"GET", 409] > 0 and len(one.site.streams) == 1)
    other.order(b"8", b"9", b"10", b"11")
    one.site.close()
    await reached(lambda: len(listener.numbers) == 11)
    other.forget(11)
    memory.jump(20)
    memory.order(b"20", b"21")
    two.site.close()
    await reached(lambda: 21 in listener.numbers)
    assert listener.numbers == [*range(1, 12), 20, 21]
    assert listener.data == [b"%d" % number for number in listener.numbers]
    assert listener.skipped == [(12, 19)]


@inline
async def test_follower_resumes_before_its_first_event(
    memory: Memory, serve: Serve, client: MakeClient, reached: WaitUntil
) -> None:
    web = serve(memory)
    memory.order(b"before")
    listener = Listener()
    following = client(web.url).follow(listener)
    await reached(lambda: following.next == 2)
    web.site.close()
    memory.order(b"meanwhile")
    await reached(lambda: listener.numbers == [2])


@inline
async def test_follower_leaves_a_node_without_a_quorum(
    memory: Memory, serve: Serve, another: type[Memory], client: MakeClient, reached: WaitUntil
) -> None:
    clock = Clock()
    minority = another()
    minority.no_quorum()
    one, two = serve(minority, clock=clock), serve(memory)
    listener = Listener()
    client(one.url, two.url).follow(listener, 1)
    await reached(lambda: one.site.connections == 1)
    await reached(lambda: bool(minority.listeners))
    clock.advance(15)
    memory.order(b"x")
    await reached(lambda: listener.numbers == [1])


@inline
async def test_exception_of_its_listener_ends_a_follower(web: Served, client: MakeClient) -> None:
    listener = Listener()
    listener.raising = ZeroDivisionError()
    following = client(web.url).follow(listener, 1)
    web.node.order(b"x")
    with pytest.raises(ZeroDivisionError):
        await following.stopped


@pytest.mark.parametrize(
    "text",
    [
        b"data: {}\n\n",
        b"data: \xff\n\n",
        b"data: [" + b"[" * 9_000 + b"\n\n",
        b"id: x\n\n",
        b'event: skipped\ndata: {"first": 1, "last": "9"}\n\n',
        b'data: {"sequence": 1, "publisher": "a", "data": "!"}\n\n',
        b'data: {"sequence": -1, "publisher": "a", "data": ""}\n\n',
        b'data: {"sequence": 1, "publisher": "a", "json": 1}\n\n',
    ],
)
@inline
async def test_invalid_event_stream_fails_over(
    memory: Memory, serve: Serve, client: MakeClient, reached: WaitUntil, text: bytes, says: Callable[[bytes], Any]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    node = says(head + text)
    listener = Listener()
    client(node.url, serve(memory).url).follow(listener)
    await reached(lambda: bool(memory.listeners))
    memory.order(b"x")
    await reached(lambda: listener.numbers == [1])
    assert listener.skipped == []


@inline
async def test_follower_drops_duplicates_and_reports_gaps(
    client: MakeClient, reached: WaitUntil, says: Callable[[bytes], Any]
) -> None:
    item = 'data: {"sequence": %d, "publisher": "a", "data": "eA=="}\nid: %d\n\n'
    text = "id: 0\n\n" + "".join(item % (number, number) for number in (1, 2, 1, 2, 5, 3, 6))
    listener = Listener()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    client(says(head + text.encode()).url).follow(listener)
    await reached(lambda: 6 in listener.numbers)
    assert listener.numbers == [1, 2, 5, 6]
    assert listener.skipped == [(3, 4)]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n{",
        b'HTTP/1.1 201 Created\r\nContent-Length: 16\r\n\r\n{"sequence":"1"}',
        # A decompression bomb is not decompressed.
        b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: 34\r\n\r\n" + PACKED,
    ],
)
@inline
async def test_invalid_http_reply_leaves_the_publish_uncertain(
    client: MakeClient, answer: bytes, says: Callable[[bytes], Any]
) -> None:
    with pytest.raises(NotOrdered) as caught:
        await client(says(answer).url).publish(b"x")
    assert caught.value.unknown


@pytest.fixture
def says() -> Iterator[Callable[[bytes], Any]]:
    """Return a factory of servers that send a fixed response to every request."""
    ports: list[Any] = []

    def make(answer: bytes) -> Any:
        factory: Any = Factory.forProtocol(Relay)
        factory.take = lambda protocol, data: protocol.transport.write(answer)
        ports.append(reactor.listenTCP(0, factory, interface="127.0.0.1"))
        factory.url = f"http://127.0.0.1:{ports[-1].getHost().port}"
        return factory

    yield make
    for port in ports:
        pytest_twisted.blockon(port.stopListening())


@inline
async def test_silent_event_stream_fails_over(
    memory: Memory, serve: Serve, client: MakeClient, reached: WaitUntil, says: Callable[[bytes], Any]
) -> None:
    clock = Clock()
    node = says(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 0\n\n")
    listener = Listener()
    following = client(node.url, serve(memory).url, reactor=TimedReactor(clock)).follow(listener)
    await reached(lambda: following.next == 1)
    clock.advance(44)
    assert memory.listeners == []
    clock.advance(2)
    await reached(lambda: bool(memory.listeners))


@inline
async def test_event_stream_with_heartbeats_is_kept(
    memory: Memory, serve: Serve, client: MakeClient, reached: WaitUntil
) -> None:
    clock = Clock()
    web = serve(memory, clock=clock)
    following = client(web.url, reactor=TimedReactor(clock)).follow(Listener())
    await reached(lambda: following.next == 1)
    await reached(lambda: bool(clock.advance(0.5) or clock.seconds() > 120))
    assert not web.site.streams.ended


@inline
async def test_close_of_the_http_client_fails_pending_publishes(
    memory: Memory, serve: Serve, client: MakeClient, reached: WaitUntil
) -> None:
    memory.held = deque()
    web = serve(memory)
    me = client(web.url)
    published: list[Deferred[int]] = [me.publish(b"1"), me.publish(b"2")]
    following = me.follow(Listener())
    await reached(lambda: bool(memory.held) and bool(memory.listeners))
    await me.close()
    unknown = []
    for one in published:
        with pytest.raises(NotOrdered) as caught:
            await one
        unknown.append(caught.value.unknown)
    assert unknown == [True, False]
    await following.stopped
    with pytest.raises(NotOrdered):
        await me.publish(b"3")
    await reached(lambda: web.site.connections == 0)
