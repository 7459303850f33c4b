"""What the options of ``twistd parcels-node`` mean."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.dialling import parse_place, show_place, version_of
from fyrehose_twisted.options import Listening
from fyrehose_twisted.secret import read_secret

ANYWHERE = {4: "0.0.0.0", 6: "::"}


def parse_listen(option: str, text: str) -> Listening:
    """Return what is known of a server endpoint; one that names no interface listens on loopback.

    :raises ConfigurationError: if its port is none.
    """
    if text.isdecimal():
        text = f"tcp:{text}"
    # In an endpoint a backslash keeps the colons of an IPv6 address from being taken for the next argument.
    kind, *arguments = text.replace("\\:", "\0").split(":")
    if kind not in ("tcp", "tcp4", "tcp6", "ssl"):
        return Listening(text, None, kind == "unix")
    named = dict(argument.partition("=")[::2] for argument in arguments if "=" in argument)
    placed = [argument for argument in arguments if "=" not in argument]
    port = named.get("port") or (placed[0] if placed else "")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"--{option} {text!r} has no port from 0 to 65535, such as tcp:7878")
    interface = (named.get("interface") or (placed[1] if len(placed) > 1 else "")).replace("\0", ":")
    if not interface:
        interface = "::1" if kind == "tcp6" else "127.0.0.1"
        text += ":interface=" + interface.replace(":", "\\:")
    local = version_of(interface) is not None and ip_address(interface).is_loopback
    return Listening(text, (interface, int(port)), local)


def parse_advertised(text: str | None, listening: Listening) -> Address:
    """Return where others reach the node: what the operator says, or where it listens.

    :raises ConfigurationError: if neither says it.
    """
    if text is not None:
        return parse_place(text)
    address = listening.address
    if address is None or address[0] in ANYWHERE.values():
        raise ConfigurationError(
            f"--advertise HOST:PORT is missing: --listen {listening.description} does not say where others reach this"
            " node"
        )
    return address


def read_token(path: str) -> bytes:
    """Return the token in a file. :raises ConfigurationError: if it cannot be read, or is no token."""
    try:
        token = read_secret(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"--token-file: {error}") from None
    if not token.isascii() or any(byte <= 32 for byte in token):
        raise ConfigurationError(f"--token-file: {path} has something other than one line of visible ASCII")
    return token


def try_port(option: str, address: Address | None) -> None:
    """See whether an address can be listened on. :raises ConfigurationError: if not."""
    if address is None or version_of(address[0]) is None:
        return
    family = socket.AF_INET6 if version_of(address[0]) == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As Twisted does: what an earlier process left behind is in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise ConfigurationError(f"--{option}: cannot listen on {show_place(address)}: {error.strerror}") from None
