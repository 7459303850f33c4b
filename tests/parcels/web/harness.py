"""In-memory cluster of one node, its web site on loopback, and clients that see bytes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import pytest_twisted
import treq
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.web.client import HTTPConnectionPool
from zope.interface import implementer

from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.errors import (
    EventsNotHeld,
    NoSuccessor,
    NoSuchMember,
    NotLeader,
    NotOrdered,
    SequenceChanged,
    StateUnavailable,
)
from fyrehose_twisted.interfaces import IClusterOperator, IOrderedEvents
from fyrehose_twisted.parcels.backup import BackupHead
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering
from fyrehose_twisted.parcels.node.status import MemberStatus, NeighbourStatus, NodeStatus
from fyrehose_twisted.parcels.wire.messages import Event
from fyrehose_twisted.web.site import WebSite

reactor: Any = installed_reactor

DEADLINE = 120.0
"""Seconds after which a condition that does not hold fails the test."""


@implementer(IOrderedEvents, IClusterOperator)
class Memory:
    """In-memory cluster that orders at once, or delays or refuses replies as a test says.

    :ivar cluster_id: id of the cluster; initially unknown.
    :ivar held: delayed replies; ``None`` to reply at once.
    :ivar refusing: error of every publish.
    """

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.oldest = 1
        self.mode = "Wrk"
        self.cluster_id = ""
        self.held: deque[Callable[[], None]] | None = None
        self.refusing: Exception | None = None
        self.keys: dict[tuple[str, str], int] = {}
        self.listeners: list[Any] = []
        self.reformed = 0

    @property
    def last(self) -> int:
        return self.log[-1].sequence if self.log else self.oldest - 1

    def order(self, *data: bytes, publisher: str = "node-1") -> int:
        """Order events; return the number of the last one."""
        first = self.last + 1
        events = [Event(number, publisher, 1, number, item) for number, item in enumerate(data, first)]
        self.log += events
        for listener in list(self.listeners):
            listener.events_ordered(events)
        return self.last

    def publish(self, data: bytes, publisher: str = "", key: str = "", *, expect: int | None = None) -> Deferred[int]:
        if self.refusing is not None:
            return fail(self.refusing)
        publisher = publisher or "node-1"
        if key and (publisher, key) in self.keys:
            sequence = self.keys[publisher, key]
        elif expect not in (None, self.last):
            return fail(SequenceChanged(f"the last event has number {self.last}, not {expect}", self.last))
        else:
            sequence = self.keys[publisher, key] = self.order(data, publisher=publisher)
        if self.held is None:
            return succeed(sequence)
        answer: Deferred[int] = Deferred()
        self.held.append(lambda: answer.callback(sequence))
        return answer

    def publish_many(self, events: Sequence[bytes]) -> Deferred[list[int]]:
        return succeed([self.order(data) for data in events])

    def synchronize(self) -> Deferred[int]:
        if self.refusing is not None:
            return fail(self.refusing)
        if self.held is None:
            return succeed(self.last)
        answer: Deferred[int] = Deferred()
        self.held.append(lambda: answer.callback(self.last))
        return answer

    def events(self, first: int, last: int, limit: int) -> list[Event]:
        if first < self.oldest:
            raise EventsNotHeld(first, self.oldest, self.last)
        return [event for event in self.log if first <= event.sequence <= last][:limit]

    def listen(self, listener: Any) -> None:
        self.listeners.append(listener)

    def unlisten(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def forget(self, oldest: int) -> None:
        """Evict the events before ``oldest``."""
        self.oldest = oldest
        self.log = [event for event in self.log if event.sequence >= oldest]

    def jump(self, first: int) -> None:
        """Skip the events before ``first``, as a node that was disconnected does."""
        missed = self.last + 1, first - 1
        self.log, self.oldest = [], first
        for listener in list(self.listeners):
            listener.events_skipped(*missed)

    def transfer_leadership(self, name: str | None = None) -> str:
        if self.mode != "Wrk":
            raise NotLeader("node-7")
        if name not in (None, "node-2"):
            raise NoSuccessor(f"{name!r} is no other member")
        return "node-2"

    def remove(self, name: str) -> None:
        if self.mode != "Wrk":
            raise NotLeader("node-7")
        if name != "node-2":
            raise NoSuchMember(f"{name!r} is no other member")

    def backup_head(self) -> BackupHead:
        if self.mode != "Wrk":
            raise StateUnavailable("behind", "the node has events up to 7 so far")
        return BackupHead(
            "test", self.cluster_id, EventNumbering().dump(Membership(())), self.oldest, self.last, 0, None
        )

    def no_quorum(self) -> None:
        """Lose the quorum."""
        self.mode = "Err"
        self.refusing = NotOrdered("no-quorum", "1 of 3 members can be reached", unknown=False)

    def quorum(self) -> None:
        """Regain the quorum."""
        self.mode, self.refusing = "Wrk", None

    def state(self) -> NodeStatus:
        members = (MemberStatus("node-1", "0" * 16, "127.0.0.1:4000", True, 3, self.last, 0),)
        neighbours = (NeighbourStatus("node-2", 7, "127.0.0.1:4001", "Dsc", True, False, 1.5),)
        counters = {"events_ordered": len(self.log), "bad-parcels": 0}
        why = "alone" if self.mode == "Wrk" else "no quorum"
        head = "node-1", 5, "0" * 16, "test", self.cluster_id, self.mode, why, "node-1" if self.mode == "Wrk" else None
        return NodeStatus(*head, 3, self.last, self.oldest, 1, members, neighbours, counters)

    def recreate_cluster(self, cluster_id: str) -> None:
        """Discard all events and become another cluster of the same name."""
        self.cluster_id, self.log, self.oldest = cluster_id, [], 1

    def force_new_cluster(self) -> None:
        self.reformed += 1
        self.quorum()


class Response(NamedTuple):
    """HTTP response as received."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


