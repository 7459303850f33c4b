"""Ports and the protocols that are spoken on them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from enum import Enum

from fyrehose_twisted.cli.dump.headers import TCP, UDP


class Protocol(Enum):
    """A protocol as ``--port`` names it."""

    FYREHOSE = "fyrehose"
    HYDRA = "hydra"
    FREENET = "freenet"
    PARCELS = "parcels"
    MEMBERS = "members"
    """Connections between the members of a group of backbones."""


TRANSPORTS = {
    Protocol.FYREHOSE: (UDP,),
    Protocol.HYDRA: (TCP, UDP),
    Protocol.FREENET: (TCP,),
    Protocol.PARCELS: (TCP,),
    Protocol.MEMBERS: (TCP,),
}
DEFAULT_PORTS = {
    2323: Protocol.FYREHOSE,
    6174: Protocol.HYDRA,
    6180: Protocol.FREENET,
    7878: Protocol.PARCELS,
}
"""Default ports of the services."""

PortMap = Mapping[tuple[int, int], Protocol]
"""Protocol by transport and port."""


def port_map(given: Mapping[int, Protocol]) -> PortMap:
    """Return the protocols by transport and port: the given ones, and defaults for the rest."""
    return {
        (transport, port): protocol
        for port, protocol in {**DEFAULT_PORTS, **given}.items()
        for transport in TRANSPORTS[protocol]
    }


def parse_port(text: str) -> tuple[int, Protocol]:
    """Parse ``PORT=PROTOCOL``. :raises argparse.ArgumentTypeError: if ``text`` is invalid."""
    port, _, name = text.partition("=")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with a port; write it like 2323=fyrehose")
    try:
        return int(port), Protocol(name)
    except ValueError:
        names = ", ".join(protocol.value for protocol in Protocol)
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {names}") from None
