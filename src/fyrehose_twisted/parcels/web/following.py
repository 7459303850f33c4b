"""Follows events over streams of one node after another, each event once and in order."""

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

from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.parcels.messages import MAX_SEQUENCE, Mode
from fyrehose_twisted.parcels.web.outgoing import abort
from fyrehose_twisted.web.sse import Frame, FrameReader

SILENCE = 45.0
"""Seconds without a byte after which a stream is given up: nodes say each 15 s that they are there."""


class OrderedEvent(NamedTuple):
    """One event of the order, as it comes over HTTP."""

    sequence: int
    publisher: str
    data: bytes


class BadAnswer(RemoteError):
    """A node's answer is none of this interface."""


Open = Callable[[str, int | None], "Deferred[Any]"]
"""Opens a stream of a node; the number is that of the last event which is known. Returns the answer."""


def event_of(item: Any) -> OrderedEvent:
    """Return an event that came as JSON, with its bytes as ``data``.

    :raises BadAnswer: if it is none.
    """
    match item:
        case {"sequence": int(sequence), "publisher": str(publisher), "data": str(data)} if _is_number(sequence, 1):
            try:
                return OrderedEvent(sequence, publisher, b64decode(data, validate=True))
            except ValueError:
                pass
    raise BadAnswer("a node sent an event that is none")


def _is_number(value: Any, lowest: int) -> bool:
    return type(value) is int and lowest <= value <= MAX_SEQUENCE


class _StreamReader(Protocol):
    """Reads one stream, for as long as something comes."""

    def __init__(self, take: Callable[[list[Frame]], None], reactor: Any) -> None:
        self._reader = FrameReader()
        self._take = take
        self._silence = reactor.callLater(SILENCE, self._silent)
        self._failure: Failure | None = None
        self.ended: Deferred[None] = Deferred(lambda _: self._abort())

    def dataReceived(self, data: bytes) -> None:
        if self._failure is None:
            self._silence.reset(SILENCE)
            try:
                self._take(self._reader.feed(data))
            except Exception:
                self._failure = Failure()
                self._abort()

    def _silent(self) -> None:
        self._failure = Failure(BadAnswer(f"nothing came for {SILENCE:g} s"))
        self._abort()

    def _abort(self) -> None:
        abort(self.transport)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._silence.active():
            self._silence.cancel()
        if not self.ended.called:
            if self._failure is not None:
                self.ended.errback(self._failure)
            else:
                self.ended.callback(None)


def _unless_stopped(failure: Failure) -> None:
    failure.trap(CancelledError)


class _NodeRests(BadAnswer):
    """A node orders nothing, and there are others."""


class Following:
    """Hands events on to a listener until it is stopped, whichever nodes come and go meanwhile.

    :param nodes: their base URLs.
    :param listener: :class:`~fyrehose_twisted.interfaces.IEventListener`; its events are :class:`OrderedEvent`.
    :param first: number of the first event to hand on; by default the next one that is ordered.
    :ivar next: number of the next event; ``None`` before it is known.
    :ivar stopped: Deferred that fires when it was stopped, and fails with what the listener raised.
    """

    log = Logger()

    def __init__(
        self, nodes: list[str], open: Open, listener: Any, first: int | None, reactor: Any, pause: float
    ) -> None:
        self._nodes = nodes
        self._open = open
        self._listener = listener
        self._reactor = reactor
        self._pause = pause
        self._heard = False
        self._broken: Failure | None = None
        self.next = first
        self._running: Deferred[None] = Deferred.fromCoroutine(self._run())
        self.stopped = self._running.addErrback(_unless_stopped)

    def stop(self) -> None:
        """Hand nothing on any more."""
        self._running.cancel()

    async def _run(self) -> None:
        turn = 0
        while True:
            node = self._nodes[turn % len(self._nodes)]
            self._heard = False
            try:
                await self._read(node)
            except CancelledError:
                raise
            except Exception as error:
                self.log.debug("{node}: {error}", node=node, error=error)
            if self._broken is not None:
                self._broken.raiseException()
            turn += 1
            if not self._heard or turn % len(self._nodes) == 0:
                await deferLater(self._reactor, self._pause, lambda: None)

    async def _read(self, node: str) -> None:
        response = await self._open(node, None if self.next is None else self.next - 1)
        reader = _StreamReader(self._take, self._reactor)
        response.deliverBody(reader)
        await reader.ended

    def _take(self, frames: list[Frame]) -> None:
        events: list[OrderedEvent] = []
        rests = False
        for frame in frames:
            if frame.event == "comment":
                rests = frame.data.startswith("mode ") and frame.data != f"mode {Mode.WRK.value}"
                continue
            self._heard = True
            if frame.event == "position" and self.next is None:
                if not frame.id.isdecimal() or not frame.id.isascii() or len(frame.id) > 19:
                    raise BadAnswer("a node says no number where its stream begins")
                self.next = int(frame.id) + 1
            elif frame.event == "message":
                event = event_of(_parse(frame.data))
                self._missing(event.sequence - 1, events)
                if event.sequence == self.next:
                    events.append(event)
                    self.next += 1
            elif frame.event == "skipped":
                match _parse(frame.data):
                    case {"last": last} if _is_number(last, 0):
                        self._missing(last, events)
                    case _:
                        raise BadAnswer("a node skips events, and does not say which")
        self._hand_on(events)
        if rests and len(self._nodes) > 1:
            raise _NodeRests("it orders nothing")

    def _missing(self, last: int, events: list[OrderedEvent]) -> None:
        if self.next is None:
            self.next = last + 1
        elif last >= self.next:
            self._hand_on(events)
            first, self.next = self.next, last + 1
            self._tell(self._listener.events_skipped, first, last)

    def _hand_on(self, events: list[OrderedEvent]) -> None:
        if events:
            self._tell(self._listener.events_ordered, list(events))
            events.clear()

    def _tell(self, listener: Callable[..., Any], *arguments: Any) -> None:
        try:
            listener(*arguments)
        except Exception:
            self._broken = Failure()
            raise


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadAnswer("a node sent something that is not JSON") from None
