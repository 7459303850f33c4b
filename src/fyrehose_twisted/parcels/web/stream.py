"""Streams of events to clients, as server-sent events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.errors import EventsNotHeld
from fyrehose_twisted.interfaces import IEventListener, IOrderedEvents
from fyrehose_twisted.parcels.messages import Event
from fyrehose_twisted.parcels.web.answers import dump
from fyrehose_twisted.parcels.web.channel import WebRequest
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.rendering import render
from fyrehose_twisted.parcels.web.sse import comment, frame, position

AT_ONCE = 64
"""Events that a stream which catches up reads at once."""


@implementer(IPushProducer)
class Stream:
    """One client that follows. It keeps no events, only its position: what cannot be written yet is read again later.

    :ivar next: number of the next event to write.
    """

    def __init__(self, feed: Feed, request: WebRequest, first: int, plain: bool) -> None:
        self._feed = feed
        self._request = request
        self._paused: Any = False  # A write can change it.
        self._stall: Any = None
        self.plain = plain
        self.next = first

    def start(self) -> None:
        """Write the head, and what there is already."""
        request = self._request
        request.when_gone = self._gone
        set_header = request.responseHeaders.setRawHeaders
        set_header(b"Content-Type", [b"text/event-stream"])
        set_header(b"Cache-Control", [b"no-store"])
        set_header(b"X-Accel-Buffering", [b"no"])  # nginx would hold events back.
        request.allow_origin()
        request.registerProducer(self, True)
        # Who is cut off before the first event comes back to the right place, too.
        request.write(position(self.next - 1))
        self.catch_up()

    def catch_up(self) -> None:
        """Write what the node holds, as far as the client reads it."""
        node = self._feed.node
        while not self._paused and self.next <= node.last:
            try:
                events = node.events(self.next, node.last, AT_ONCE)
            except EventsNotHeld as error:
                if error.oldest <= self.next:
                    return
                self.skip(error.oldest - 1)
                continue
            except Exception:
                # Whoever tells of events, and the other streams, have nothing to do with it.
                self._feed.log.failure("events {first} and on cannot be read for a stream", first=self.next)
                self.end("failed")
                return
            if not events:
                return
            for event in events:
                if self._paused:
                    return
                self._write(event, render(event, self.plain))

    def _write(self, event: Event, text: bytes) -> None:
        if event.sequence > self.next:
            self.skip(event.sequence - 1)
        if event.sequence == self.next:
            self._request.write(frame(text, event.sequence))
            self.next += 1

    def skip(self, last: int) -> None:
        """Say that there is nothing to be had up to ``last``."""
        if last >= self.next:
            self._request.write(frame(dump({"first": self.next, "last": last}), last, b"skipped"))
            self.next = last + 1
            self._feed.skips += 1

    def live(self, events: Sequence[Event], rendered: Sequence[tuple[Event, bytes]]) -> None:
        """Events came. A stream that is behind reads them when it gets there."""
        if self.next < events[0].sequence:
            self.catch_up()
        for event, text in rendered:
            if self._paused:
                break
            self._write(event, text)

    def beat(self, text: bytes) -> None:
        """Say that the stream lives."""
        if not self._paused:
            self._request.write(text)

    def pauseProducing(self) -> None:
        """Twisted: the client reads too slowly."""
        self._paused = True
        if self._stall is None:
            feed = self._feed
            self._stall = feed.reactor.callLater(feed.config.stall_timeout, self._stalled)

    def resumeProducing(self) -> None:
        """Twisted: the client has read."""
        self._paused = False
        self._stop_waiting()
        self.catch_up()

    def stopProducing(self) -> None:
        """Twisted: the connection is about to be closed."""
        self._paused = True

    def end(self, why: str) -> None:
        """End it in good order."""
        self._feed.remove(self, why)
        self._stop_waiting()
        self._paused = True
        request = self._request
        if not request.gone:
            request.when_gone = None
            request.unregisterProducer()
            request.channel.persistent = False
            request.finish()

    def _gone(self) -> None:
        self._feed.remove(self, "gone")
        self._paused = True
        self._stop_waiting()

    def _stalled(self) -> None:
        self._stall = None
        self._feed.remove(self, "stalled")
        self._request.when_gone = None
        # There is no use in asking it nicely: what it does not read stands before the end.
        self._request.transport.abortConnection()

    def _stop_waiting(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


@implementer(IEventListener)
class Feed:
    """All streams of a site. Each event is put in their format once.

    :ivar ended: why streams ended, and how often.
    :ivar skips: how often a client was told that there are events that it cannot have.
    """

    log = Logger()

    def __init__(self, node: IOrderedEvents, config: WebConfig, reactor: Any) -> None:
        self.node: Any = node
        self.config = config
        self.reactor = reactor
        self.ended: Counter[str] = Counter()
        self.skips = 0
        self._streams: dict[Stream, None] = {}
        self._beat: Any = None

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def full(self) -> bool:
        """Whether there may be no more streams."""
        return len(self._streams) >= self.config.max_streams

    def open(self, request: WebRequest, first: int, plain: bool) -> None:
        """Let a client follow from event ``first`` on."""
        stream = Stream(self, request, first, plain)
        if not self._streams:
            self.node.listen(self)
            self._beat = self.reactor.callLater(self.config.keepalive, self._beats)
        self._streams[stream] = None
        stream.start()

    def remove(self, stream: Stream, why: str) -> None:
        """A stream has ended."""
        if stream in self._streams:
            del self._streams[stream]
            self.ended[why] += 1
            if not self._streams:
                self.node.unlisten(self)
                self._beat.cancel()

    def close(self) -> None:
        """End all streams: the site is closed."""
        for stream in list(self._streams):
            stream.end("closed")

    def events_ordered(self, events: Sequence[Event]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        rendered: dict[bool, list[tuple[Event, bytes]]] = {}
        for stream in list(self._streams):
            if stream.plain not in rendered:
                rendered[stream.plain] = [(event, render(event, stream.plain)) for event in events]
            stream.live(events, rendered[stream.plain])

    def events_skipped(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        for stream in list(self._streams):
            stream.catch_up()

    def _beats(self) -> None:
        self._beat = self.reactor.callLater(self.config.keepalive, self._beats)
        # A client that has other nodes goes to one of them if this one orders nothing.
        text = comment(b"mode " + self.node.state().mode.encode())
        for stream in list(self._streams):
            stream.beat(text)
