"""Where peers are: what operators wrote, and what dials it."""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import clientFromString
from twisted.internet.interfaces import IStreamClientEndpoint

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import parse_address, tcp_endpoint

_client_from_string: Any = clientFromString
"""Twisted's, which is not annotated."""


def parse_peer(text: str, reactor: Any) -> Address:
    """Return the address of a peer: host and port, or a client endpoint and 0.

    :raises ConfigurationError: if it is neither.
    """
    try:
        return parse_address(text)
    except ConfigurationError:
        pass
    try:
        _client_from_string(reactor, text)
    except Exception as error:  # What parsers of endpoints raise is their own affair.
        raise ConfigurationError(
            f"--peer {text!r} is neither HOST:PORT, such as 10.0.0.7:6180, nor a client endpoint, such as"
            f" tls:node.example:6180 ({error})"
        ) from error
    return text, 0


def endpoint_for(reactor: Any, address: Address) -> IStreamClientEndpoint:
    """Return what connects to the address of a peer."""
    text, port = address
    if port:
        return tcp_endpoint(reactor, address)
    endpoint: IStreamClientEndpoint = _client_from_string(reactor, text)
    return endpoint
