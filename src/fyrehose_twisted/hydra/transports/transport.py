"""Base of the transports of links that Twisted does not have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HIGH_WATERMARK, LOW_WATERMARK = 262_144, 65_536
"""Unsent or unacknowledged bytes above which a producer is paused, and down to which it stays so."""


class ProducerTransport:
    """Transport that pauses and resumes a push producer by the watermarks.

    :ivar connected: whether the stream is open.
    :ivar disconnecting: whether :meth:`loseConnection` was called.
    """

    def __init__(self) -> None:
        self.connected = False
        self.disconnecting = False
        self._producer: Any = None
        self._paused = False

    def write(self, data: bytes) -> None:
        """Twisted: send bytes."""
        raise NotImplementedError(f"{type(self).__name__} does not override write()")

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Twisted: send several chunks."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Twisted: close once everything is sent and the producer is done."""
        if self.connected and not self.disconnecting:
            self.disconnecting = True
            if self._producer is None:
                self._close()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Twisted: pause and resume a producer by the watermarks."""
        if self._producer is not None:
            raise RuntimeError(f"{self._producer!r} is registered already")
        if not streaming:
            raise NotImplementedError("only push producers")
        if not self.connected:
            producer.stopProducing()
            return
        self._producer, self._paused = producer, False
        self._update_producer()

    def unregisterProducer(self) -> None:
        """Twisted: remove the producer."""
        self._producer = None
        if self.connected and self.disconnecting:
            self._close()

    def _close(self) -> None:
        """Close the stream once everything is sent."""
        raise NotImplementedError(f"{type(self).__name__} does not override _close()")

    def _unsent(self) -> int:
        """Return the number of bytes that the watermarks apply to."""
        raise NotImplementedError(f"{type(self).__name__} does not override _unsent()")

    def _update_producer(self) -> None:
        if self._producer is None:
            return
        waiting = self._unsent()
        if not self._paused and waiting > HIGH_WATERMARK:
            self._paused = True
            self._producer.pauseProducing()
        elif self._paused and waiting <= LOW_WATERMARK:
            self._paused = False
            self._producer.resumeProducing()

    def _stop_producer(self) -> None:
        """Tell the producer that the connection has ended."""
        self.connected = False
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
