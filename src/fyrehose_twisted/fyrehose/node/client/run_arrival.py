"""Arrival of consecutive messages at a subscriber, handled as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fyrehose_twisted.fyrehose.events import ClientCounters
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MessageRun, ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE, RepairScheduler
from fyrehose_twisted.fyrehose.node.client.stream_head import StreamHead
from fyrehose_twisted.fyrehose.node.client.tail_probe import TailProbe
from fyrehose_twisted.interfaces import IMessageStore


class RunArrival:
    """Arrival of runs that continue the stream or fill a part of a gap. The results are those of single messages.

    :param journal: whether to store messages.
    :param on_new_messages: called with the first number and the DATA of messages that are received for the first time.
    :ivar highest_repair: highest number that another client sent, or that the store held at the start.
    """

    def __init__(
        self,
        store: IMessageStore,
        counters: ClientCounters,
        stream_head: StreamHead,
        repair_scheduler: RepairScheduler,
        tail_probe: TailProbe,
        *,
        journal: bool,
        on_new_messages: Callable[[int, Sequence[bytes], float], None],
    ) -> None:
        self.highest_repair = 0
        self._store = store
        self._counters = counters
        self._stream_head = stream_head
        self._repair_scheduler = repair_scheduler
        self._tail_probe = tail_probe
        self._journal = journal
        self._on_new_messages = on_new_messages

    def add(
        self, stream: ReorderBuffer, first: int, data: list[bytes], now: float, *, live: bool, paused: bool
    ) -> tuple[bool, MessageRun | None]:
        """Handle consecutive messages that are all above the highest known number, or all missing.

        :param live: the messages came from the backbone.
        :return: whether they were handled, and those to deliver at once. If they were not, nothing has changed.
        """
        known, last, received_at = stream.highest, first + len(data) - 1, int(now * 1_000_000)
        if not (self._stream_head.expects(first) if live else self._is_repair(known, first, last, now)):
            return False, None
        ready = None if paused else stream.deliver_directly(first, data, received_at)
        if ready is None and not stream.add_run(first, data, received_at):
            return False, None
        if live:
            self._stream_head.run_received(first, last, now)
        if first <= known:
            self._repair_scheduler.gaps_found(stream.new_gaps, now)
            self._counters.repaired += self._repair_scheduler.run_arrived(first, last, now)
        elif live:
            self._tail_probe.message_received(now)
        else:
            self._tail_probe.repair_received(last, now)
        if self._journal:
            self._store.put(first, data, received_at)
        self._on_new_messages(first, data, now)
        if not live:
            self.repaired_by_peer(first, last)
        return True, ready

    def repaired_by_peer(self, first: int, last: int) -> None:
        """Record that another client sent ``first`` to ``last``."""
        self.highest_repair = max(self.highest_repair, last)
        self._stream_head.reported_by_peer(first, last)

    def _is_repair(self, known: int, first: int, last: int, now: float) -> bool:
        """Return whether another client may send all of these messages, and none of them is stored."""
        if first > known + MAX_RANGE or not self._repair_scheduler.is_run_requested(first, last, now):
            return False
        # Repairs do not replace messages of the backbone.
        return not (self._journal and any(self._store.get(number) is not None for number in range(first, last + 1)))
