"""Frontend in memory, with a publisher that the test controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.errors import NotConnected
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.line_protocol import LineFactory
from fyrehose_twisted.fyrehose.frontend.publish_queue import PublishQueue
from fyrehose_twisted.web.tokens import Tokens


class Publisher:
    """Fake publisher that numbers messages at once, or on :meth:`answer`.

    :ivar full: :meth:`when_room` does not fire until :meth:`make_room`.
    :ivar held: unanswered runs; a list makes :meth:`publish_many` hold its results back, ``None`` does not.
    """

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.runs: list[int] = []
        self.full = False
        self.gone = False
        self.rooms: list[Deferred[None]] = []
        self.held: list[tuple[Deferred[list[int]], list[int]]] | None = None

    def when_room(self) -> Deferred[None]:
        if self.gone:
            raise NotConnected("gone")
        if not self.full:
            return succeed(None)
        self.rooms.append(Deferred())
        return self.rooms[-1]

    def make_room(self) -> None:
        self.full = False
        rooms, self.rooms = self.rooms, []
        for room in rooms:
            room.callback(None)

    def publish_many(self, messages: Sequence[bytes]) -> Deferred[list[int]]:
        if self.gone:
            raise NotConnected("gone")
        first = len(self.messages) + 1
        self.messages += messages
        self.runs.append(len(messages))
        numbers = list(range(first, first + len(messages)))
        if self.held is None:
            return succeed(numbers)
        self.held.append((Deferred(), numbers))
        return self.held[-1][0]

    def answer(self, error: Exception | None = None) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        for deferred, numbers in held:
            if error is None:
                deferred.callback(numbers)
            else:
                deferred.errback(error)


class Wire(StringTransport):
    """In-memory transport that records how it was closed."""

    aborted = half_closed = False

    def abortConnection(self) -> None:
        self.aborted = self.disconnecting = True

    def loseWriteConnection(self) -> None:  # noqa: N802
        self.disconnecting = self.half_closed = True

    def loseConnection(self) -> None:
        self.half_closed = False
        super().loseConnection()


class Frontend:
    """Publish queue and line listener on one fake publisher and clock."""

    def __init__(self, config: FrontendConfig | None = None, tokens: Tokens | None = None, kept: int = 0) -> None:
        self.clock = Clock()
        self.config = config or FrontendConfig()
        self.publisher = Publisher()
        self.publish_queue = PublishQueue(self.publisher, self.config, self.clock, kept)
        self.publish_queue.connection_changed(True)
        self.lines = LineFactory(self.publish_queue, self.config, tokens, self.clock)

    def connect(self, host: str = "127.0.0.1") -> Connection:
        return Connection(self, host)


class Connection:
    """TCP client of the line protocol."""

    def __init__(self, frontend: Frontend, host: str) -> None:
        self.wire = Wire()
        self.protocol: Any = frontend.lines.buildProtocol(IPv4Address("TCP", host, 40_000))
        if self.protocol is not None:
            self.protocol.makeConnection(self.wire)

    def send(self, data: bytes) -> Connection:
        self.protocol.dataReceived(data)
        return self

    def end(self) -> Connection:
        self.protocol.readConnectionLost()
        return self

    def close(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))

    @property
    def answers(self) -> list[str]:
        return self.wire.value().decode().splitlines()

    @property
    def is_read(self) -> bool:
        return self.wire.producerState == "producing"
