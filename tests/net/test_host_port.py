from __future__ import annotations

from typing import Any, ClassVar

import pytest
import pytest_twisted
from twisted.internet.address import IPv6Address
from twisted.internet.defer import fail, succeed
from twisted.internet.error import DNSLookupError
from twisted.internet.testing import MemoryReactor

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.addresses import (
    loopback_endpoint,
    parse_host_port,
    resolve_address,
    resolve_host_port,
)


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


@pytest.mark.parametrize("text", ["::1", "::1:2323", "[::1]", "[1.2.3.4]:1"])
def test_an_ipv6_host_has_brackets_and_a_port(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not HOST:PORT, such as 127\.0\.0\.1:2323 or \[::1\]:2323"):
        parse_host_port(text)


class BothResolver(Resolver):
    """A reactor that knows IPv6 addresses of names, too."""

    HOSTS: ClassVar = {"known.example": "2001:db8::1", "six.example": "2001:db8::6"}

    def __init__(self) -> None:
        self.nameResolver = self

    def resolveHostName(self, receiver: Any, name: str, addressTypes: Any) -> None:
        assert addressTypes == [IPv6Address]
        receiver.resolutionBegan(None)
        if name in self.HOSTS:
            receiver.addressResolved(IPv6Address("TCP", self.HOSTS[name], 0))
            receiver.addressResolved(IPv6Address("TCP", "2001:db8::ff", 0))
        receiver.resolutionComplete()


@pytest_twisted.ensureDeferred
async def test_a_name_is_resolved_to_an_ipv6_address_if_ipv4_is_of_no_use() -> None:
    reactor = BothResolver()
    assert await resolve_host_port(reactor, "six.example:7") == ("2001:db8::6", 7)
    assert await resolve_host_port(reactor, "known.example:7") == ("192.0.2.1", 7)
    known = "known.example", 7
    assert await resolve_address(reactor, known, is_usable=lambda address: False) == ("2001:db8::1", 7)
    with pytest.raises(OperationalError, match=r"'unknown\.example' has no IP address"):
        await resolve_host_port(reactor, "unknown.example:7")


@pytest_twisted.ensureDeferred
async def test_a_host_name_is_resolved_with_its_port() -> None:
    assert await resolve_host_port(Resolver(), "known.example:7") == ("192.0.2.1", 7)
    with pytest.raises(OperationalError, match=r"'unknown\.example' has no IP address .*no such name"):
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
