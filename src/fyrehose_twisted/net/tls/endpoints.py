"""Endpoints ``mtls``: TLS where each end has a certificate that the other one checks.

A server is such as ``mtls:7878:interface=10.0.0.1:cert=a.pem:key=a.key:ca=ca.pem``, and a client
``mtls:10.0.0.1:7878:cert=b.pem:key=b.key:ca=ca.pem``. Twisted finds them as plugins. The certificate of a server must
be for the host name or IP address that clients dial; that of a client may be for any name.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ServerEndpoint, TCP6ServerEndpoint, wrapClientTLS
from twisted.internet.interfaces import (
    IProtocolFactory,
    IStreamClientEndpoint,
    IStreamClientEndpointStringParserWithReactor,
    IStreamServerEndpoint,
    IStreamServerEndpointStringParser,
)
from twisted.plugin import IPlugin
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import ip_version
from fyrehose_twisted.net.tls.certificates import Identity

PREFIX = "mtls"
MAX_NUMBER = 65_535
"""Maximum of ports and other numbers."""


@implementer(IStreamServerEndpoint)
class MutualTlsServerEndpoint:
    """Server endpoint that accepts only clients with a certificate of its authority.

    :param endpoint: endpoint that listens.
    :param context: result of :meth:`Identity.server_context
        <fyrehose_twisted.net.tls.certificates.Identity.server_context>`.
    """

    def __init__(self, endpoint: Any, context: Any) -> None:
        self._endpoint = endpoint
        self._context = context

    def listen(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Twisted: listen."""
        from twisted.protocols.tls import TLSMemoryBIOFactory

        listening: Deferred[Any] = self._endpoint.listen(TLSMemoryBIOFactory(self._context, False, factory))
        return listening


@implementer(IPlugin, IStreamServerEndpointStringParser)
class MutualTlsServerParser:
    """Parser of server endpoints."""

    prefix = PREFIX

    def parseStreamServer(self, reactor: Any, *args: Any, **kwargs: Any) -> MutualTlsServerEndpoint:
        """Twisted: parse.

        :raises ConfigurationError: if an argument is missing, unknown or invalid, or a file cannot be used.
        """
        settings = _settings(("port", "interface"), ("backlog",), args, kwargs)
        interface = settings.get("interface", "127.0.0.1")
        kind = TCP6ServerEndpoint if ip_version(interface) == 6 else TCP4ServerEndpoint
        endpoint = kind(reactor, _number(settings, "port"), _number(settings, "backlog", "50"), interface)
        return MutualTlsServerEndpoint(endpoint, _identity(settings).server_context())


@implementer(IPlugin, IStreamClientEndpointStringParserWithReactor)
class MutualTlsClientParser:
    """Parser of client endpoints."""

    prefix = PREFIX

    def parseStreamClient(self, reactor: Any, *args: Any, **kwargs: Any) -> IStreamClientEndpoint:
        """Twisted: parse.

        :raises ConfigurationError: if an argument is missing, unknown or invalid, or a file cannot be used.
        """
        settings = _settings(("host", "port"), ("timeout",), args, kwargs)
        host, timeout = settings["host"], _number(settings, "timeout", "10")
        plain = HostnameEndpoint(reactor, host, _number(settings, "port"), timeout=timeout)
        endpoint: IStreamClientEndpoint = wrapClientTLS(_identity(settings).client_context(host), plain)
        return endpoint


def _settings(
    placed: tuple[str, ...], optional: tuple[str, ...], arguments: tuple[str, ...], named: dict[str, str]
) -> dict[str, str]:
    """Return the arguments of an endpoint by name."""
    files = ("cert", "key", "ca")
    if len(arguments) > len(placed):
        raise ConfigurationError(f"{PREFIX} endpoint with {arguments[len(placed)]!r}; name it, such as cert=FILE")
    settings = dict(zip(placed, arguments, strict=False)) | named
    unknown = settings.keys() - {*placed, *optional, *files}
    if unknown:
        raise ConfigurationError(f"{PREFIX} endpoint with the unknown argument {min(unknown)!r}")
    needed = [name for name in (*placed, *files) if name != "interface"]
    missing = [f"{name}=" for name in needed if not settings.get(name)]
    if missing:
        raise ConfigurationError(f"{PREFIX} endpoint without {', '.join(missing)}")
    return settings


def _number(settings: dict[str, str], name: str, default: str = "") -> int:
    text = settings.get(name, default)
    # Python refuses to convert very long digit strings.
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > MAX_NUMBER:
        raise ConfigurationError(f"{PREFIX} endpoint with the {name} {text!r}; give a number up to {MAX_NUMBER}")
    return int(text)


def _identity(settings: dict[str, str]) -> Identity:
    return Identity(settings["cert"], settings["key"], settings["ca"])
