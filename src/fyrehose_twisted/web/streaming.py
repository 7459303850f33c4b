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
from fyrehose_twisted.web.response import Problem
from fyrehose_twisted.web.sse import comment

STREAM = b"text/event-stream"


def beyond_end(what: str, next: object) -> Problem:
    """Return the problem that a client wants to follow from beyond the end, as after a stream that began anew.

    :param what: where it wants to begin, with its name.
    :param next: where the next one will be.
    """
    message = f"{what} lies beyond the end; the next one here will be {next}"
    return Problem(HTTPStatus.CONFLICT, "beyond-end", message, next=next)


@implementer(IPushProducer)
class Stream:
    """One client that follows. A subclass writes in :meth:`catch_up`, and keeps nothing but its position.

    :ivar paused: the client reads too slowly, or the stream is over: nothing is to be written.
    """

    def __init__(self, streams: Streams, request: WebRequest) -> None:
        self.paused: Any = False  # A write can change it.
        self._streams = streams
        self._request = request
        self._stall: Any = None
        self._packer: Any = None

    def catch_up(self) -> None:
        """Write what there is, until there is no more or :attr:`paused`."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to write")

    def begin(self, first: bytes, kind: bytes = STREAM) -> None:
        """Write the head and ``first``, which every stream begins with, and then what there is already."""
        request = self._request
        request.when_gone = self._gone
        set_header = request.responseHeaders.setRawHeaders
        set_header(b"Content-Type", [kind])
        set_header(b"Cache-Control", [b"no-store"])
        set_header(b"X-Accel-Buffering", [b"no"])  # nginx would hold events back.
        if request.takes_gzip:
            set_header(b"Content-Encoding", [b"gzip"])
            set_header(b"Vary", [b"Accept-Encoding"])
            # A window of 4 KiB: 32 KiB of memory for each stream, and not 256.
            self._packer = zlib.compressobj(6, zlib.DEFLATED, 16 + 12, 5)
        request.allow_origin()
        request.registerProducer(self, True)
        self.write(first)
        self.catch_up()

    def write(self, data: bytes) -> None:
        """Write whole events."""
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self._request.write(data)

    def beat(self, text: bytes) -> None:
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
        self._stop_waiting()
        self.catch_up()

    def stopProducing(self) -> None:
        """Twisted: the connection is about to be closed."""
        self.paused = True

    def end(self, why: str) -> None:
        """End it in good order."""
        self._streams.remove(self, why)
        self._stop_waiting()
        self.paused = True
        request = self._request
        if not request.gone:
            request.when_gone = None
            request.write(self.farewell())
            request.unregisterProducer()
            request.channel.persistent = False
            request.finish()

    def farewell(self) -> bytes:
        """Return what is written last."""
        return b"" if self._packer is None else bytes(self._packer.flush())

    def _gone(self) -> None:
        self._streams.remove(self, "gone")
        self.paused = True
        self._stop_waiting()

    def _stalled(self) -> None:
        self._stall = None
        self._streams.remove(self, "stalled")
        self._request.when_gone = None
        # There is no use in asking it nicely: what it does not read stands before the end.
        self._request.transport.abortConnection()

    def _stop_waiting(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


class Streams:
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
        self._beat: Any = None

    def __len__(self) -> int:
        return len(self._streams)

    def all(self) -> list[Any]:
        """Return those that are open."""
        return list(self._streams)

    @property
    def full(self) -> bool:
        """Whether there may be no more streams."""
        return len(self._streams) >= self.config.max_streams

    def add(self, stream: Any) -> None:
        """A stream is opened."""
        if not self._streams:
            self._beat = self.reactor.callLater(self.config.keepalive, self._beats)
            self.first_opened()
        self._streams[stream] = None

    def remove(self, stream: Any, why: str) -> None:
        """A stream has ended."""
        if stream in self._streams:
            del self._streams[stream]
            self.ended[why] += 1
            self.stream_ended(stream)
            if not self._streams:
                self._beat.cancel()
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

    def sign_of_life(self) -> bytes:
        """Return what is written on streams on which nothing happens."""
        return comment(b"alive")

    def _beats(self) -> None:
        self._beat = self.reactor.callLater(self.config.keepalive, self._beats)
        text = self.sign_of_life()
        for stream in list(self._streams):
            stream.beat(text)
