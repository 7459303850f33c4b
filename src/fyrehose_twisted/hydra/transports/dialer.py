"""Dialling of links by their URLs."""

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
from fyrehose_twisted.hydra.transports.fifo import FifoEndpoint
from fyrehose_twisted.hydra.transports.irc import IrcEndpoint, IrcLinkConfig
from fyrehose_twisted.hydra.transports.link_url import LinkUrl, parse_link
from fyrehose_twisted.hydra.transports.udp.endpoint import UdpPort
from fyrehose_twisted.net.addresses import DIAL_TIMEOUT, tcp_endpoint
from fyrehose_twisted.net.auth import AuthClientEndpoint, Authenticator

_client_from_string: Any = clientFromString
"""Twisted's ``clientFromString``, which has no annotations."""

MAX_DIAL_TIMEOUT = 3_600.0
"""Seconds in which any link must open.

TCP, TLS and UDP have far shorter timeouts. Named pipes and IRC wait for the peer.
"""


class Dialer:
    """Dialler of the links of one node.

    :param links: link strings.
    :param secret: shared secret. All links authenticate with it except those to legacy peers, which cannot.
    :param udp: port for links over UDP; by default one is created.
    :raises ConfigurationError: if a link string is invalid.
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
        self._other_secrets: tuple[bytes, ...] = ()
        self._links = {spec.text: spec for spec in map(parse_link, links)}
        self._endpoints: dict[str, IStreamClientEndpoint] = {}
        self._irc_endpoints: list[IrcEndpoint] = []

    @property
    def targets(self) -> tuple[LinkTarget, ...]:
        """Targets for the configuration of the node."""
        return tuple(
            LinkTarget((spec.text, 0), spec.legacy, spec.rate if spec.kind == "irc" else None)
            for spec in self._links.values()
        )

    @property
    def dialable(self) -> list[str]:
        """Links to nodes that the guardian process can open as well."""
        return [spec.text for spec in self._links.values() if spec.kind in ("tcp", "tls", "udp") and not spec.legacy]

    def endpoint_for(self, reactor: Any, address: Address) -> IStreamClientEndpoint:
        """Return the endpoint of a link. It is the same object each time, as some endpoints keep state."""
        text = address[0]
        if text not in self._endpoints:
            self._endpoints[text] = self._make_endpoint(self._links.get(text) or parse_link(text))
        return self._endpoints[text]

    def set_secrets(self, secret: bytes, *others: bytes) -> None:
        """Replace the secrets for later dials, also those of the authenticator and the UDP port."""
        self._secret, self._other_secrets = secret, others
        if self._authenticator is not None:
            self._authenticator.set_secrets(secret, *others)
        for endpoint in self._irc_endpoints:
            endpoint.set_secrets(secret, *others)
        if self._udp is not None:
            self._udp.demux.set_secrets(secret, *others)

    def check(self) -> None:
        """Check that all links can be dialled.

        :raises ConfigurationError: if one cannot.
        """
        for text in self._links:
            self.endpoint_for(self._reactor, (text, 0))

    async def close(self) -> None:
        """Release shared resources of the links."""
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
                except Exception as error:  # Endpoint parsers raise arbitrary exceptions.
                    raise ConfigurationError(f"--link {spec.text}: {error}") from error
                return _TimeoutEndpoint(self._authenticated(endpoint), reactor)
            case "udp":
                if self._udp is None:
                    self._udp = self._own_udp = UdpPort(reactor, secret=self._secret, max_ping=max_ping)
                    if self._secret is not None:
                        self._own_udp.demux.set_secrets(self._secret, *self._other_secrets)
                return _TimeoutEndpoint(self._udp.client_endpoint(spec.host, spec.port), reactor)
            case "irc":
                config = IrcLinkConfig(
                    host=spec.host,
                    port=spec.port,
                    nick=spec.nick,
                    peer=spec.peer,
                    tls=spec.tls,
                    password=read_password("--link", spec.password_file) if spec.password_file else None,
                    rate=spec.rate,
                    secret=self._secret,
                    other_secrets=self._other_secrets,
                    max_ping=max_ping,
                )
                self._irc_endpoints.append(IrcEndpoint(reactor, config))
                return self._irc_endpoints[-1]
            case "fifo":
                return FifoEndpoint(reactor, spec.directory, spec.side, max_ping)

    def _authenticated(self, endpoint: IStreamClientEndpoint) -> IStreamClientEndpoint:
        if self._authenticator is None:
            return endpoint
        return AuthClientEndpoint(endpoint, self._authenticator, self._reactor)


@implementer(IStreamClientEndpoint)
class _TimeoutEndpoint:
    """Endpoint that cancels a connect after a timeout."""

    def __init__(self, endpoint: IStreamClientEndpoint, reactor: Any) -> None:
        self._endpoint = endpoint
        self._reactor = reactor

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """See :class:`~twisted.internet.interfaces.IStreamClientEndpoint`."""
        connecting: Deferred[Any] = self._endpoint.connect(protocolFactory)
        return connecting.addTimeout(DIAL_TIMEOUT, self._reactor)
