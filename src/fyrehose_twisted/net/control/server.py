"""Where commands on this machine ask a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.protocol import Factory

MAX_CLIENTS = 64
"""Who may ask at once."""
MAX_UNSENT = 8 * 2**20
"""Bytes that may wait for a client; then it is cut off."""


class ControlConnection(Protocol):
    """One connection; mostly a :class:`~fyrehose_twisted.net.connection.NodeConnection`."""

    def close(self) -> None:
        """Close it once what was written has left."""


class ControlFactory(Factory):
    """Lets clients in.

    :param make: returns what speaks with one; it has to call what it is given, with itself, when the client is gone.
    """

    noisy = False

    def __init__(self, make_connection: Callable[[Callable[[Any], None]], ControlConnection]) -> None:
        self._make_connection = make_connection
        self._clients: set[ControlConnection] = set()

    def logPrefix(self) -> str:
        """Twisted: what to call it in the log."""
        return "control"

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: somebody has connected."""
        if len(self._clients) >= MAX_CLIENTS:
            return None
        client = self._make_connection(self._clients.discard)
        self._clients.add(client)
        return client

    def close(self) -> None:
        """Hang up on everybody, once what was written has left."""
        for client in tuple(self._clients):
            self._clients.discard(client)
            client.close()
