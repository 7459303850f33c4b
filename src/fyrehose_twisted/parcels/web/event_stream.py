"""Server-sent event streams to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import EventsNotHeld
from fyrehose_twisted.interfaces import IEventListener, IOrderedEvents
from fyrehose_twisted.parcels.client.event_ids import EventId
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.event_json import event_json
from fyrehose_twisted.parcels.wire.messages import Event
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.response import encode_json
from fyrehose_twisted.web.sse import comment, frame, position
from fyrehose_twisted.web.streaming import StreamingResponse, StreamingResponses

READ_BATCH = 64
"""Events that a stream reads at once while it catches up."""


class EventStream(StreamingResponse):
    """Stream to one client. It buffers no events, only its position. Events that cannot be written yet are read later.

    :ivar next: sequence number of the next event to write.
    :ivar cluster_id: id of the cluster of these numbers; empty before the node is in one.
    """

    def __init__(self, broadcaster: EventBroadcaster, request: WebRequest, first: int, plain: bool) -> None:
        super().__init__(broadcaster, request)
        self._broadcaster = broadcaster
        self.plain = plain
        self.next = first
        self.cluster_id: str = broadcaster.node.cluster_id

    def start(self) -> None:
        """Write the response head and the existing events."""
        # The initial position lets a client resume correctly if it is disconnected before the first event.
        self.begin(position(self._id(self.next - 1)))

    def _id(self, sequence: int) -> bytes:
        return str(EventId(self.cluster_id, sequence)).encode()

    def check_cluster_id(self, cluster_id: str) -> bool:
        """Return whether the node is still in the same cluster; otherwise end the stream, to inform the client."""
        if not self.cluster_id:
            self.cluster_id = cluster_id
        if self.cluster_id == cluster_id:
            return True
        self.end("founded-anew")  # This and ``other-founding`` keep the old word, because alerts may select them.
        return False

    def send_pending(self) -> None:
        """Write held events until the client exerts backpressure."""
        node = self._broadcaster.node
        if not self.check_cluster_id(node.cluster_id):
            return
        while not self.paused and self.next <= node.last:
            try:
                events = node.events(self.next, node.last, READ_BATCH)
            except EventsNotHeld as error:
                if error.oldest <= self.next:
                    return
                self.skip(error.oldest - 1)
                continue
            except Exception:
                # Contain the failure, so that it does not affect the event source or other streams.
                self._broadcaster.log.failure("events {first} and on cannot be read for a stream", first=self.next)
                self.end("failed")
                return
            if not events:
                return
            for event in events:
                if self.paused:
                    return
                self._write(event, event_json(event, self.plain))

    def _write(self, event: Event, text: bytes) -> None:
        if event.sequence > self.next:
            self.skip(event.sequence - 1)
        if event.sequence == self.next:
            self.write(frame(text, self._id(event.sequence)))
            self.next += 1

    def skip(self, last: int) -> None:
        """Report that events up to ``last`` are unavailable."""
        if last >= self.next:
            self.write(frame(encode_json({"first": self.next, "last": last}), self._id(last), b"skipped"))
            self.next = last + 1
            self._broadcaster.skips += 1

    def write_live(self, events: Sequence[Event], rendered: Sequence[tuple[Event, bytes]]) -> None:
        """Write new events. A stream that lags reads them later."""
        if self.next < events[0].sequence:
            self.send_pending()
        for event, text in rendered:
            if self.paused:
                break
            self._write(event, text)


@implementer(IEventListener)
class EventBroadcaster(StreamingResponses):
    """All streams of a site. Each event is formatted once for all of them."""

    def __init__(self, node: IOrderedEvents, config: WebConfig, reactor: Any) -> None:
        super().__init__(config, reactor)
        self.node: Any = node

    def open(self, request: WebRequest, first: int, plain: bool) -> None:
        """Open a stream to a client from event ``first`` on."""
        stream = EventStream(self, request, first, plain)
        self.add(stream)
        stream.start()

    def first_opened(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponses.first_opened`."""
        self.node.listen(self)

    def last_ended(self) -> None:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponses.last_ended`."""
        self.node.unlisten(self)

    def heartbeat(self) -> bytes:
        """See :meth:`~fyrehose_twisted.web.streaming.StreamingResponses.heartbeat`."""
        # A client with several nodes fails over if this one cannot order events.
        return comment(b"mode " + self.node.state().mode.encode())

    def events_ordered(self, events: Sequence[Event]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        rendered: dict[bool, list[tuple[Event, bytes]]] = {}
        cluster_id: str = self.node.cluster_id
        for stream in self.all():
            if not stream.check_cluster_id(cluster_id):
                continue
            if stream.plain not in rendered:
                rendered[stream.plain] = [(event, event_json(event, stream.plain)) for event in events]
            stream.write_live(events, rendered[stream.plain])

    def events_skipped(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        for stream in self.all():
            stream.send_pending()
