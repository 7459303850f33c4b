"""In-memory client of a control port."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.net.control.server import MAX_CLIENTS, ControlFactory


class AbortableTransport(StringTransport):
    """String transport that supports abortConnection, like TCP."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        super().abortConnection()


class ControlClient:
    """Client of a control port.

    :ivar control: server protocol of the connection.
    """

    def __init__(self, factory: ControlFactory) -> None:
        self.control: Any = factory.buildProtocol(None)
        assert self.control is not None
        self.transport = AbortableTransport()
        self.control.makeConnection(self.transport)

    def ask(self, *requests: Any) -> list[dict[str, Any]]:
        """Send requests; return what arrived since the last call."""
        self.control.dataReceived(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        return self.read()

    def read(self) -> list[dict[str, Any]]:
        """Return what arrived since the last call."""
        data = self.transport.value()
        self.transport.clear()
        return [json.loads(line) for line in data.splitlines()]

    def lose(self) -> None:
        """Lose the connection."""
        self.control.connectionLost(Failure(ConnectionDone()))


def check_client_limit(factory: ControlFactory) -> None:
    """Check that clients over the limit are refused, a lost one makes room, and all close with the factory."""
    clients = [ControlClient(factory) for _ in range(MAX_CLIENTS)]
    assert factory.buildProtocol(None) is None
    clients.pop(0).lose()
    clients.append(ControlClient(factory))
    factory.close()
    assert all(client.control.is_closed for client in clients)
