"""Follower of events over server-sent event streams, with failover: each event once and in order."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import BeyondEnd, ClusterIdMismatch, RemoteError
from fyrehose_twisted.parcels.client.event_ids import EventId, parse_event_id
from fyrehose_twisted.parcels.client.http import abort_connection
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE, Mode
from fyrehose_twisted.web.sse import Frame, FrameReader

STREAM_TIMEOUT = 45.0
"""Seconds without data after which a stream is abandoned. Nodes send a keepalive every 15 s."""


class OrderedEvent(NamedTuple):
    """One ordered event, as received over HTTP."""

    sequence: int
    publisher: str
    data: bytes


class InvalidResponse(RemoteError):
    """A response does not conform to the HTTP API."""


OpenStream = Callable[[str, EventId | None], "Deferred[Any]"]
"""Opens a stream of a node after the last known event. It fails with :class:`ClusterIdMismatch` or :class:`BeyondEnd`
if the node reports it."""

MAX_BEYOND_ROUNDS = 5
"""Consecutive rounds in which all nodes have to report ``first`` as beyond the end. A lagging node reports it, too."""


def parse_event(item: Any) -> OrderedEvent:
    """Return the event of a JSON object.

    :raises InvalidResponse: if it is malformed.
    """
    match item:
        case {"sequence": int(sequence), "publisher": str(publisher), "data": str(data)} if _is_number(sequence, 1):
            try:
                return OrderedEvent(sequence, publisher, b64decode(data, validate=True))
            except ValueError:
                pass
    raise InvalidResponse("a node sent an invalid event")


def _is_number(value: Any, lowest: int) -> bool:
    return type(value) is int and lowest <= value <= MAX_SEQUENCE


class _StreamReader(Protocol):
    """Reader of one stream, with an idle timeout."""

    def __init__(self, frames_received: Callable[[list[Frame]], None], reactor: Any) -> None:
        self._reader = FrameReader()
        self._reactor = reactor
        self._frames_received = frames_received
        self._idle_timeout = reactor.callLater(STREAM_TIMEOUT, self._timed_out)
        self._failure: Failure | None = None
        self._is_paused = False
        self.ended: Deferred[None] = Deferred(lambda _: self._abort())

    def pause(self) -> None:
        """Read no more until :meth:`resume`, so that the node has to wait."""
        self._is_paused = True
        if self.transport is not None:
            transport: Any = self.transport
            transport.pauseProducing()

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        if self._idle_timeout.active():
            self._idle_timeout.reset(STREAM_TIMEOUT)
            transport: Any = self.transport
            transport.resumeProducing()

    def connectionMade(self) -> None:
        if self._is_paused:
            self.pause()

    def dataReceived(self, data: bytes) -> None:
        if self._failure is None:
            self._idle_timeout.reset(STREAM_TIMEOUT)
            try:
                self._frames_received(self._reader.feed(data))
            except Exception:
                self._failure = Failure()
                self._abort()

    def _timed_out(self) -> None:
        if self._is_paused:
            self._idle_timeout = self._reactor.callLater(STREAM_TIMEOUT, self._timed_out)
            return
        self._failure = Failure(InvalidResponse(f"no data for {STREAM_TIMEOUT:g} s"))
        self._abort()

    def _abort(self) -> None:
        abort_connection(self.transport)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._idle_timeout.active():
            self._idle_timeout.cancel()
        if not self.ended.called:
            if self._failure is not None:
                self.ended.errback(self._failure)
            else:
                self.ended.callback(None)


def _unless_stopped(failure: Failure) -> None:
    failure.trap(CancelledError)


class _NodeNotOrdering(InvalidResponse):
    """A node cannot order events, and there are other nodes to try."""


class EventFollower:
    """Delivers events to a listener, across failures of nodes, until it is stopped.

    :param nodes: base URLs.
    :param listener: :class:`~fyrehose_twisted.interfaces.IEventListener`; its events are :class:`OrderedEvent`.
    :param first: sequence number of the first event to deliver; by default, that of the next ordered event.
    :param cluster_id: id of the cluster that ``first`` belongs to; empty if unknown.
    :ivar next: sequence number of the next event; ``None`` before it is known.
    :ivar cluster_id: id of its cluster; empty before it is known.
    :ivar stopped: Deferred that fires when the follower is stopped. It fails with an exception of the listener, with
        :class:`~fyrehose_twisted.errors.ClusterIdMismatch` if the cluster was re-created, or with
        :class:`~fyrehose_twisted.errors.BeyondEnd` if ``first`` was given without cluster id and does not exist.
    """

    log = Logger()

    def __init__(
        self,
        nodes: list[str],
        open_stream: OpenStream,
        listener: Any,
        first: int | None,
        reactor: Any,
        retry_delay: float,
        cluster_id: str = "",
    ) -> None:
        self._nodes = nodes
        self._open_stream = open_stream
        self._listener = listener
        self._reactor = reactor
        self._retry_delay = retry_delay
        self._received_any = False
        self._fatal: Failure | None = None
        self._wanted = True
        self._is_paused = False
        self._stream_reader: _StreamReader | None = None
        self._beyond_count = 0
        self.next = first
        self.cluster_id = cluster_id
        self._running: Deferred[None] = Deferred.fromCoroutine(self._run())
        self.stopped = self._running.addErrback(_unless_stopped)

    def stop(self) -> None:
        """Stop delivering events. The listener may call this, and gets none afterwards."""
        self._wanted = False
        self._running.cancel()

    def pause(self) -> None:
        """Take no more from the nodes until :meth:`resume`, except for what has arrived."""
        self._is_paused = True
        if self._stream_reader is not None:
            self._stream_reader.pause()

    def resume(self) -> None:
        """Deliver events again."""
        self._is_paused = False
        if self._stream_reader is not None:
            self._stream_reader.resume()

    async def _run(self) -> None:
        turn = 0
        while True:
            node = self._nodes[turn % len(self._nodes)]
            self._received_any = False
            try:
                await self._read(node)
            except (CancelledError, ClusterIdMismatch):
                raise
            except BeyondEnd:
                self._beyond_count += 1
                if self._beyond_count >= MAX_BEYOND_ROUNDS * len(self._nodes):
                    raise
            except Exception as error:
                self._beyond_count = 0
                self.log.debug("{node}: {error}", node=node, error=error)
            if self._fatal is not None:
                self._fatal.raiseException()
            turn += 1
            if not self._received_any or turn % len(self._nodes) == 0:
                await deferLater(self._reactor, self._retry_delay, lambda: None)

    async def _read(self, node: str) -> None:
        seen = None if self.next is None else EventId(self.cluster_id, self.next - 1)
        response = await self._open_stream(node, seen)
        self._stream_reader = reader = _StreamReader(self._frames_received, self._reactor)
        if self._is_paused:
            reader.pause()
        response.deliverBody(reader)
        try:
            await reader.ended
        finally:
            self._stream_reader = None

    def _frames_received(self, frames: list[Frame]) -> None:
        events: list[OrderedEvent] = []
        rests = False
        for frame in frames:
            if frame.event == "comment":
                rests = frame.data.startswith("mode ") and frame.data != f"mode {Mode.WRK.value}"
                continue
            self._received_any = True
            self._check_cluster_id(frame.id, events)
            if frame.event == "position" and self.next is None:
                self.next = parse_event_id(frame.id).sequence + 1
            elif frame.event == "message":
                event = parse_event(_parse_json(frame.data))
                self._skip_to(event.sequence - 1, events)
                if event.sequence == self.next:
                    events.append(event)
                    self.next += 1
            elif frame.event == "skipped":
                match _parse_json(frame.data):
                    case {"last": last} if _is_number(last, 0):
                        self._skip_to(last, events)
                    case _:
                        raise InvalidResponse("a node skipped events without reporting which")
        self._deliver(events)
        if rests and len(self._nodes) > 1:
            raise _NodeNotOrdering("it cannot order events")

    def _check_cluster_id(self, id: str, events: list[OrderedEvent]) -> None:
        """Adopt the cluster id of the first event, and check that of later ones."""
        try:
            cluster_id = parse_event_id(id).cluster_id
        except ValueError:
            raise InvalidResponse("a node sent an event without an id") from None
        if cluster_id != self.cluster_id:
            if self.cluster_id and cluster_id:
                self._deliver(events)
                self._fatal = Failure(ClusterIdMismatch(self.cluster_id, cluster_id))
                self._fatal.raiseException()
            self.cluster_id = cluster_id or self.cluster_id

    def _skip_to(self, last: int, events: list[OrderedEvent]) -> None:
        if self.next is None:
            self.next = last + 1
        elif last >= self.next:
            self._deliver(events)
            first, self.next = self.next, last + 1
            self._call_listener(self._listener.events_skipped, first, last)

    def _deliver(self, events: list[OrderedEvent]) -> None:
        if events:
            self._call_listener(self._listener.events_ordered, list(events))
            events.clear()

    def _call_listener(self, listener: Callable[..., Any], *arguments: Any) -> None:
        if not self._wanted:
            return
        try:
            listener(*arguments)
        except Exception:
            self._fatal = Failure()
            raise


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidResponse("a node sent data that is not JSON") from None