class Wire(Protocol):
    """Raw client connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self.lost = False
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def dataReceived(self, data: bytes) -> None:
        self._received += data
        self._look()

    @property
    def data(self) -> bytes:
        """Return all data received."""
        return bytes(self._received)

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True
        self._look()

    def send(self, *data: bytes) -> Wire:
        for part in data:
            self.transport.write(part)  # type: ignore[union-attr]
        return self

    def _look(self) -> None:
        for condition, done in list(self._waiting):
            if condition() and not done.called:
                done.callback(None)

    def until(self, condition: Callable[[], bool]) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._waiting.append((condition, done))
        self._look()
        return done.addTimeout(DEADLINE, reactor)

    async def read(self, text: bytes, times: int = 1) -> bytes:
        """Wait until ``text`` was received ``count`` times; return all data."""
        try:
            await self.until(lambda: self.lost or self._received.count(text) >= times)
        except Exception:
            raise AssertionError(f"no {text!r} in {self.data[-2000:]!r}") from None
        assert self.data.count(text) >= times, self.data
        return self.data

    async def closed(self) -> bytes:
        """Wait for the close of the connection; return all data."""
        await self.until(lambda: self.lost)
        return self.data

    async def responses(self, count: int) -> list[Response]:
        """Wait for responses with a declared length."""
        await self.until(lambda: self.lost or len(split(self.data)) >= count)
        found = split(self.data)
        assert len(found) >= count, self.data
        return found


def split(data: bytes) -> list[Response]:
    """Return the complete responses in ``data``."""
    found = []
    while b"\r\n\r\n" in data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(data) < length:
            break
        found.append(Response(int(status.split()[1]), headers, data[:length]))
        data = data[length:]
    return found


class Served:
    """A listening site."""

    def __init__(self, node: Memory, made: WebSite, port: Any) -> None:
        self.node = node
        self.site = made
        self.port = port
        self.number: int = port.getHost().port
        self.url = f"http://127.0.0.1:{self.number}"
        self.wires: list[Wire] = []
        self.pool = HTTPConnectionPool(reactor)

    async def ask(self, method: str, path: str, data: bytes | None = None, /, **headers: str) -> Response:
        """Make a request; ``content_type=`` is a header."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        response: Any = await treq.request(
            method, self.url + path, data=data, headers=names, pool=self.pool, timeout=DEADLINE, allow_redirects=False
        )
        body = await response.content()
        found = {name.decode().lower(): values[0].decode() for name, values in response.headers.getAllRawHeaders()}
        return Response(response.code, found, body)

    async def wire(self) -> Wire:
        """Open a connection."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.number)
        self.wires.append(await endpoint.connect(Factory.forProtocol(Wire)))
        return self.wires[-1]

    async def send(self, *data: bytes) -> Wire:
        """Open a connection and send data."""
        return (await self.wire()).send(*data)

    def stop(self) -> None:
        for wire in self.wires:
            if not wire.lost:
                wire.transport.abortConnection()  # type: ignore[union-attr]
        pytest_twisted.blockon(self.pool.closeCachedConnections())
        pytest_twisted.blockon(maybeDeferred(self.port.stopListening))
        pytest_twisted.blockon(Deferred.fromCoroutine(wait_until(lambda: not self.site.connections)))


async def wait_until(condition: Callable[[], bool]) -> None:
    end = reactor.seconds() + DEADLINE
    while not condition():
        assert reactor.seconds() < end, "it never came to that"
        await deferLater(reactor, 0.001, lambda: None)


Serve = Callable[..., Served]
WaitUntil = Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]


class FakeSender:
    """Webhook sender that records requests and answers as a test says.

    :ivar posts: URL, headers and body of each request.
    :ivar answers: statuses or errors of the next requests; 200 when empty.
    :ivar held: unanswered requests by URL.
    :ivar refused: error of registrations.
    """

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: deque[int | Exception] = deque()
        self.held: dict[str, deque[Deferred[int]]] = {}
        self.refused: Exception | None = None
        self.cancelled = 0
        self.closed = False

    def check(self, url: str) -> Deferred[None]:
        return succeed(None) if self.refused is None else fail(self.refused)

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Deferred[int]:
        self.posts.append((url, headers, body))
        if url in self.held:
            answer: Deferred[int] = Deferred(self._cancel)
            self.held[url].append(answer)
            return answer
        told = self.answers.popleft() if self.answers else 200
        return succeed(told) if isinstance(told, int) else fail(told)

    def _cancel(self, deferred: object) -> None:
        self.cancelled += 1

    def sequences(self, url: str | None = None) -> list[int]:
        return [int(headers["Event-Sequence"]) for to, headers, _ in self.posts if url in (None, to)]

    def close(self) -> Deferred[None]:
        self.closed = True
        return succeed(None)
