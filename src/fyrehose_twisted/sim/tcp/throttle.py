"""Throttled reads of stream connections."""

from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.tcp.connection import ConnectionEnd
from fyrehose_twisted.sim.tcp.receive_buffer import ReceiveBuffer


class Throttle:
    """Throttle that limits the reads of ``host`` to ``rate`` bytes per second and serves its connections in turn.

    :param source: address of the only throttled sender; ``None`` throttles all.
    """

    def __init__(self, host: Host, rate: float, source: Address | None) -> None:
        self.host = host
        self.rate = rate
        self.source = source
        self._waiting: dict[ReceiveBuffer, ConnectionEnd] = {}
        self._scheduled = False
        self._next_read_at = 0.0

    def applies_to(self, end: ConnectionEnd) -> bool:
        """Return whether ``end`` is throttled."""
        return end.host is self.host and (self.source is None or end.to == self.source)

    def enqueue(self, end: ConnectionEnd, inbox: ReceiveBuffer) -> None:
        """Schedule a read of the receive buffer of ``end``."""
        self._waiting[inbox] = end
        self._schedule()

    def release(self) -> None:
        """Stop throttling and read queued data at once."""
        waiting, self._waiting = self._waiting, {}
        for end in waiting.values():
            end.update_node()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            scheduler = self.host.network.scheduler
            scheduler.call_at(max(scheduler.now, self._next_read_at), self._read)

    def _read(self) -> None:
        self._scheduled = False
        # An end that cannot be read now, because its host is paused or closed it, enqueues itself again later.
        while self._waiting:
            inbox = next(iter(self._waiting))
            end = self._waiting.pop(inbox)
            if not inbox.readable:
                continue
            if end.streams.throttle_of(end) is not self:
                end.update_node()
                continue
            size = inbox.read_some(once=True)
            self._next_read_at = self.host.network.now + size / self.rate
            if inbox.readable:
                self._waiting[inbox] = end
            if size:
                break
        self._schedule()
