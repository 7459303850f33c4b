"""Scrapes of misbehaving services over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any
from unittest.mock import Mock

import pytest
import pytest_twisted
from integration.running.clock import SkippingClock
from twisted.internet.defer import gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs

from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.scraper import MetricsScraper, ScrapeTarget, ServiceScrape
from fyrehose_twisted.query.monitoring.scraping import MAX_MISSED

DEADLINE = 120.0

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
GOOD = HEAD + b"Content-Length: 13\r\n\r\nfyrehose_a 1\n"


class Misbehaving(Protocol):
    """Server connection that behaves as its factory says."""

    factory: Any

    def connectionMade(self) -> None:
        self.factory.connections.add(self)
        if self.factory.at_once is not None:
            self.factory.at_once(self.transport)

    def dataReceived(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1].partition(b"?")[0]
        if path in self.factory.asked_of:
            self.factory.asked_of[path](self.transport)
        else:
            self.factory.requests += 1
            self.factory.asked(self.transport)

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.connections.discard(self)


class Server(Factory):
    """Metrics server.

    :ivar at_once: called with a new connection.
    :ivar asked: called with a connection that received a request.
    :ivar asked_of: the same for one path, whose requests are not counted.
    :ivar requests: number of requests.
    """

    protocol = Misbehaving
    noisy = False

    def __init__(self) -> None:
        self.connections: set[Any] = set()
        self.requests = 0
        self.at_once: Callable[[Any], object] | None = None
        self.asked: Callable[[Any], object] = self.answer
        self.asked_of: dict[bytes, Callable[[Any], object]] = {}

    @staticmethod
    def answer(transport: Any) -> None:
        transport.write(GOOD)

    def misbehave(
        self, at_once: Callable[[Any], object] | None = None, asked: Callable[[Any], object] = lambda transport: None
    ) -> None:
        self.at_once, self.asked = at_once, asked
        for connection in list(self.connections):
            connection.transport.abortConnection()

    def behave(self) -> None:
        self.misbehave(None, self.answer)


class Watching:
    """A watcher of one server on a manual clock."""

    def __init__(self, clock: SkippingClock) -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.clock = clock
        self.server = Server()
        self.port = self.reactor.listenTCP(0, self.server, interface="127.0.0.1")
        self.config = QueryConfig()
        url = f"http://127.0.0.1:{self.port.getHost().port}/metrics"
        self.watcher = MetricsScraper([ScrapeTarget("one", url)], self.config, clock)

    @property
    def seen(self) -> ServiceScrape:
        (seen,) = self.watcher.results
        return seen

    async def until(self, condition: Callable[[], object]) -> None:
        end = monotonic() + DEADLINE
        while not condition():
            assert monotonic() < end, self.seen
            await deferLater(self.reactor, 0)

    async def scrape(self, *, late: bool = False) -> ServiceScrape:
        """Run the next scrape, until its timeout if it is to be ``late``."""
        before, requests = self.seen.at, self.server.requests
        self.clock.skip(self.config.scrape_interval)
        if late:
            await self.until(lambda: self.server.requests > requests)
            self.clock.skip(self.config.scrape_timeout)
        await self.until(lambda: self.seen.at > before)
        return self.seen

    async def close(self) -> None:
        self.watcher.stop()
        self.server.misbehave()
        await self.until(lambda: not self.server.connections)
        await gatherResults([self.port.stopListening()])


@pytest_twisted.async_yield_fixture
async def watching(skipping_clock: type[SkippingClock]) -> AsyncIterator[Watching]:
    made = Watching(skipping_clock())
    made.watcher.start()
    await made.until(lambda: made.seen.up)
    yield made
    await made.close()


def sends(data: bytes, *, closes: bool = False) -> Callable[[Any], None]:
    def send(transport: Any) -> None:
        transport.write(data)
        if closes:
            transport.loseConnection()

    return send


LATE = "no answer within 2 s"

MISBEHAVIOURS: dict[str, tuple[dict[str, Any], str]] = {
    "accepts-and-closes": ({"at_once": lambda transport: transport.loseConnection()}, "closed"),
    "accepts-and-resets": ({"at_once": lambda transport: transport.abortConnection()}, "reset"),
    "closes-when-asked": ({"asked": lambda transport: transport.loseConnection()}, "closed"),
    "stands-still": ({}, LATE),
    "stands-still-in-its-headers": ({"asked": sends(HEAD)}, LATE),
    "stands-still-in-its-body": ({"asked": sends(GOOD[:-1])}, LATE),
    "closes-in-its-body": ({"asked": sends(GOOD[:-1], closes=True)}, "closed"),
    "garbage-at-once": ({"at_once": sends(b"\x00\xff\r\n\r\n" * 100)}, "the answer is not HTTP"),
    "garbage-when-asked": ({"asked": sends(b"\x16\x03\x01 no HTTP at all\r\n\r\n")}, "the answer is not HTTP"),
    "another-page": ({"asked": sends(HEAD + b"Content-Length: 6\r\n\r\n<html>")}, "the page is not a page of metrics"),
    "an-error": ({"asked": sends(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")}, "it responds with status 500"),
    "a-page-without-end": ({"asked": sends(HEAD + b"\r\n" + b"x" * (2**20 + 1))}, "longer than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
@pytest_twisted.ensureDeferred
async def test_misbehaving_target_is_down_after_three_scrapes_until_it_answers_again(
    watching: Watching, name: str
) -> None:
    behaviour, why = MISBEHAVIOURS[name]
    heard_at = watching.seen.heard_at
    with capturedLogs() as logged:
        watching.server.misbehave(**behaviour)
        for missed in range(1, MAX_MISSED + 1):
            seen = await watching.scrape(late=LATE in why)
            assert (seen.missed, seen.up) == (missed, missed < MAX_MISSED)
            assert why in seen.why
            # The last figures, with their age.
            assert (seen.heard_at, seen.metrics) == (heard_at, {"fyrehose_a": [({}, 1.0)]})
        watching.server.behave()
        await watching.until(lambda: not watching.server.connections)
        seen = await watching.scrape()
    assert (seen.up, seen.missed, seen.why) == (True, 0, "")
    assert seen.heard_at > heard_at
    assert [event for event in logged if "log_failure" in event] == []
    # One log line when it starts and one when it ends.
    assert [event["log_level"].name for event in logged if event.get("log_namespace", "").endswith("PageScraper")] == [
        "warn",
        "info",
    ]


@pytest_twisted.ensureDeferred
async def test_target_is_down_when_its_figures_are_too_old(watching: Watching) -> None:
    for scrape in watching.watcher._scrapes:
        scrape._periodic_call.stop()
    assert watching.seen.up
    watching.clock.skip(MAX_MISSED * (watching.config.scrape_interval + watching.config.scrape_timeout) + 1)
    assert not watching.seen.up
    assert watching.seen.why.startswith("no reply for 1")


@pytest_twisted.ensureDeferred
async def test_exception_does_not_stop_the_scrapes(
    skipping_clock: type[SkippingClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching(skipping_clock())
    with monkeypatch.context() as patch, capturedLogs() as logged:
        patch.setattr(
            "fyrehose_twisted.query.monitoring.scraping.describe_failure", Mock(side_effect=TypeError("a bug"))
        )
        watching.server.misbehave(lambda transport: transport.loseConnection())
        watching.watcher.start()
        await watching.until(lambda: any("log_failure" in event for event in logged))
    watching.server.behave()
    await watching.scrape()
    assert watching.seen.up
    await watching.close()


BACKBONE = HEAD + b"Content-Length: 29\r\n\r\nfyrehose_backbone_clients 1.0"
NO_LIST: dict[str, tuple[bytes, str]] = {
    "an-error": (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "it responds with status 404"),
    "no-json": (HEAD + b"Content-Length: 6\r\n\r\n<html>", "the page is not a list of clients"),
    "without-end": (HEAD + b"\r\n" + b"x" * (2**20 + 1), "longer than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", NO_LIST)
@pytest_twisted.ensureDeferred
async def test_backbone_with_a_malformed_client_list_is_up(skipping_clock: type[SkippingClock], name: str) -> None:
    watching = Watching(skipping_clock())
    body = b'{"clients":7,"list":[{"address":"h:1","kind":"journal"}]}'
    lists = [HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)]
    watching.server.asked = lambda transport: transport.write(BACKBONE)
    watching.server.asked_of = {b"/clients": lambda transport: transport.write(lists[0])}
    watching.watcher.start()
    await watching.until(lambda: watching.seen.up)
    assert watching.watcher.clients["one"].content.total == 0
    await watching.scrape()
    await watching.until(lambda: watching.watcher.clients["one"].up)
    lists[0], why = NO_LIST[name]
    for missed in range(1, MAX_MISSED + 1):
        await watching.scrape()
        await watching.until(lambda missed=missed: watching.watcher.clients["one"].missed == missed)
        known = watching.watcher.clients["one"]
        assert (known.up, watching.seen.up, watching.seen.missed) == (missed < MAX_MISSED, True, 0)
        assert why in known.why
        assert known.content.total == 7
    await watching.close()
