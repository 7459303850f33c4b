"""What the options of ``twistd hydra-node`` mean."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.dialling import show_place, version_of
from fyrehose_twisted.options import Listening

LOCAL_MODE = "600"
"""Of a Unix socket that says nothing else: what is asked there may speak on IRC."""


def parse_listen(option: str, text: str, example: str = "tcp:6174") -> Listening:
    """Return what is known of a server endpoint; one that names no interface listens on loopback.

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
            raise ConfigurationError(f"--{option} {text!r} names no socket, such as unix:/run/hydra.sock")
        return Listening(text if "mode" in named else f"{text}:mode={LOCAL_MODE}", None, True)
    if kind not in ("tcp", "tcp4", "tcp6", "ssl", "udp"):
        return Listening(text, None, False)
    port = named.get("port") or (placed[0] if placed else "")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ConfigurationError(f"--{option} {text!r} has no port from 0 to 65535, such as {example}")
    interface = (named.get("interface") or (placed[1] if len(placed) > 1 else "")).replace("\0", ":")
    if not interface:
        interface = "::1" if kind == "tcp6" else "127.0.0.1"
        text += ":interface=" + interface.replace(":", "\\:")
    local = version_of(interface) is not None and ip_address(interface).is_loopback
    return Listening(text, (interface, int(port)), local, kind == "udp")


def check_local(option: str, listening: Listening) -> None:
    """Check that only this machine reaches what nothing protects.

    :raises ConfigurationError: if others do.
    """
    if not listening.local:
        raise ConfigurationError(
            f"--{option} {listening.description} is not on loopback, and whoever reaches it speaks on IRC in this"
            " node's name: choose unix:PATH or tcp:PORT"
        )


def try_port(option: str, listening: Listening) -> None:
    """See whether an address can be listened on. :raises ConfigurationError: if not."""
    address = listening.address
    if address is None or version_of(address[0]) is None:
        return
    family = socket.AF_INET6 if version_of(address[0]) == 6 else socket.AF_INET
    kind = socket.SOCK_DGRAM if listening.datagrams else socket.SOCK_STREAM
    try:
        with socket.socket(family, kind) as probe:
            if not listening.datagrams:
                # As Twisted does: what an earlier process left behind is in nobody's way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            if not listening.datagrams:
                probe.listen(1)
    except OSError as error:
        raise ConfigurationError(
            f"--{option}: cannot listen on {show_place(address)}: {error.strerror}; is another node running there?"
        ) from None


def read_password(option: str, path: str) -> str:
    """Return the password in a file, without white space around it.

    :raises ConfigurationError: if it cannot be read, can be read by everybody, or is no password for IRC.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            password = file.read(4_096).strip()
    except OSError as error:
        raise ConfigurationError(f"{option}: {path} cannot be read: {error.strerror}") from error
    if mode & 0o007:
        raise ConfigurationError(f"{option}: {path} is open to everybody; chmod 600 it")
    try:
        text = password.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > 400 or not text.isprintable():
        raise ConfigurationError(f"{option}: {path} has something other than one line with a password")
    return text
