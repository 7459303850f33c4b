"""Peer addresses from the command line, and their endpoints."""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IStreamClientEndpoint

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import parse_address, tcp_endpoint

_client_from_string: Any = clientFromString
"""Twisted's function, which has no annotations."""


def parse_peer(text: str, reactor: Any) -> Address:
    """Return the address of a peer: host and port, or the text of a client endpoint and 0.

    :raises ConfigurationError: if ``text`` is neither.
    """
    try:
        return parse_address(text)
    except ConfigurationError:
        pass
    try:
        _client_from_string(reactor, text)
    except Exception as error:  # Endpoint parsers may raise anything.
        raise ConfigurationError(
            f"--peer {text!r} is neither HOST:PORT, such as 10.0.0.7:6180, nor a client endpoint, such as"
            f" tls:node.example:6180 ({error})"
        ) from error
    return text, 0


def endpoint_for(reactor: Any, address: Address) -> IStreamClientEndpoint:
    """Return the client endpoint of a peer's address."""
    text, port = address
    if port:
        return tcp_endpoint(reactor, address)
    endpoint: IStreamClientEndpoint = _client_from_string(reactor, text)
    return endpoint
