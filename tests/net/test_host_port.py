from __future__ import annotations

from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import fail, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.testing import MemoryReactor

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.addresses import loopback_endpoint, parse_host_port, resolve_host_port


class Resolver:
    """A reactor that resolves one name."""

    def resolve(self, host: str) -> Any:
        return succeed("192.0.2.1") if host == "known.example" else fail(DNSLookupError("no such name"))


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:2323", ("127.0.0.1", 2323)), ("a.example:1", ("a.example", 1)), ("b:65535", ("b", 65_535))],
)
def test_host_and_port_are_parsed(text: str, address: tuple[str, int]) -> None:
    assert parse_host_port(text) == address


@pytest.mark.parametrize("text", ["", ":", "host", "host:", ":2323", "host:0", "host:65536", "host:-1", "host:x"])
def test_an_invalid_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not HOST:PORT, such as 127\.0\.0\.1:2323"):
        parse_host_port(text)


@pytest.mark.parametrize("text", ["[::1]:2323", "::1", "::1:2323", "[::1]"])
def test_an_ipv6_host_is_refused_with_its_reason(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is an IPv6 address, and fyrehose uses IPv4 only: give an IPv4 add"):
        parse_host_port(text)


@pytest_twisted.ensureDeferred
async def test_a_host_name_is_resolved_with_its_port() -> None:
    assert await resolve_host_port(Resolver(), "known.example:7") == ("192.0.2.1", 7)
    with pytest.raises(OperationalError, match=r"'unknown\.example' has no IPv4 address .*no such name"):
        await resolve_host_port(Resolver(), "unknown.example:7")
    with pytest.raises(ConfigurationError):
        await resolve_host_port(Resolver(), "known.example")


@pytest.mark.parametrize(
    ("description", "interface"),
    [
        ("9100", "127.0.0.1"),
        ("tcp:9100", "127.0.0.1"),
        ("tcp:port=9100", "127.0.0.1"),
        ("tcp:9100:interface=192.0.2.1", "192.0.2.1"),
    ],
)
def test_an_endpoint_listens_on_loopback_by_default(description: str, interface: str) -> None:
    reactor = MemoryReactor()
    loopback_endpoint(reactor, description).listen(None)
    assert [(port, where) for port, _, _, where in reactor.tcpServers] == [(9100, interface)]


@pytest.mark.parametrize("description", ["", "tcp", "tcp:", "tcp:x", "nothing:9100", "tcp:1:2:3:4:5"])
def test_an_invalid_endpoint_description_is_refused(description: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an endpoint such as tcp:9100"):
        loopback_endpoint(MemoryReactor(), description)
