"""Protection against server-side request forgery by callbacks.

Callbacks must not reach this host, its network or services of its provider, all of which may trust this node, nor any
service other than HTTP. The address is checked each time a connection is opened, and the connection goes to exactly the
checked address, because a name can resolve differently at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.address import IPv4Address as TCP4Address
from twisted.internet.address import IPv6Address as TCP6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import (
    IAddress,
    IHostResolution,
    IProtocolFactory,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.web.client import URI, BrowserLikePolicyForHTTPS
from twisted.web.error import SchemeNotSupported
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from fyrehose_twisted.errors import LocalError

MAX_URL = 2_000
URL_PATTERN = (
    r"^https?://([A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,20}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(:[0-9]{1,5})?([/?][!$-\[\]-~]*)?$"
)
"""URLs of callbacks, as a regular expression of JSON Schema. Credentials are excluded, as clients would see them."""
MAX_ADDRESSES = 4
"""Maximum number of addresses of one name to try."""

Resolve = Callable[[str], "Deferred[list[str]]"]
"""Returns the addresses of a host as text."""

URL = re.compile(URL_PATTERN)

_NAT64 = IPv6Network("64:ff9b::/96")
# A public address that only the machines of one provider can reach.
_METADATA = frozenset({ip_address("168.63.129.16")})
_SPECIAL_NETWORKS = (
    IPv4Network("192.88.99.0/24"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("2001::/23"),
    IPv6Network("3fff::/20"),
)


class InvalidUrl(LocalError):
    """A callback URL is malformed."""


class AddressNotAllowed(LocalError):
    """A callback targets a forbidden address or port.

    What is wrong is not told: strangers would learn which names and addresses this network has.
    """

    def __init__(self) -> None:
        super().__init__(
            "the target is not allowed: it needs a public address, and port 80, 443 or one that this node allows"
        )


def check_url(url: str, ports: Collection[int] | None = None) -> str:
    """Return the host of a callback URL.

    :param ports: allowed ports; ``None`` for any.
    :raises InvalidUrl: if the URL is malformed.
    :raises AddressNotAllowed: if its target is forbidden.
    """
    if len(url) > MAX_URL or URL.fullmatch(url) is None:
        raise InvalidUrl("url must be http or https, in ASCII, without user, password and fragment")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressNotAllowed from None
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    if not host or port == 0 or (ports is not None and port not in ports):
        raise AddressNotAllowed
    return host


def is_public(address: str) -> bool:
    """Return whether an IP address is public, in the sense of globally reachable and meant for everyone."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        if ip.is_site_local:
            return False
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
    if ip in _METADATA or any(ip.version == network.version and ip in network for network in _SPECIAL_NETWORKS):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


@implementer(IResolutionReceiver)
class _AddressReceiver:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.done: Deferred[list[str]] = Deferred()

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        pass

    def addressResolved(self, address: IAddress) -> None:
        if isinstance(address, TCP4Address | TCP6Address):
            self.found.append(address.host)

    def resolutionComplete(self) -> None:
        self.done.callback(self.found)


def reactor_resolver(reactor: Any) -> Resolve:
    """Return a function that resolves names with the reactor's resolver."""

    def resolve(host: str) -> Deferred[list[str]]:
        receiver = _AddressReceiver()
        reactor.nameResolver.resolveHostName(receiver, host, 0)
        return receiver.done

    return resolve


def checked_resolver(resolve: Resolve, allow_private: bool) -> Resolve:
    """Wrap ``resolve`` to fail with :class:`AddressNotAllowed` if there is no address, or any is not public."""

    def check(addresses: list[str]) -> list[str]:
        if not addresses or not (allow_private or all(map(is_public, addresses))):
            raise AddressNotAllowed
        return addresses[:MAX_ADDRESSES]

    return lambda host: resolve(host).addCallback(check)


@implementer(IStreamClientEndpoint)
class CheckedEndpoint:
    """Client endpoint that connects to one of the checked addresses of a host."""

    def __init__(self, reactor: Any, host: str, port: int, resolve: Resolve, timeout: float) -> None:
        self._reactor = reactor
        self._host = host
        self._port = port
        self._resolve = resolve
        self._timeout = timeout

    def connect(self, factory: IProtocolFactory) -> Any:
        """Twisted: see :class:`~twisted.internet.interfaces.IStreamClientEndpoint`."""
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        *others, last = await self._resolve(self._host)
        for address in others:
            try:
                return await self._endpoint(address).connect(factory)
            except ConnectingCancelledError:
                raise
            except ConnectError:
                continue
        return await self._endpoint(last).connect(factory)

    def _endpoint(self, address: str) -> Any:
        kind = TCP6ClientEndpoint if ":" in address else TCP4ClientEndpoint
        return kind(self._reactor, address, self._port, self._timeout)


@implementer(IAgentEndpointFactory)
class CheckedEndpoints:
    """Endpoint factory of an :class:`~twisted.web.client.Agent`.

    :param ports: allowed ports.
    :param policy: TLS policy; by default, the trust store of the system.
    """

    def __init__(
        self, reactor: Any, resolve: Resolve, timeout: float, ports: Collection[int], policy: Any = None
    ) -> None:
        self._ports = ports
        self._reactor = reactor
        self._resolve = resolve
        self._timeout = timeout
        self._policy = policy

    def endpointForURI(self, uri: URI) -> Any:
        """Twisted: return the endpoint of a URL."""
        if uri.scheme not in (b"http", b"https"):
            raise SchemeNotSupported(f"not http or https: {uri.scheme!r}")
        if uri.port not in self._ports:
            raise AddressNotAllowed
        host = uri.host.decode("ascii").strip("[]")
        endpoint = CheckedEndpoint(self._reactor, host, uri.port, self._resolve, self._timeout)
        if uri.scheme == b"http":
            return endpoint
        if self._policy is None:
            self._policy = BrowserLikePolicyForHTTPS()
        # The certificate has to match the name, not the address.
        return wrapClientTLS(self._policy.creatorForNetloc(uri.host, uri.port), endpoint)
