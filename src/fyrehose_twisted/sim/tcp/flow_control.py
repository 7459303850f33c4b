"""One direction of a stream connection, and what waits at its sender until its receiver has room."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fyrehose_twisted.sim.tcp.retransmission import Wire, WireEnd
from fyrehose_twisted.sim.tcp.route import RouteStreams
from fyrehose_twisted.sim.tcp.segments import Mark, Segment, StreamLimits


class Pipe(Wire):
    """A wire on which no more is on its way, or unread, than the receiver's window has room for.

    :ivar waits: bytes that wait at the sender.
    """

    __slots__ = ("_owed", "_pumping", "_used", "_waiting", "waits")

    def __init__(self, streams: RouteStreams, sender: WireEnd, receiver: WireEnd, limits: StreamLimits) -> None:
        super().__init__(streams, sender, receiver, limits)
        self.waits = 0
        self._waiting: deque[Segment] | None = None  # An empty deque is larger than all the rest of a connection.
        self._used = 0  # bytes of the window
        self._owed = 0  # of these, what the receiver has read and the sender cannot know
        self._pumping = False

    # What waits

    def put(self, segment: Segment) -> None:
        """Send a segment after those before it."""
        if not (self._flying or self._waiting or self._unconfirmed):
            self._progress = self._scheduler.now
        if not self._waiting and self._has_room(segment):
            self._used += segment.size
            self._launch(segment)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(segment)
        self.waits += segment.size
        self._arm()
        self.sender.buffered(self.waits)

    def make_room(self, size: int) -> None:
        """The receiver has read ``size`` bytes."""
        if self.is_answered():
            self._used -= size
        else:
            self._owed += size
        if self._waiting:
            self._tell_of_room()

    def _has_room(self, segment: Segment) -> bool:
        return not self._used or self._used + segment.size <= self._limits.window

    def _tell_of_room(self) -> None:
        if not self.is_answered():
            self._arm()
        elif not self._pumping:
            self._pumping = True
            self._scheduler.call_at(self._scheduler.now + self.answer_delay, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        while self._waiting and self._has_room(self._waiting[0]):
            segment = self._waiting.popleft()
            self.waits -= segment.size
            self._used += segment.size
            self._launch(segment)
        if not self._waiting:
            self._waiting = None
        self.sender.buffered(self.waits)

    def _confirm(self) -> None:
        super()._confirm()
        if self._owed:
            self._used -= self._owed
            self._owed = 0
            if self._waiting:
                self._tell_of_room()

    @property
    def _in_doubt(self) -> bool:
        return self._lost > 0 or self._unconfirmed or self._waiting is not None

    # The end

    @property
    def idle(self) -> bool:
        """Whether all that was written has arrived, as far as the sender knows."""
        return not self._flying and not self._in_doubt

    def sender_gone(self, why: str) -> None:
        """The sender is no more: what is on its way arrives still, up to the first that is lost."""
        self._drop(self._waiting or (), why)
        self._waiting, self.waits = None, 0
        whole = 0
        while not self.receiver.gone and whole < len(self._flying) and self._flying[whole].due is not None:
            whole += 1
        rest, self._flying, self._lost = self._flying[whole:], self._flying[:whole], 0
        self._drop(rest, why)
        if any(segment.data is Mark.HELLO for segment in rest):
            self.receiver.end(why)

    def receiver_gone(self, why: str) -> None:
        """The receiver is no more. Unless the sender is gone too, it will find out."""
        if self.sender.gone:
            self._drop(self._flying, why)
            self._flying = []

    def _drop(self, segments: Iterable[Segment], why: str) -> None:
        for segment in segments:
            for packet in segment.packets:
                self.network.drop(packet, why)
