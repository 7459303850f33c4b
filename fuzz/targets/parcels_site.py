"""Web site of a parcels node: arbitrary bytes on a connection, in pieces, while time passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import ILogObserver, LogEvent, LogLevel, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from fuzz.choices import cut
from fyrehose_twisted.errors import EventsNotHeld, NotOrdered, SequenceChanged
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.node.status import MemberStatus, NeighbourStatus, NodeStatus
from fyrehose_twisted.parcels.web import WebConfig, site
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks
from fyrehose_twisted.parcels.wire.messages import Event

TOKEN = b"a-token-of-16-characters"
CONFIG = WebConfig(max_body=512, allowed_origin="https://example.org", max_callbacks=3, max_connections=2)
LARGEST = 65_536
"""Maximum size of a response here, in bytes."""
OLDEST, LAST = 3, 9
"""Limits of held events."""


@implementer(IOrderedEvents)
class Order:
    """Cluster that orders at once, except that it refuses the prefix ``no`` and never confirms the prefix ``wait``."""

    cluster_id = "00c0ffee00c0ffee"

    def __init__(self) -> None:
        self.log = [Event(number, "node-1", 1, number, b'{"n":%d}' % number) for number in range(OLDEST, LAST + 1)]
        self.listeners: list[Any] = []

    @property
    def oldest(self) -> int:
        """Return the first held number."""
        return OLDEST

    @property
    def last(self) -> int:
        """Return the last number."""
        return self.log[-1].sequence

    def publish(self, data: bytes, publisher: str = "", key: str = "", *, expect: int | None = None) -> Deferred[int]:
        """Order an event."""
        if expect is not None and expect != self.last:
            return fail(SequenceChanged(f"the last event has number {self.last}, not {expect}", self.last))
        if data.startswith(b"no"):
            return fail(NotOrdered("no-quorum", "1 of 3 members can be reached", unknown=False))
        if data.startswith(b"wait"):
            return Deferred()
        event = Event(self.last + 1, publisher or "node-1", 1, 1, data)
        self.log.append(event)
        for listener in list(self.listeners):
            listener.events_ordered([event])
        return succeed(event.sequence)

    def publish_many(self, events: Sequence[bytes]) -> Deferred[list[int]]:
        """Order events."""
        raise NotImplementedError("the web site does not ask for this")

    def synchronize(self) -> Deferred[int]:
        """Be up to date."""
        return succeed(self.last)

    def events(self, first: int, last: int, limit: int) -> list[Event]:
        """Return events."""
        if first < OLDEST:
            raise EventsNotHeld(first, OLDEST, self.last)
        return [event for event in self.log if first <= event.sequence <= last][:limit]

    def listen(self, listener: Any) -> None:
        """Add a listener."""
        self.listeners.append(listener)

    def unlisten(self, listener: Any) -> None:
        """Remove a listener."""
        self.listeners.remove(listener)

    def state(self) -> NodeStatus:
        """Return its state."""
        members = (MemberStatus("node-1", "0" * 16, "127.0.0.1:4000", True, 3, self.last, 0),)
        neighbours = (NeighbourStatus("node-2", 7, "127.0.0.1:4001", "Dsc", True, False, 1.5),)
        head = "node-1", 5, "0" * 16, "test", self.cluster_id, "Wrk", "alone", "node-1"
        return NodeStatus(*head, 3, self.last, OLDEST, 1, members, neighbours, {"bad-parcels": 0})

    def force_new_cluster(self) -> None:
        """Do nothing."""


class Nobody:
    """Webhook sender without a network."""

    def check(self, url: str) -> Deferred[None]:
        """Accept a target."""
        return succeed(None)

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Deferred[int]:
        """Accept an event."""
        return succeed(204)

    def close(self) -> Deferred[None]:
        """Do nothing."""
        return succeed(None)


class Wire(StringTransport):
    """In-memory connection. With bit 1 of the setup, the client does not read."""

    aborted = False

    def unregisterProducer(self) -> None:
        """Unregister the producer, if there is one, like a socket."""
        self.producer = None

    def abortConnection(self) -> None:
        """Close at once."""
        self.disconnecting = self.aborted = True


def _request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    length = (b"Content-Length: %d" % len(body),) if body else ()
    return b"\r\n".join((line + b" HTTP/1.1", b"Host: 127.0.0.1", *headers, *length, b"", body))


def seeds() -> Iterable[bytes]:
    """Return client data with a prefix byte for the site and one for the chunking."""
    url = b'{"url":"http://192.0.2.7/x","from":4,"secret":"s"}'
    said = [
        *(_request(b"GET " + path) for path in (b"/", b"/cluster", b"/health", b"/metrics", b"/openapi.json", b"/x")),
        _request(b"GET /events?from=3&to=5&limit=2"),
        _request(b"GET /events?from=1", b"Accept: text/event-stream"),
        _request(b"GET /events", b"Accept: text/event-stream", b"Last-Event-ID: 4"),
        _request(b"POST /events", b"Publisher: me", b"Idempotency-Key: k", body=b"x") * 2,
        _request(b"POST /events", b"Content-Type: application/json", body=b'{"a":1}'),
        _request(b"POST /events", body=b"no") + _request(b"POST /events", body=b"wait"),
        _request(b"POST /events", b"Expect: 100-continue", body=b"x" * 600),
        _request(b"POST /events", b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n",
        _request(b"POST /callbacks", body=url) + _request(b"GET /callbacks"),
        _request(b"DELETE /callbacks/0123456789abcdef"),
        _request(b"POST /cluster/reform", b"Origin: https://example.org"),
        _request(b"OPTIONS /events", b"Origin: https://example.org", b"Access-Control-Request-Method: POST"),
        _request(b"GET /cluster", b"Authorization: Bearer " + TOKEN, b"Accept-Encoding: gzip;q=0.5"),
        _request(b"HEAD /cluster", b"Connection: close"),
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\0\0",
        b"GET /" + b"x" * 300,
    ]
    for setup in (0, 1, 2):
        yield from (bytes((setup, 200)) + one_of_them for one_of_them in said)
    yield b"\0\x40" + b"".join(said[:12])


def one(data: bytes) -> None:
    """Serve a connection until it is closed; its output consists of responses, and no error is logged."""
    setup, size = (data[:2] + b"\0\0")[:2]
    stream = data[2:]
    clock, node = Clock(), Order()
    clock.advance(1_000.0)
    callbacks = Callbacks(node, Nobody(), CONFIG, clock, rng=Random(1))
    callbacks.start()
    made: Any = site(node, reactor=clock, token=TOKEN if setup & 1 else None, callbacks=callbacks, config=CONFIG)
    wrong: list[LogEvent] = []

    @implementer(ILogObserver)
    def look(event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.warn:
            wrong.append(event)

    globalLogPublisher.addObserver(look)
    try:
        channel, transport = made.buildProtocol(None), Wire()
        channel.makeConnection(transport)
        for piece in cut(stream, [size] if size else []):
            if not transport.disconnecting:
                channel.dataReceived(piece)
                clock.advance(0.1)
        for _ in range(200):
            if not transport.disconnecting or (setup & 2 and not transport.aborted):
                clock.advance(1.0)
        assert transport.aborted or not (setup & 2 and transport.disconnecting), (
            "who reads nothing keeps the connection"
        )
        channel.connectionLost(Failure(ConnectionDone()))
        clock.advance(2.0)
    finally:
        globalLogPublisher.removeObserver(look)
        callbacks.stop()
    assert not wrong, f"{wrong[0].get('log_format')}: {wrong[0].get('log_failure')}"
    assert made.connections == 0
    said = transport.value()
    assert not said or re.match(rb"HTTP/1\.[01] [1-5][0-9]{2} ", said), said[:80]
    answers = sum(made.requests.values())
    assert len(said) <= LARGEST * (answers + stream.count(b"\n") + 1), f"{len(said):,} bytes in {answers} answers"
