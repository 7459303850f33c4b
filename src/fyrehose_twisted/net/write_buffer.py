"""Write coalescing: messages of one reactor turn are joined per connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.net.connection import NodeConnection
from fyrehose_twisted.rate_limited_log import RateLimitedLog


class WriteCoalescer:
    """Write buffer that joins the messages for each connection, and encodes shared messages once.

    :param counters: counters of the driver.
    :param rate_limited_log: log for warnings.
    """

    log = Logger()

    def __init__(self, counters: Counter[str], rate_limited_log: RateLimitedLog) -> None:
        self._counters = counters
        self._rate_limited_log = rate_limited_log
        self._unsent: dict[NodeConnection, list[bytes]] = {}
        self._encoded: dict[int, tuple[Any, bytes]] = {}
        """Encoded messages by identity: a message to several connections is usually the same object."""

    def enqueue(self, connection: NodeConnection, messages: Sequence[Any]) -> None:
        """Queue messages for a connection."""
        waiting = self._unsent.setdefault(connection, [])
        for message in messages:
            known = self._encoded.get(id(message))
            if known is None:
                try:
                    known = message, connection.codec.encode(message)
                except Exception:
                    self._abort_unencodable(connection, message)
                    return
                self._encoded[id(message)] = known
            waiting.append(known[1])
        self._counters["messages_sent"] += len(messages)

    def write(self, connection: NodeConnection) -> None:
        """Write the queued messages of a connection."""
        pieces = self._unsent.pop(connection, None)
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._counters["bytes_sent"] += len(data)
            self._counters["writes"] += 1
            connection.write(data)

    def write_all(self) -> None:
        """Write all queued messages."""
        self._encoded.clear()
        for link in tuple(self._unsent):
            self.write(link)

    def discard(self, connection: NodeConnection) -> None:
        """Discard the queued messages of a closed connection."""
        self._unsent.pop(connection, None)

    def _abort_unencodable(self, connection: NodeConnection, message: Any) -> None:
        # The stream must have no gaps, so the connection is unusable now.
        self._counters["unencodable"] += 1
        if self._rate_limited_log.warn("unencodable", connection.source, "hung up on {source}: internal error"):
            self.log.failure("{what} cannot be encoded", what=type(message).__name__)
        self.write(connection)
        connection.abort("not encodable")
