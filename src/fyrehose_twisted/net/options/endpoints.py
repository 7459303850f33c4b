"""Server endpoints as options: parsing, protection, and checks before the start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from errno import EADDRINUSE
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.interfaces import IStreamServerEndpointStringParser
from twisted.plugin import getPlugins

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import format_address, ip_version
from fyrehose_twisted.net.socket_activation import activated_socket, is_local, require_stream_socket

MUTUAL_TLS = "mtls"
"""The same as :data:`fyrehose_twisted.net.tls.endpoints.PREFIX`."""
DEFAULT_SOCKET_MODE = "600"
"""Default mode of a Unix socket: accessible to its owner only."""


class ServerEndpoint(NamedTuple):
    """Properties of a server endpoint, derived from its description.

    :ivar description: full description; without an interface, loopback is added.
    :ivar address: listening address; ``None`` if unknown.
    :ivar local: whether the endpoint is reachable from this machine only.
    :ivar datagrams: whether the endpoint is a UDP port.
    :ivar mutual: whether clients need a certificate.
    """

    description: str
    address: Address | None
    local: bool
    datagrams: bool = False
    mutual: bool = False


def parse_server_endpoint(option: str, text: str, example: str, *, datagrams: bool = False) -> ServerEndpoint:
    """Parse the description of a server endpoint. Without an interface it listens on loopback.

    :param datagrams: whether UDP ports are allowed.
    :raises ConfigurationError: if the description is invalid.
    """
    parts = _split_endpoint(f"tcp:{text}" if text.isdecimal() else text)
    text, kind = parts.text, parts.kind
    if kind == "unix":
        return _unix_endpoint(option, parts)
    if kind == "systemd":
        return _activated_endpoint(option, parts)
    if kind == "udp" and not datagrams:
        raise ConfigurationError(f"--{option} {text!r} is a UDP port, which cannot be used here; choose {example}")
    if kind in ("tcp", "tcp6", "ssl", "udp", MUTUAL_TLS):
        return _port_endpoint(option, parts, example)
    if kind.startswith("["):
        raise ConfigurationError(
            f"--{option} {text!r} is not an endpoint: over IPv6 it is one such as tcp6:8480:interface=\\:\\:1"
        )
    if kind not in _endpoint_types():
        raise ConfigurationError(f"--{option} {text!r}: unknown endpoint type {kind!r}; choose one such as {example}")
    return ServerEndpoint(text, None, False)


class _EndpointParts(NamedTuple):
    """Parts of the description of an endpoint, with NUL for each escaped colon."""

    text: str
    kind: str
    placed: list[str]
    named: dict[str, str]

    def argument(self, name: str, index: int) -> str:
        """Return an argument given by name or place, or an empty string."""
        return self.named.get(name) or (self.placed[index] if len(self.placed) > index else "")


def _split_endpoint(text: str) -> _EndpointParts:
    # In an endpoint, backslashes escape the colons of an IPv6 address.
    kind, *arguments = text.replace("\\:", "\0").split(":")
    named = dict(argument.partition("=")[::2] for argument in arguments if "=" in argument)
    return _EndpointParts(text, kind, [argument for argument in arguments if "=" not in argument], named)


def _unix_endpoint(option: str, parts: _EndpointParts) -> ServerEndpoint:
    text = parts.text
    if not parts.argument("address", 0):
        raise ConfigurationError(f"--{option} {text!r} names no socket, such as unix:/run/node.sock")
    return ServerEndpoint(text if "mode" in parts.named else f"{text}:mode={DEFAULT_SOCKET_MODE}", None, True)


def _activated_endpoint(option: str, parts: _EndpointParts) -> ServerEndpoint:
    """Describe a socket that systemd has opened."""
    index = parts.named.get("index", "")
    number = int(index) if index.isdecimal() and len(index) < 6 else None
    found = activated_socket(option, name=parts.named.get("name"), index=number)
    with found:
        require_stream_socket(option, parts.text, found, parts.named.get("domain", ""))
        return ServerEndpoint(parts.text, None, is_local(found))


def _port_endpoint(option: str, parts: _EndpointParts, example: str) -> ServerEndpoint:
    text = parts.text
    port = parts.argument("port", 0)
    # Python refuses to convert very long digit strings.
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise ConfigurationError(f"--{option} {text!r} has no port from 0 to 65535, such as {example}")
    interface = parts.argument("interface", 1).replace("\0", ":")
    if not interface:
        interface = "::1" if parts.kind == "tcp6" else "127.0.0.1"
        text += ":interface=" + interface.replace(":", "\\:")
    local = ip_version(interface) is not None and ip_address(interface).is_loopback
    return ServerEndpoint(text, (interface, int(port)), local, parts.kind == "udp", parts.kind == MUTUAL_TLS)


def _endpoint_types() -> set[str]:
    """Return the endpoint types of Twisted and its plugins besides ``tcp``, ``ssl`` and ``unix``."""
    return {parser.prefix for parser in getPlugins(IStreamServerEndpointStringParser)}


def require_protection(option: str, endpoint: ServerEndpoint, protected: bool, protection: str) -> None:
    """Check that an endpoint is reachable from this machine only, unless it is protected or demands certificates.

    :param protection: options that would protect the endpoint.
    :raises ConfigurationError: if it is exposed.
    """
    if not (endpoint.local or endpoint.mutual or protected):
        raise ConfigurationError(
            f"--{option} {endpoint.description} is not on loopback: give {protection}, or --open to leave it"
            " unprotected"
        )


def require_loopback(option: str, endpoint: ServerEndpoint, consequence: str) -> None:
    """Check that an endpoint is reachable from this machine only.

    :param consequence: what a client of the endpoint could do, for the error message.
    :raises ConfigurationError: if it is exposed.
    """
    if not endpoint.local:
        raise ConfigurationError(
            f"--{option} {endpoint.description} is not on loopback, and any client that reaches it {consequence}:"
            " choose unix:PATH or tcp:PORT"
        )


def endpoint_description(endpoint: ServerEndpoint | None) -> str | None:
    """Return the description of an endpoint, or ``None``."""
    return None if endpoint is None else endpoint.description


def require_writable_directory(option: str, path: Path) -> None:
    """Check that a directory is writable or can be created. :raises ConfigurationError: if not."""
    existing = path
    while not os.path.exists(existing):  # Path.exists raises without permission, or if a name is too long.
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--{option} {path} cannot be written: {existing} is not a writable directory")


def probe_port(option: str, endpoint: ServerEndpoint) -> None:
    """Check that an address can be bound. :raises ConfigurationError: if not."""
    address = endpoint.address
    if address is None or ip_version(address[0]) is None:
        return
    family = socket.AF_INET6 if ip_version(address[0]) == 6 else socket.AF_INET
    kind = socket.SOCK_DGRAM if endpoint.datagrams else socket.SOCK_STREAM
    try:
        with socket.socket(family, kind) as probe:
            if not endpoint.datagrams:
                # Like Twisted: ignore connections of an earlier process in TIME_WAIT.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            if not endpoint.datagrams:
                probe.listen(1)
    except OSError as error:
        hint = "; stop what listens there, or choose another port" if error.errno == EADDRINUSE else ""
        raise ConfigurationError(
            f"--{option}: cannot listen on {format_address(address)}: {error.strerror}{hint}"
        ) from None


def probe_ports(named: Iterable[tuple[str, ServerEndpoint | None]]) -> None:
    """Check that all endpoints can be bound and no two options use the same port.

    :raises ConfigurationError: if not.
    """
    seen: dict[Any, str] = {}
    for option, listening in named:
        if listening is None:
            continue
        probe_port(option, listening)
        key = listening.address, listening.datagrams
        if listening.address is not None and listening.address[1] and key in seen:
            raise ConfigurationError(f"--{seen[key]} and --{option} are the same port; give each its own")
        seen[key] = option
