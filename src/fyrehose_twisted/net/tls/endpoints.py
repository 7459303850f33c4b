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
        port, interface = settings["port"], settings.get("interface", "127.0.0.1")
        backlog = settings.get("backlog", "50")
        for name, text in (("port", port), ("backlog", backlog)):
            if not (text.isascii() and text.isdecimal() and len(text) < 6):
                raise ConfigurationError(f"{PREFIX} endpoint with the {name} {text!r}; give a number")
        kind = TCP6ServerEndpoint if ip_version(interface) == 6 else TCP4ServerEndpoint
        return MutualTlsServerEndpoint(
            kind(reactor, int(port), int(backlog), interface), _identity(settings).server_context()
        )


@implementer(IPlugin, IStreamClientEndpointStringParserWithReactor)
class MutualTlsClientParser:
    """Parser of client endpoints."""

    prefix = PREFIX

    def parseStreamClient(self, reactor: Any, *args: Any, **kwargs: Any) -> IStreamClientEndpoint:
        """Twisted: parse.

        :raises ConfigurationError: if an argument is missing, unknown or invalid, or a file cannot be used.
        """
        settings = _settings(("host", "port"), ("timeout",), args, kwargs)
        host, port, timeout = settings["host"], settings["port"], settings.get("timeout", "10")
        for name, text in (("port", port), ("timeout", timeout)):
            if not (text.isascii() and text.isdecimal() and len(text) < 6):
                raise ConfigurationError(f"{PREFIX} endpoint with the {name} {text!r}; give a number")
        context = _identity(settings).client_context(host)
        endpoint: IStreamClientEndpoint = wrapClientTLS(
            context, HostnameEndpoint(reactor, host, int(port), timeout=int(timeout))
        )
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


def _identity(settings: dict[str, str]) -> Identity:
    return Identity(settings["cert"], settings["key"], settings["ca"])
