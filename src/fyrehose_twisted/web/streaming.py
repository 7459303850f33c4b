"""Streams of server-sent events with backpressure from each client."""

from __future__ import annotations

import zlib
from collections import Counter
from http import HTTPStatus
from time import time
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.web.server import version
from zope.interface import implementer

from fyrehose_twisted.web.channel import WebRequest, format_date
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.response import HttpError
from fyrehose_twisted.web.sse import comment

STREAM = b"text/event-stream"


def beyond_end(name: str, next: object) -> HttpError:
    """Return the error for a start position beyond the end, for example after the stream has been replaced.

    :param name: requested position, with the name of its parameter.
    :param next: position of the next record or event.
    """
    message = f"{name} lies beyond the end; the next one will be {next}"
    return HttpError(HTTPStatus.CONFLICT, "beyond-end", message, next=next)


@implementer(IPushProducer)
class StreamingResponse:
    """Stream to one client. A subclass writes in :meth:`send_pending` and keeps only its position.

    :ivar paused: whether writing is suspended, because the client reads too slowly or the stream has ended.
    """

    def __init__(self, streams: StreamingResponses, request: WebRequest) -> None:
        self.paused: Any = False  # Typed Any, as a write can change it.
        self._streams = streams
        self._request = request
        self._stall: Any = None
        self._compressor: Any = None

    def send_pending(self) -> None:
        """Write pending data until there is no more or the stream is :attr:`paused`."""
        raise NotImplementedError(f"{type(self).__name__} must implement send_pending()")

    def begin(self, first: bytes, kind: bytes = STREAM) -> None:
        """Write the response head, then ``first``, then pending data."""
        request = self._request
        request.on_disconnect = self._disconnected
        set_header = request.responseHeaders.setRawHeaders
        set_header(b"Server", [version])
        set_header(b"Date", [format_date(int(time()))])
        set_header(b"Content-Type", [kind])
        set_header(b"Cache-Control", [b"no-store"])
        set_header(b"X-Accel-Buffering", [b"no"])  # Otherwise nginx buffers events.
        if request.accepts_gzip:
            set_header(b"Content-Encoding", [b"gzip"])
            set_header(b"Vary", [b"Accept-Encoding"])
            # A 4 KiB window takes 32 KiB of memory for each stream instead of 256 KiB.
            self._compressor = zlib.compressobj(6, zlib.DEFLATED, 16 + 12, 5)
        request.allow_origin()
        request.registerProducer(self, True)
        self.write(first)
        self.send_pending()

    def write(self, data: bytes) -> None:
        """Write whole events."""
        if self._compressor is not None:
            data = self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._request.write(data)

    def send_heartbeat(self, text: bytes) -> None:
        """Write a keepalive."""
        if not self.paused:
            self.write(text)

    def pauseProducing(self) -> None:
        """Twisted: the write buffer is full."""
        self.paused = True
        if self._stall is None:
            streams = self._streams
            self._stall = streams.reactor.callLater(streams.config.stall_timeout, self._stalled)

    def resumeProducing(self) -> None:
        """Twisted: the write buffer has space."""
        self.paused = False
        self._cancel_stall()
        self.send_pending()

    def stopProducing(self) -> None:
        """Twisted: the connection is about to be closed."""
        self.paused = True

    def end(self, reason: str) -> None:
        """End the stream with a complete response."""
        self._streams.remove(self, reason)
        self._cancel_stall()
        self.paused = True
        request = self._request
        if not request.is_disconnected:
            request.on_disconnect = None
            request.write(self.final_event())
            request.unregisterProducer()
            request.channel.persistent = False
            request.finish()

    def final_event(self) -> bytes:
        """Return the final bytes of the stream."""
        return b"" if self._compressor is None else bytes(self._compressor.flush())

    def _disconnected(self) -> None:
        self._streams.remove(self, "gone")
        self.paused = True
        self._cancel_stall()

    def _stalled(self) -> None:
        self._stall = None
        self._streams.remove(self, "stalled")
        self._request.on_disconnect = None
        # An orderly close would wait for the unread data.
        self._request.transport.abortConnection()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


class StreamingResponses:
    """All streams of one kind in a site.

    :ivar ended: number of ended streams by reason.
    :ivar skips: number of times a stream had to skip records or events.
    """

    log = Logger()

    def __init__(self, config: SiteConfig, reactor: Any) -> None:
        self.config = config
        self.reactor = reactor
        self.ended: Counter[str] = Counter()
        self.skips = 0
        self._streams: dict[Any, None] = {}
        self._heartbeat_call: Any = None

    def __len__(self) -> int:
        return len(self._streams)

    def all(self) -> list[Any]:
        """Return the open streams."""
        return list(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether the limit of streams is reached."""
        return len(self._streams) >= self.config.max_streams

    def add(self, stream: Any) -> None:
        """Register an open stream."""
        if not self._streams:
            self._heartbeat_call = self.reactor.callLater(self.config.keepalive, self._send_heartbeats)
            self.first_opened()
        self._streams[stream] = None

    def remove(self, stream: Any, reason: str) -> None:
        """Remove an ended stream, if it is registered."""
        if stream in self._streams:
            del self._streams[stream]
            self.ended[reason] += 1
            self.stream_ended(stream)
            if not self._streams:
                self._heartbeat_call.cancel()
                self.last_ended()

    def close(self) -> None:
        """End all streams when the site closes."""
        for stream in list(self._streams):
            stream.end("closed")

    def first_opened(self) -> None:
        """Hook called before the first stream is added."""

    def stream_ended(self, stream: Any) -> None:
        """Hook called after a stream has ended."""

    def last_ended(self) -> None:
        """Hook called after the last stream has ended."""

    def heartbeat(self) -> bytes:
        """Return the keepalive text for idle streams."""
        return comment(b"alive")

    def _send_heartbeats(self) -> None:
        self._heartbeat_call = self.reactor.callLater(self.config.keepalive, self._send_heartbeats)
        text = self.heartbeat()
        for stream in list(self._streams):
            stream.send_heartbeat(text)
