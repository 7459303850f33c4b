"""Sockets that systemd opened before the service was started, and keeps open while it restarts."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import endpoints

from fyrehose_twisted.errors import ConfigurationError


def inherited(option: str, *, name: str | None = None, index: int | None = None) -> socket.socket:
    """Return a copy of a socket that was passed by systemd.

    :param option: what asks for it.
    :param name: its ``FileDescriptorName=``.
    :param index: its place among all that were passed, from 0.
    :raises ConfigurationError: if there is none.
    """
    # Twisted reads the environment once, and takes the variables away.
    parser: Any = endpoints._SystemdParser
    found = parser._sddaemon
    named, numbered = found.inheritedNamedDescriptors(), found.inheritedDescriptors()
    descriptor = named.get(name) if name is not None else None
    if index is not None and index < len(numbered):
        descriptor = numbered[index]
    if descriptor is None:
        known = f"it passed {', '.join(named)}" if named else "it passed none"
        which = f"named {name}" if name is not None else f"number {index}"
        raise ConfigurationError(
            f"--{option}: systemd passed no socket {which} ({known}); is the .socket unit started, with that"
            " FileDescriptorName=, and does twistd run with --nodaemon?"
        )
    return socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)


def inherited_datagrams(option: str, name: str) -> socket.socket:
    """Return a copy of a UDP socket that was passed by systemd.

    :raises ConfigurationError: if there is none, or it is something else.
    """
    found = inherited(option, name=name)
    kind, family = found.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE), found.getsockopt(*_DOMAIN)
    if kind != socket.SOCK_DGRAM or family != socket.AF_INET:
        found.close()
        raise ConfigurationError(
            f"--{option} {name}: that socket is not of UDP over IPv4; give the .socket unit ListenDatagram=ADDRESS:PORT"
        )
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, fileno=found.detach())
    made.setblocking(False)
    return made


def is_local(found: socket.socket) -> bool:
    """Return whether only this machine reaches a socket that listens."""
    family = found.getsockopt(*_DOMAIN)
    if family == socket.AF_UNIX:
        return True
    made = socket.socket(family, fileno=found.dup().detach())
    with made:
        host: str = made.getsockname()[0]
    return host == "::1" or host.startswith("127.")


_DOMAIN = (socket.SOL_SOCKET, getattr(socket, "SO_DOMAIN", 39))
