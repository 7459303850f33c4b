"""Client endpoints on an event loop. Twisted's own endpoint for host names imports its reactor."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from fyrehose_twisted.aio.loop_reactor import LoopReactor
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import DIAL_TIMEOUT


@implementer(IStreamClientEndpoint)
class LoopEndpoint:
    """TCP endpoint of a host, which may be a name. The addresses of the name are tried in turn.

    :param timeout: seconds for each address.
    """

    def __init__(self, reactor: LoopReactor, address: Address, timeout: float = DIAL_TIMEOUT) -> None:
        self._reactor = reactor
        self._address = address
        self._timeout = timeout

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """Twisted: connect; return a Deferred of the protocol."""
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> Any:
        host, port = self._address
        lookup = asyncio.ensure_future(self._reactor.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        problem: Exception | None = None
        try:
            found = await Deferred.fromFuture(lookup)
        except OSError as error:
            raise DNSLookupError(f"{host}: {error.strerror}") from error
        for family, _, _, _, name in found:
            kind = TCP6ClientEndpoint if family == socket.AF_INET6 else TCP4ClientEndpoint
            try:
                return await kind(self._reactor, str(name[0]), port, timeout=self._timeout).connect(factory)
            except ConnectError as error:
                problem = problem or error
        raise problem or DNSLookupError(f"no address for {host!r}")


@implementer(IAgentEndpointFactory)
class AgentEndpoints:
    """Endpoints of the URLs of a web agent, with TLS for ``https``."""

    def __init__(self, reactor: LoopReactor, timeout: float) -> None:
        self._reactor = reactor
        self._timeout = timeout

    def endpointForURI(self, uri: Any) -> IStreamClientEndpoint:
        """Twisted: return the endpoint of a URL."""
        host = uri.host.decode("ascii").strip("[]")
        endpoint = LoopEndpoint(self._reactor, (host, uri.port), self._timeout)
        if uri.scheme == b"http":
            return endpoint
        if uri.scheme != b"https":
            raise ConfigurationError(f"{uri.toBytes().decode(errors='replace')!r} is neither http:// nor https://")
        from twisted.internet.ssl import optionsForClientTLS

        wrapped: IStreamClientEndpoint = wrapClientTLS(optionsForClientTLS(host), endpoint)
        return wrapped
