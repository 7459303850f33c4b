"""Addresses of stream peers, dialling, and the rate-limited log."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import fail, succeed
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import DNSLookupError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import Logger, capturedLogs

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.addresses import (
    endpoint_factory_from,
    format_address,
    parse_address,
    resolve_address,
    tcp_endpoint,
)
from fyrehose_twisted.process.rate_limited_log import RateLimitedLog
from fyrehose_twisted.report_limiter import INTERVAL, MAX_REPORTS


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:7878", ("127.0.0.1", 7878)),
        ("[::1]:1", ("::1", 1)),
        ("[0:0:0:0:0:0:0:1]:1", ("::1", 1)),
        ("db-1.example:65535", ("db-1.example", 65_535)),
    ],
)
def test_stream_addresses_are_parsed_and_formatted(text: str, place: Any) -> None:
    assert parse_address(text) == place
    assert parse_address(format_address(place)) == place


@pytest.mark.parametrize(
    "text", ["", "a", ":1", "a:", "a:0", "a:65536", "a:x", "a:²", "::1:1", "[::1:1", "::1]:1", "[a]:1", "[127.0.0.1]:1"]
)
def test_an_invalid_stream_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "kind"),
    [("127.0.0.1", TCP4ClientEndpoint), ("::1", TCP6ClientEndpoint), ("localhost", HostnameEndpoint)],
)
def test_the_endpoint_type_follows_the_address_family(host: str, kind: type) -> None:
    assert isinstance(tcp_endpoint(MemoryReactorClock(), (host, 1)), kind)


def test_a_dial_template_is_filled_with_host_and_port() -> None:
    reactor = MemoryReactorClock()
    endpoint: Any = endpoint_factory_from("tcp:{host}:{port}:timeout=7")(reactor, ("192.0.2.1", 78))
    assert (endpoint._host, endpoint._port, endpoint._timeout) == ("192.0.2.1", 78, 7)
    colons: Any = endpoint_factory_from("tcp:host={host}:port={port}")(reactor, ("::1", 78))
    assert colons._host == "::1"


@pytest.mark.parametrize("template", ["tls", "tls:{host}:443", "tls:x:{port}"])
def test_an_invalid_dial_template_is_refused(template: str) -> None:
    with pytest.raises(ConfigurationError, match="must contain"):
        endpoint_factory_from(template)


class Resolving:
    """A reactor that resolves one name."""

    def resolve(self, name: str) -> Any:
        return succeed("192.0.2.9") if name == "known" else fail(DNSLookupError("unheard of"))


@pytest_twisted.ensureDeferred
async def test_host_names_are_resolved_and_ip_addresses_are_not() -> None:
    assert await resolve_address(Resolving(), ("known", 7)) == ("192.0.2.9", 7)
    assert await resolve_address(None, ("::1", 7)) == ("::1", 7)
    with pytest.raises(OperationalError, match="'unknown' has no IP address"):
        await resolve_address(Resolving(), ("unknown", 7))


def test_warnings_are_logged_once_a_minute_per_source_and_kind() -> None:
    clock = Clock()
    rate_limited_log = RateLimitedLog(Logger(), clock.seconds)
    with capturedLogs() as logged:
        assert rate_limited_log.warn("late", "a", "{source} is late by {much}", much=3)
        assert not rate_limited_log.warn("late", "a", "{source} is late")
        assert rate_limited_log.warn("late", "b", "{source} is late")
        assert rate_limited_log.warn("rude", "a", "{source} is rude")
        clock.advance(INTERVAL - 1)
        assert not rate_limited_log.warn("late", "a", "{source} is late")
        clock.advance(1)
        assert rate_limited_log.warn("late", "a", "{source} is late")
    assert [event["source"] for event in logged] == ["a", "b", "a", "a"]


def test_warnings_of_many_sources_are_bounded_in_memory_and_log() -> None:
    clock = Clock()
    rate_limited_log = RateLimitedLog(Logger(), clock.seconds)
    with capturedLogs() as logged:
        for number in range(MAX_REPORTS + 100):
            rate_limited_log.warn("late", str(number), "{source} is late")
        assert len(logged) == MAX_REPORTS
        clock.advance(INTERVAL)
        assert rate_limited_log.warn("late", "one more", "{source} is late")
        assert len(rate_limited_log._reports) == 1
