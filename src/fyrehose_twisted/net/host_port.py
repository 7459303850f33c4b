"""Turning what a user types into addresses and endpoints."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.addresses import ip_version


def parse_host_port(text: str) -> Address:
    """Return host and port of ``HOST:PORT``. :raises ConfigurationError: if it is not that."""
    host, colon, port = text.rpartition(":")
    if ip_version(host.strip("[]")) == 6 or ip_version(text.strip("[]")) == 6:
        raise ConfigurationError(f"{text!r} is an IPv6 address, and fyrehose uses IPv4 only: give an IPv4 address")
    # Of very many digits, Python makes no number.
    if not colon or not host or not port.isdecimal() or len(port) > 5 or not 1 <= int(port) <= 65_535:
        raise ConfigurationError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:2323")
    return host, int(port)


async def resolve_host_port(reactor: Any, text: str) -> Address:
    """Return the IPv4 address and port of ``HOST:PORT``.

    :raises ConfigurationError: if ``text`` is not that.
    :raises OperationalError: if the name has no IPv4 address.
    """
    host, port = parse_host_port(text)
    try:
        return str(await reactor.resolve(host)), port
    except CancelledError:
        raise
    except Exception as error:
        raise OperationalError(f"{host!r} has no IPv4 address ({error})") from error


def loopback_endpoint(reactor: Any, description: str) -> IStreamServerEndpoint:
    """Return a server endpoint; a TCP one that names no interface listens on loopback.

    :raises ConfigurationError: if ``description`` is no endpoint.
    """
    if description.isdecimal():
        description = f"tcp:{description}"
    if description.startswith("tcp:") and "interface=" not in description:
        description += ":interface=127.0.0.1"
    try:
        endpoint: IStreamServerEndpoint = serverFromString(reactor, description)
    except Exception as error:  # What parsers of endpoints raise is their own affair.
        raise ConfigurationError(f"{description!r} is not an endpoint such as tcp:9100 ({error})") from error
    return endpoint
