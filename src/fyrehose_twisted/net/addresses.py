"""Parsing, formatting and resolution of addresses and endpoints in options."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from twisted.internet.address import IPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
    clientFromString,
    quoteStringArgument,
    serverFromString,
)
from twisted.internet.interfaces import IResolutionReceiver, IStreamClientEndpoint, IStreamServerEndpoint
from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.host_addresses import format_address as format_address

DIAL_TIMEOUT = 3.0
"""Maximum seconds until a connection is open."""


def parse_address(text: str) -> Address:
    """Return host and port of ``HOST:PORT`` or ``[IPv6]:PORT``; the host may be a name.

    :raises ConfigurationError: if ``text`` is neither.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    # Python refuses to convert very long digit strings.
    decimal = port.isdecimal() and port.isascii() and len(port) <= 5
    fine = bool(colon and host and decimal) and 1 <= int(port) <= 65_535
    if not fine or (":" in host) != bracketed or (bracketed and ip_version(host) != 6) or not host.isprintable():
        raise ConfigurationError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:7878 or [::1]:7878")
    return str(ip_address(host)) if ip_version(host) else host, int(port)


def parse_host_port(text: str) -> Address:
    """Return host and port of ``HOST:PORT`` or ``[IPv6]:PORT`` of a backbone.

    :raises ConfigurationError: if ``text`` has another form.
    """
    try:
        return parse_address(text)
    except ConfigurationError:
        raise ConfigurationError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:2323 or [::1]:2323") from None


def parse_host_ports(text: str) -> tuple[Address, ...]:
    """Return hosts and ports of ``HOST:PORT`` or several of them, separated by commas.

    :raises ConfigurationError: if ``text`` has another form.
    """
    return tuple(dict.fromkeys(map(parse_host_port, text.split(","))))


def ip_version(host: str) -> int | None:
    """Return 4 or 6 for an IP address, ``None`` for a name."""
    try:
        return ip_address(host).version
    except ValueError:
        return None


def tcp_endpoint(reactor: Any, address: Address) -> IStreamClientEndpoint:
    """Return a TCP client endpoint of an address; a host name is resolved for each connection."""
    host, port = address
    kind = {4: TCP4ClientEndpoint, 6: TCP6ClientEndpoint}.get(ip_version(host) or 0, HostnameEndpoint)
    endpoint: IStreamClientEndpoint = kind(reactor, host, port, timeout=DIAL_TIMEOUT)
    return endpoint


def endpoint_factory_from(template: str) -> Callable[[Any, Address], IStreamClientEndpoint]:
    """Return an endpoint factory from a template of a client endpoint such as ``tls:{host}:{port}``.

    The factory replaces ``{host}`` and ``{port}`` with those of the address.

    :raises ConfigurationError: if ``template`` lacks one of them.
    """
    if "{host}" not in template or "{port}" not in template:
        raise ConfigurationError(f"{template!r} must contain {{host}} and {{port}}, such as tls:{{host}}:{{port}}")

    def endpoint_for(reactor: Any, address: Address) -> IStreamClientEndpoint:
        host, port = address
        text = template.replace("{host}", quoteStringArgument(host)).replace("{port}", str(port))
        endpoint: IStreamClientEndpoint = clientFromString(reactor, text)
        return endpoint

    return endpoint_for


async def resolve_address(
    reactor: Any, address: Address, *, is_usable: Callable[[Address], bool] = lambda address: True
) -> Address:
    """Resolve the host of an address, which may be a name; return the IP address and port.

    :param is_usable: returns whether an IPv4 address is of use. The IPv6 address is returned if it is not, or if there
        is none.
    :raises OperationalError: if the name has no IP address.
    """
    host, port = address
    if ip_version(host):
        return address
    found: Address | None = None
    problem: Exception | None = None
    try:
        found = str(await reactor.resolve(host)), port
    except CancelledError:
        raise
    except Exception as error:
        problem = error
    if found is None or not is_usable(found):
        ipv6_host = await _resolve_ipv6(reactor, host)
        if ipv6_host is not None:
            return ipv6_host, port
    if found is None:
        raise OperationalError(f"{host!r} has no IP address ({problem})") from problem
    return found


async def resolve_host_port(reactor: Any, text: str) -> Address:
    """Return the IP address and port of ``HOST:PORT``.

    :raises ConfigurationError: if ``text`` has another form.
    :raises OperationalError: if the name has no IP address.
    """
    return await resolve_address(reactor, parse_host_port(text))


@implementer(IResolutionReceiver)
class _FirstHost:
    """Receiver of the IP addresses of a name, of which the first one is used."""

    def __init__(self) -> None:
        self.host: Deferred[str | None] = Deferred()

    def resolutionBegan(self, resolutionInProgress: Any) -> None:
        """Twisted: the lookup has begun."""

    def addressResolved(self, address: Any) -> None:
        """Twisted: an address was found."""
        if not self.host.called:
            self.host.callback(str(address.host))

    def resolutionComplete(self) -> None:
        """Twisted: all addresses were found."""
        if not self.host.called:
            self.host.callback(None)


async def _resolve_ipv6(reactor: Any, host: str) -> str | None:
    """Return an IPv6 address of a name, ``None`` if it has none or the reactor only knows IPv4."""
    resolver = getattr(reactor, "nameResolver", None)
    if resolver is None:
        return None
    receiver = _FirstHost()
    resolver.resolveHostName(receiver, host, addressTypes=[IPv6Address])
    return await receiver.host


def loopback_endpoint(reactor: Any, description: str) -> IStreamServerEndpoint:
    """Return a server endpoint; TCP without an interface listens on loopback.

    :raises ConfigurationError: if ``description`` is not an endpoint.
    """
    if description.isdecimal():
        description = f"tcp:{description}"
    if description.startswith("tcp:") and "interface=" not in description:
        description += ":interface=127.0.0.1"
    try:
        endpoint: IStreamServerEndpoint = serverFromString(reactor, description)
    except ConfigurationError as error:
        raise ConfigurationError(f"{description!r}: {error}") from error
    except Exception as error:  # Endpoint parsers raise arbitrary exceptions.
        raise ConfigurationError(f"{description!r} is not an endpoint such as tcp:9100 ({error})") from error
    return endpoint
