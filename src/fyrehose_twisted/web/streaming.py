"""Streams of server-sent events, each as fast as its client reads."""

from __future__ import annotations

import zlib
from collections import Counter
from http import HTTPStatus
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.response import HttpError
from fyrehose_twisted.web.sse import comment

STREAM = b"text/event-stream"


def beyond_end(name: str, next: object) -> HttpError:
    """Return the problem that a client wants to follow from beyond the end, as after a stream that began anew.

    :param name: where it wants to begin, with its name.
    :param next: where the next one will be.
    """
    message = f"{name} lies beyond the end; the next one here will be {next}"
    return HttpError(HTTPStatus.CONFLICT, "beyond-end", message, next=next)


@implementer(IPushProducer)
class StreamingResponse:
    """One client that follows. A subclass writes in :meth:`send_pending`, and keeps nothing but its position.

    :ivar paused: the client reads too slowly, or the stream is over: nothing is to be written.
    """

    def __init__(self, streams: StreamingResponses, request: WebRequest) -> None:
        self.paused: Any = False  # A write can change it.
        self._streams = streams
        self._request = request
        self._stall: Any = None
        self._compressor: Any = None

    def send_pending(self) -> None:
        """Write what there is, until there is no more or :attr:`paused`."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to write")

    def begin(self, first: bytes, kind: bytes = STREAM) -> None:
        """Write the head and ``first``, which every stream begins with, and then what there is already."""
        request = self._request
        request.on_disconnect = self._disconnected
        set_header = request.responseHeaders.setRawHeaders
        set_header(b"Content-Type", [kind])
        set_header(b"Cache-Control", [b"no-store"])
        set_header(b"X-Accel-Buffering", [b"no"])  # nginx would hold events back.
        if request.accepts_gzip:
            set_header(b"Content-Encoding", [b"gzip"])
            set_header(b"Vary", [b"Accept-Encoding"])
            # A window of 4 KiB: 32 KiB of memory for each stream, and not 256.
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
        """Say that the stream lives."""
        if not self.paused:
            self.write(text)

    def pauseProducing(self) -> None:
        """Twisted: the client reads too slowly."""
        self.paused = True
        if self._stall is None:
            streams = self._streams
            self._stall = streams.reactor.callLater(streams.config.stall_timeout, self._stalled)

    def resumeProducing(self) -> None:
        """Twisted: the client has read."""
        self.paused = False
        self._cancel_stall()
        self.send_pending()

    def stopProducing(self) -> None:
        """Twisted: the connection is about to be closed."""
        self.paused = True

    def end(self, reason: str) -> None:
        """End it in good order."""
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
        """Return what is written last."""
        return b"" if self._compressor is None else bytes(self._compressor.flush())

    def _disconnected(self) -> None:
        self._streams.remove(self, "gone")
        self.paused = True
        self._cancel_stall()

    def _stalled(self) -> None:
        self._stall = None
        self._streams.remove(self, "stalled")
        self._request.on_disconnect = None
        # There is no use in asking it nicely: what it does not read stands before the end.
        self._request.transport.abortConnection()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


class StreamingResponses:
    """All streams of one kind of a site.

    :ivar ended: why streams ended, and how often.
    :ivar skips: how often a client was told that there is something that it cannot have.
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
        """Return those that are open."""
        return list(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether there may be no more streams."""
        return len(self._streams) >= self.config.max_streams

    def add(self, stream: Any) -> None:
        """A stream is opened."""
        if not self._streams:
            self._heartbeat_call = self.reactor.callLater(self.config.keepalive, self._send_heartbeats)
            self.first_opened()
        self._streams[stream] = None

    def remove(self, stream: Any, reason: str) -> None:
        """A stream has ended."""
        if stream in self._streams:
            del self._streams[stream]
            self.ended[reason] += 1
            self.stream_ended(stream)
            if not self._streams:
                self._heartbeat_call.cancel()
                self.last_ended()

    def close(self) -> None:
        """End all streams: the site is closed."""
        for stream in list(self._streams):
            stream.end("closed")

    def first_opened(self) -> None:
        """There is a stream now, and was none."""

    def stream_ended(self, stream: Any) -> None:
        """One has ended."""

    def last_ended(self) -> None:
        """There is no stream any more."""

    def heartbeat(self) -> bytes:
        """Return what is written on streams on which nothing happens."""
        return comment(b"alive")

    def _send_heartbeats(self) -> None:
        self._heartbeat_call = self.reactor.callLater(self.config.keepalive, self._send_heartbeats)
        text = self.heartbeat()
        for stream in list(self._streams):
            stream.send_heartbeat(text)
