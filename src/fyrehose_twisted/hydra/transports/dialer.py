"""Where links lead: what operators wrote, and what dials it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.config import LinkTarget, Timers
from fyrehose_twisted.hydra.irc.password import read_password
from fyrehose_twisted.hydra.transports.auth import AuthClientEndpoint, Authenticator
from fyrehose_twisted.hydra.transports.fifo import FifoEndpoint
from fyrehose_twisted.hydra.transports.irc import IrcEndpoint
from fyrehose_twisted.hydra.transports.link_url import LinkUrl, parse_link
from fyrehose_twisted.hydra.transports.udp.endpoint import UdpPort
from fyrehose_twisted.net.addresses import DIAL_TIMEOUT, tcp_endpoint

_client_from_string: Any = clientFromString
"""Twisted's, which is not annotated."""

MAX_DIAL_TIMEOUT = 3_600.0
"""Seconds until a link must be open whatever it runs over. Those over TCP, TLS and UDP have far less; pipes and nicks
wait for the other end."""


class Dialer:
    """Dials links by their strings.

    :param links: the link strings.
    :param secret: what all nodes share; links prove that they know it, but for those of the reference, which cannot.
    :param udp: the port from which links over UDP are opened; without it, one of its own.
    :raises ConfigurationError: if one is not a link string.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        links: Iterable[str],
        secret: bytes | None,
        timers: Timers,
        *,
        authenticator: Authenticator | None = None,
        udp: UdpPort | None = None,
    ) -> None:
        self._reactor = reactor
        self._secret = secret
        self._timers = timers
        self._authenticator = (
            Authenticator(secret, reactor) if authenticator is None and secret is not None else authenticator
        )
        self._udp = udp
        self._own_udp: UdpPort | None = None
        self._links = {spec.text: spec for spec in map(parse_link, links)}
        self._endpoints: dict[str, IStreamClientEndpoint] = {}

    @property
    def targets(self) -> tuple[LinkTarget, ...]:
        """What a node keeps open."""
        return tuple(
            LinkTarget((spec.text, 0), spec.legacy, spec.rate if spec.kind == "irc" else None)
            for spec in self._links.values()
        )

    @property
    def dialable(self) -> list[str]:
        """Links that another process of this machine can open beside the node, and that a node is at the end of."""
        return [spec.text for spec in self._links.values() if spec.kind in ("tcp", "tls", "udp") and not spec.legacy]

    def endpoint_for(self, reactor: Any, address: Address) -> IStreamClientEndpoint:
        """Return what opens a link; always the same object for the same link, for some remember what they had open."""
        text = address[0]
        if text not in self._endpoints:
            self._endpoints[text] = self._make_endpoint(self._links.get(text) or parse_link(text))
        return self._endpoints[text]

    def check(self) -> None:
        """See whether all of them can be dialled. :raises ConfigurationError: if not."""
        for text in self._links:
            self.endpoint_for(self._reactor, (text, 0))

    async def close(self) -> None:
        """Let go of what all links have in common."""
        if self._own_udp is not None:
            await self._own_udp.stop()

    def _make_endpoint(self, spec: LinkUrl) -> IStreamClientEndpoint:
        reactor, max_ping = self._reactor, self._timers.max_ping
        match spec.kind:
            case "tcp" if spec.legacy:
                return _TimeoutEndpoint(tcp_endpoint(reactor, (spec.host, spec.port)), reactor)
            case "tcp":
                return _TimeoutEndpoint(self._authenticated(tcp_endpoint(reactor, (spec.host, spec.port))), reactor)
            case "tls":
                try:
                    endpoint = _client_from_string(reactor, spec.endpoint)
                except Exception as error:  # What parsers of endpoints raise is their own affair.
                    raise ConfigurationError(f"--link {spec.text}: {error}") from error
                return _TimeoutEndpoint(self._authenticated(endpoint), reactor)
            case "udp":
                if self._udp is None:
                    self._udp = self._own_udp = UdpPort(reactor, secret=self._secret, max_ping=max_ping)
                return _TimeoutEndpoint(self._udp.client_endpoint(spec.host, spec.port), reactor)
            case "irc":
                return IrcEndpoint(
                    reactor,
                    spec.host,
                    spec.port,
                    spec.nick,
                    spec.peer,
                    tls=spec.tls,
                    password=read_password("--link", spec.password_file) if spec.password_file else None,
                    rate=spec.rate,
                    secret=self._secret,
                    max_ping=max_ping,
                )
            case "fifo":
                return FifoEndpoint(reactor, spec.directory, spec.side, max_ping)

    def _authenticated(self, endpoint: IStreamClientEndpoint) -> IStreamClientEndpoint:
        if self._authenticator is None:
            return endpoint
        return AuthClientEndpoint(endpoint, self._authenticator, self._reactor)


@implementer(IStreamClientEndpoint)
class _TimeoutEndpoint:
    """Gives up what takes too long."""

    def __init__(self, endpoint: IStreamClientEndpoint, reactor: Any) -> None:
        self._endpoint = endpoint
        self._reactor = reactor

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:  # noqa: N803
        """See :class:`~twisted.internet.interfaces.IStreamClientEndpoint`."""
        connecting: Deferred[Any] = self._endpoint.connect(protocolFactory)
        return connecting.addTimeout(DIAL_TIMEOUT, self._reactor)
