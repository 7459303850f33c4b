"""Command-line options that the services of several wings have."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from errno import EADDRINUSE
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from twisted.internet.interfaces import IStreamServerEndpointStringParser
from twisted.plugin import getPlugins
from twisted.python import usage
from twisted.python.reflect import namedAny
from twisted.python.usage import UsageError

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import format_address, ip_version
from fyrehose_twisted.net.socket_activation import activated_socket, is_local, require_stream_socket

DEFAULT_SOCKET_MODE = "600"
"""Of a Unix socket that says nothing else: it is its owner's."""


def fill_standard_descriptors() -> None:
    """Open /dev/null in place of standard input, output and error that the parent process has closed.

    Otherwise the reactor or a state file gets one of their numbers, and twistd puts /dev/null there when it detaches.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


class ServiceOptions(usage.Options):
    """Options of a service under ``twistd``, which are read before the reactor or the service opens anything.

    :cvar aliases: current name of an option by its former one, which is still accepted and no longer in ``--help``.
    """

    aliases: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        fill_standard_descriptors()
        super().__init__()

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Twisted: read the command line.

        :raises UsageError: if an option is wrong.
        :raises SystemExit: instead, under ``twistd``, which would print the error below the whole of ``--help``.
        """
        given = sys.argv[1:] if options is None else options
        try:
            super().parseOptions([self._resolve_alias(argument) for argument in given])
        except UsageError as error:
            if self.parent is None:
                raise
            name = self.parent.subCommand
            problem = str(error).removeprefix("Parameter type enforcement failed: ")
            raise SystemExit(f"{name}: {problem}; see twistd {name} --help") from None

    def _resolve_alias(self, argument: str) -> str:
        option, equals, value = argument.partition("=")
        name = self.aliases.get(option.removeprefix("--")) if option.startswith("--") else None
        return argument if name is None else f"--{name}{equals}{value}"


def integer_option(option: str, low: int, high: int) -> Any:
    """Return a coercion of the value of ``option`` to an integer from ``low`` to ``high``."""

    def coerce(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"--{option} {value} is outside {low} to {high}")
        return value

    coerce.coerceDoc = f"a whole number from {low} to {high}"  # type: ignore[attr-defined]  # usage.Options reads it
    return coerce


