"""Control port of a node for commands on the same machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.protocol import Factory

MAX_CLIENTS = 64
"""Maximum number of control clients."""
MAX_UNSENT = 8 * 2**20
"""Queued bytes above which a client is disconnected."""


class ControlConnection(Protocol):
    """Control connection, usually a :class:`~fyrehose_twisted.net.connection.NodeConnection`."""

    def close(self) -> None:
        """Close the connection after pending writes."""


class ControlFactory(Factory):
    """Factory of control connections.

    :param make_connection: returns a new connection. The connection must call the given function with itself when it
        ends.
    """

    noisy = False

    def __init__(self, make_connection: Callable[[Callable[[Any], None]], ControlConnection]) -> None:
        self._make_connection = make_connection
        self._clients: set[ControlConnection] = set()

    def logPrefix(self) -> str:
        """Twisted: return the log prefix."""
        return "control"

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: return the protocol of a new connection."""
        if len(self._clients) >= MAX_CLIENTS:
            return None
        client = self._make_connection(self._clients.discard)
        self._clients.add(client)
        return client

    def close(self) -> None:
        """Close all connections after pending writes."""
        for client in tuple(self._clients):
            self._clients.discard(client)
            client.close()
