"""What is on its way in one direction of a stream connection, and is sent again where it was lost."""

from __future__ import annotations

from math import ceil
from typing import Protocol

from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.tcp.route import Route, RouteStreams
from fyrehose_twisted.sim.tcp.segments import Segment, StreamLimits

FIRST_RETRY = 0.2
"""Seconds after which what was lost is sent again; each time in vain doubles them."""

LONGEST_RETRY = 10.0


class WireEnd(Protocol):
    """The sender or the receiver of what travels on a wire."""

    host: Host

    @property
    def gone(self) -> bool:
        """Whether its machine knows nothing of the connection any more."""

    def buffered(self, size: int) -> None:
        """So many bytes wait to be sent."""

    def reached(self) -> bool:
        """Return whether something that has come this far is taken."""

    def arrived(self, segments: list[Segment]) -> None:
        """Segments have arrived."""

    def end(self, reason: str) -> None:
        """The machine knows that the connection is over."""


class Wire(Route):
    """Brings segments from ``sender`` to ``receiver``, in order and each once.

    What is lost is sent again, and what follows waits for it. Where nobody answers, the sender gives up in the end.
    """

    __slots__ = (
        "_arriving",
        "_busy_until",
        "_flying",
        "_limits",
        "_lost",
        "_progress",
        "_retry_after",
        "_retry_at",
        "_scheduler",
        "_unconfirmed",
        "receiver",
        "sender",
    )

    def __init__(self, streams: RouteStreams, sender: WireEnd, receiver: WireEnd, limits: StreamLimits) -> None:
        super().__init__(streams, sender.host, receiver.host.address)
        self.sender = sender
        self.receiver = receiver
        self._limits = limits
        self._scheduler = self.network.scheduler
        self._flying: list[Segment] = []
        self._lost = 0  # of those flying
        self._unconfirmed = False  # something has arrived, and the sender cannot know
        self._arriving = False
        self._busy_until = 0.0
        self._progress = 0.0
        self._retry_after = FIRST_RETRY
        self._retry_at: float | None = None

    # Travelling

    def _launch(self, segment: Segment) -> None:
        self._flying.append(segment)
        self._try(segment)
        if not self._arriving:
            self._expect()

    def _try(self, segment: Segment) -> None:
        leaves = self._scheduler.now
        if self._version == self.network.version and self._calm:
            segment.due = leaves + self._there.delay
            return
        if self.is_lost():
            self._lost += 1
            self._arm()
            return
        if self.link.bandwidth is not None:
            leaves = self._busy_until = max(leaves, self._busy_until) + segment.size / self.link.bandwidth
        segment.due = leaves + self.latency()

    def _expect(self) -> None:
        if self._arriving or not self._flying or (due := self._flying[0].due) is None:
            return
        moment = self.network.moment
        self._arriving = True
        self._scheduler.call_at(max(ceil(due / moment) * moment, due) if moment else due, self._arrive)

    def _arrive(self) -> None:
        self._arriving = False
        if not self._flying:
            return
        if not self.receiver.reached():
            for segment in self._flying:
                segment.due = None
            self._lost = len(self._flying)
            self._arm()
            return
        flying, count = self._flying, 1
        while count < len(flying) and (due := flying[count].due) is not None and due <= self._scheduler.now:
            count += 1
        arrived, self._flying = flying[:count], flying[count:]
        if self.is_answered():
            self._retry_after = FIRST_RETRY
            self._confirm()
        else:
            self._unconfirmed = True
            self._arm()
        if self._flying:
            self._expect()
        self.receiver.arrived(arrived)

    # Answers, and the want of them

    def _confirm(self) -> None:
        """The sender knows how things are at the receiver."""
        self._unconfirmed = False
        self._progress = self._scheduler.now

    @property
    def _in_doubt(self) -> bool:
        """Whether the sender waits for an answer that may never come."""
        return self._lost > 0 or self._unconfirmed

    def _arm(self) -> None:
        now = self._scheduler.now
        when = max(now, min(now + self._retry_after, self._progress + self._limits.timeout))
        if self._retry_at is None or when < self._retry_at:
            self._retry_at = when
            self._scheduler.call_at(when, self._retry)

    def _retry(self) -> None:
        # An entry of the scheduler that was overtaken by an earlier one comes to nothing.
        if self._retry_at is None or self._scheduler.now < self._retry_at:
            return
        self._retry_at = None
        if self.sender.gone or not self._in_doubt:
            return
        if self._scheduler.now >= self._progress + self._limits.timeout:
            self.sender.end("timed out")
            return
        self._retry_after = min(2 * self._retry_after, LONGEST_RETRY)
        if self._lost:
            self._lost = 0
            for segment in self._flying:
                if segment.due is None:
                    self._try(segment)
            self._expect()
        elif not self._flying and not self.is_lost() and self.receiver.reached() and self.is_answered():
            self._confirm()
        if self._in_doubt:
            self._arm()