def number_option(option: str, low: float, high: float) -> Any:
    """Return a coercion of the value of ``option`` to a number from ``low`` to ``high``."""

    def coerce(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a number") from None
        if not low <= value <= high:
            raise ValueError(f"--{option} {value:g} is outside {low:g} to {high:g}")
        return value

    coerce.coerceDoc = f"a number from {low:g} to {high:g}"  # type: ignore[attr-defined]  # usage.Options reads it
    return coerce


def protocol_class(name: str, base: type) -> Any:
    """Return the class that a dotted name means.

    :raises UsageError: if there is none, or it is no subclass of ``base``.
    """
    try:
        found = namedAny(name)
    except Exception as error:
        raise UsageError(f"--protocol {name} cannot be imported: {error}; is its directory on PYTHONPATH?") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise UsageError(f"--protocol {name} is not a subclass of {base.__module__}.{base.__name__}")
    return found


class ServerEndpoint(NamedTuple):
    """What is known of a server endpoint from its description.

    :ivar description: the whole of it; where it named no interface, it names loopback now.
    :ivar address: where it listens; ``None`` if that is not known here.
    :ivar local: whether only this machine can reach it.
    :ivar datagrams: whether it is a UDP port.
    """

    description: str
    address: Address | None
    local: bool
    datagrams: bool = False


def parse_server_endpoint(option: str, text: str, example: str, *, datagrams: bool = False) -> ServerEndpoint:
    """Return what is known of a server endpoint; one that names no interface listens on loopback.

    :param datagrams: whether it may be a UDP port, too.
    :raises ConfigurationError: if its port is none.
    """
    if text.isdecimal():
        text = f"tcp:{text}"
    # In an endpoint a backslash keeps the colons of an IPv6 address from being taken for the next argument.
    kind, *arguments = text.replace("\\:", "\0").split(":")
    named = dict(argument.partition("=")[::2] for argument in arguments if "=" in argument)
    placed = [argument for argument in arguments if "=" not in argument]
    if kind == "unix":
        if not (named.get("address") or (placed and placed[0])):
            raise ConfigurationError(f"--{option} {text!r} names no socket, such as unix:/run/node.sock")
        return ServerEndpoint(text if "mode" in named else f"{text}:mode={DEFAULT_SOCKET_MODE}", None, True)
    if kind == "systemd":
        index = named.get("index", "")
        number = int(index) if index.isdecimal() and len(index) < 6 else None
        found = activated_socket(option, name=named.get("name"), index=number)
        with found:
            require_stream_socket(option, text, found, named.get("domain", ""))
            return ServerEndpoint(text, None, is_local(found))
    if kind == "udp" and not datagrams:
        raise ConfigurationError(f"--{option} {text!r} is on UDP, where nobody would be heard; choose {example}")
    if kind.startswith("["):
        raise ConfigurationError(
            f"--{option} {text!r} is not an endpoint: over IPv6 it is one such as tcp6:8480:interface=\\:\\:1"
        )
    if kind not in ("tcp", "tcp6", "ssl", "udp"):
        if kind not in _endpoint_types():
            raise ConfigurationError(
                f"--{option} {text!r}: unknown endpoint type {kind!r}; choose one such as {example}"
            )
        return ServerEndpoint(text, None, False)
    port = named.get("port") or (placed[0] if placed else "")
    # Of very many digits, Python makes no number.
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65_535:
        raise ConfigurationError(f"--{option} {text!r} has no port from 0 to 65535, such as {example}")
    interface = (named.get("interface") or (placed[1] if len(placed) > 1 else "")).replace("\0", ":")
    if not interface:
        interface = "::1" if kind == "tcp6" else "127.0.0.1"
        text += ":interface=" + interface.replace(":", "\\:")
    local = ip_version(interface) is not None and ip_address(interface).is_loopback
    return ServerEndpoint(text, (interface, int(port)), local, kind == "udp")


def _endpoint_types() -> set[str]:
    """Return the types of server endpoints that Twisted and its plugins know beside ``tcp``, ``ssl`` and ``unix``."""
    return {parser.prefix for parser in getPlugins(IStreamServerEndpointStringParser)}


def require_protection(option: str, endpoint: ServerEndpoint, protected: bool, protection: str) -> None:
    """Check that strangers do not reach what is not protected.

    :raises ConfigurationError: if they do.
    """
    if not endpoint.local and not protected:
        raise ConfigurationError(
            f"--{option} {endpoint.description} is not on loopback, and everybody could use it: give "
            f"{protection}, or --open"
            " if that is meant"
        )


def require_loopback(option: str, endpoint: ServerEndpoint, consequence: str) -> None:
    """Check that only this machine reaches what nothing protects.

    :param consequence: what whoever reaches it can do.
    :raises ConfigurationError: if others do.
    """
    if not endpoint.local:
        raise ConfigurationError(
            f"--{option} {endpoint.description} is not on loopback, and whoever reaches it {consequence}: "
            "choose unix:PATH or"
            " tcp:PORT"
        )


def endpoint_description(endpoint: ServerEndpoint | None) -> str | None:
    """Return the server endpoint, ``None`` if there is none."""
    return None if endpoint is None else endpoint.description


def require_writable_directory(option: str, path: Path) -> None:
    """See whether a directory can be written, or made. :raises ConfigurationError: if not."""
    existing = path
    while not os.path.exists(existing):  # Path.exists raises where nobody may look, or a name is too long.
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--{option} {path} cannot be written, because of {existing}")


def probe_port(option: str, endpoint: ServerEndpoint) -> None:
    """See whether an address can be listened on. :raises ConfigurationError: if not."""
    address = endpoint.address
    if address is None or ip_version(address[0]) is None:
        return
    family = socket.AF_INET6 if ip_version(address[0]) == 6 else socket.AF_INET
    kind = socket.SOCK_DGRAM if endpoint.datagrams else socket.SOCK_STREAM
    try:
        with socket.socket(family, kind) as probe:
            if not endpoint.datagrams:
                # As Twisted does: what an earlier process left behind is in nobody's way.
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
    """See whether all of them can be listened on, each by one option.

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
