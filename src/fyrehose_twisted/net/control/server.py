"""Control port of a node for commands on the same machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.protocol import Factory

from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection
from fyrehose_twisted.net.control.json_lines import MAX_REQUEST, JsonLines

MAX_CLIENTS = 64
"""Maximum number of control clients."""
MAX_UNSENT = 8 * 2**20
"""Queued bytes above which a client is disconnected."""
MAX_PENDING = 256
"""Pending requests of one client at which reading from it is paused."""


class ControlConnection(NodeConnection):
    """Control connection of one client.

    :param service: service that the requests are for.
    :param on_closed: called with the connection when it has ended.
    """

    def __init__(self, service: Any, on_closed: Callable[[Any], None]) -> None:
        super().__init__(JsonLines(MAX_REQUEST), ConnectionLimits(max_unsent=MAX_UNSENT))
        self._service = service
        self._on_closed = on_closed
        self._pending = 0

    def handle_request(self, message: dict[str, Any]) -> None:
        """Handle one request."""
        raise NotImplementedError(f"{type(self).__name__} does not override handle_request()")

    def release(self) -> None:
        """Give up what the service does for this client only."""

    def request_started(self) -> None:
        """Count a request whose reply comes later."""
        self._pending += 1
        if self._pending == MAX_PENDING:
            self._transport.pauseProducing()

    def request_finished(self, reply: dict[str, Any]) -> None:
        """Send the reply to a request that was counted."""
        self._pending -= 1
        if self._pending == MAX_PENDING - 1 and not self.is_closed:
            self._transport.resumeProducing()
        self.send([reply])

    def messages_received(self, messages: Sequence[dict[str, Any]]) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.messages_received`."""
        for message in messages:
            if not self.is_closed:
                self.handle_request(message)

    def connection_ended(self, reason: str) -> None:
        """See :meth:`~fyrehose_twisted.net.connection.NodeConnection.connection_ended`."""
        self.release()
        self._on_closed(self)


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
