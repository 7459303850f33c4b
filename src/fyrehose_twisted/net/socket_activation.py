"""Socket activation: sockets that systemd opens and keeps open across restarts."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet import endpoints

from fyrehose_twisted.errors import ConfigurationError


def activated_socket(option: str, *, name: str | None = None, index: int | None = None) -> socket.socket:
    """Return a duplicate of a socket passed by systemd.

    :param option: option that refers to the socket, for error messages.
    :param name: ``FileDescriptorName=`` of the socket.
    :param index: index among the passed sockets, from 0.
    :raises ConfigurationError: if systemd passed no such socket.
    """
    # Twisted reads the environment once and removes the variables.
    parser: Any = endpoints._SystemdParser
    found = parser._sddaemon
    named, numbered = found.inheritedNamedDescriptors(), found.inheritedDescriptors()
    descriptor = named.get(name) if name is not None else None
    if index is not None and index < len(numbered):
        descriptor = numbered[index]
    if descriptor is None:
        known = f"it passed {', '.join(named)}" if named else "it passed none"
        which = f"named {name}" if name is not None else f"number {'?' if index is None else index}"
        raise ConfigurationError(
            f"--{option}: systemd passed no socket {which} ({known}); is the .socket unit started, with that"
            " FileDescriptorName=, and does twistd run with --nodaemon?"
        )
    return socket.socket(fileno=os.dup(descriptor))


def activated_udp_socket(option: str, name: str) -> socket.socket:
    """Return a duplicate of a UDP socket passed by systemd.

    :raises ConfigurationError: if systemd passed no such socket, or it is of another type.
    """
    found = activated_socket(option, name=name)
    if found.type != socket.SOCK_DGRAM or found.family not in (socket.AF_INET, socket.AF_INET6):
        found.close()
        raise ConfigurationError(
            f"--{option} {name}: that socket is not of type UDP; give the .socket unit ListenDatagram=ADDRESS:PORT"
        )
    found.setblocking(False)
    return found


def require_stream_socket(option: str, text: str, sock: socket.socket, domain: str) -> None:
    """Check that a socket suits a server endpoint of type ``systemd``.

    :raises ConfigurationError: if it is of another type or domain.
    """
    if sock.type != socket.SOCK_STREAM:
        raise ConfigurationError(
            f"--{option} {text!r}: that socket is a UDP socket; give the .socket unit ListenStream="
        )
    family = socket.AddressFamily(sock.family).name.removeprefix("AF_")
    if domain != family:
        raise ConfigurationError(f"--{option} {text!r}: that socket is of another address family; use domain={family}")


def is_local(sock: socket.socket) -> bool:
    """Return whether a listening socket is reachable from this machine only."""
    if sock.family == socket.AF_UNIX:
        return True
    host: str = sock.getsockname()[0]
    return host == "::1" or host.startswith("127.")
