"""Arrival of messages at a subscriber, singly or as runs, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import SequenceRegressed
from fyrehose_twisted.fyrehose.events import ClientCounters
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import ArrivalOutcome, Deliverable, ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE, RepairScheduler
from fyrehose_twisted.fyrehose.node.client.stream_head import StreamHead
from fyrehose_twisted.fyrehose.node.client.tail_probe import TailProbe
from fyrehose_twisted.fyrehose.node.client.takeover.seam import Seam
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.interfaces import IMessageStore


class MessageArrival:
    """Arrival of the messages of one stream: at the reorder buffer, the store and the repair scheduler.

    :param backbone: address of the backbone, for error messages.
    :param journal: whether to store messages.
    :param on_new_messages: called with the first number and the DATA of messages that are received for the first time,
        the time, and whether the backbone sent them.
    :param own: start of the messages of this client, or empty. The backbone repeats them upon retransmissions.
    :param on_own_repeated: called when a message of this client is received again.
    :ivar backbone: address of the backbone; replaced when another one leads.
    :ivar ready: messages and losses to deliver, in order.
    :ivar paused: whether delivery is paused.
    :ivar failure: error that stopped the stream, or ``None``.
    :ivar start_sequence: first number of the stream, once it is known.
    :ivar reported_last: last assigned number that the backbone has reported; 0 if it has reported none.
    :ivar highest_repair: highest number that another client sent, or that the store held at the start.
    """

    def __init__(
        self,
        backbone: Address,
        store: IMessageStore,
        counters: ClientCounters,
        drops: DropLog,
        seam: Seam,
        stream_head: StreamHead,
        repair_scheduler: RepairScheduler,
        tail_probe: TailProbe,
        *,
        journal: bool,
        on_new_messages: Callable[[int, Sequence[bytes], float, bool], None],
        own: bytes = b"",
        on_own_repeated: Callable[[], None] = lambda: None,
    ) -> None:
        self.backbone = backbone
        self.ready: list[Deliverable] = []
        self.paused = False
        self.failure: SequenceRegressed | None = None
        self.start_sequence = 1
        self.reported_last = 0
        self.highest_repair = 0
        self._store = store
        self._counters = counters
        self._drops = drops
        self._seam = seam
        self._stream_head = stream_head
        self._repair_scheduler = repair_scheduler
        self._tail_probe = tail_probe
        self._journal = journal
        self._on_new_messages = on_new_messages
        self._own = own
        self._on_own_repeated = on_own_repeated

    def take_ready(self) -> list[Deliverable]:
        """Remove and return what to deliver, in order."""
        ready, self.ready = self.ready, []
        return ready

    def add_run(self, stream: ReorderBuffer, first: int, data: list[bytes], now: float, *, live: bool) -> bool:
        """Handle consecutive messages that are all above the highest known number, or all missing.

        :param live: the messages came from the backbone.
        :return: whether they were handled. If not, nothing has changed; use :meth:`add` for each.
        """
        known, last, received_at = stream.highest, first + len(data) - 1, int(now * 1_000_000)
        if not (self._stream_head.expects(first) if live else self._is_repair(known, first, last, now)):
            return False
        ready = None if self.paused else stream.deliver_directly(first, data, received_at)
        if ready is not None:
            self.ready.append(ready)
        elif not stream.add_run(first, data, received_at):
            return False
        if live:
            self._stream_head.run_received(first, last, now)
            self._repair_scheduler.messages_received(len(data))
        if first <= known:
            self._repair_scheduler.gaps_found(stream.new_gaps, now)
            self._counters.repaired += self._repair_scheduler.run_arrived(first, last, now)
        elif live:
            self._tail_probe.message_received(now)
        else:
            self._tail_probe.repair_received(last, now)
        if self._journal:
            self._store.put(first, data, received_at)
        self._on_new_messages(first, data, now, live)
        if not live:
            self._repaired_by_peer(first, last)
        return True

    def add(self, stream: ReorderBuffer, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        """Handle one message, new or not."""
        self._skip_before(stream, sequence, data)
        known = stream.highest
        if live:
            self._stream_head.received(sequence, now)
        arrival = self._buffer(stream, sequence, data, int(now * 1_000_000))
        self._repair_scheduler.gaps_found(stream.new_gaps, now)
        if arrival is ArrivalOutcome.DUPLICATE:
            self._received_again(stream, sequence, data, now, live=live)
            return
        if live:
            self._stream_head.advance(sequence)
            self._repair_scheduler.messages_received(1)
        if sequence <= known and arrival is ArrivalOutcome.NEW:
            self._counters.repaired += self._repair_scheduler.arrived(sequence, now)
        elif sequence > known:
            if live:
                self._tail_probe.message_received(now)
            else:
                self._tail_probe.repair_received(sequence, now)
        if arrival is ArrivalOutcome.OVERFLOW:
            self._drops.counts["buffer_full"] += 1
        self._store_message(sequence, data, now, live=live)
        if not live:
            self._repaired_by_peer(sequence, sequence)

    def restore(self, stream: ReorderBuffer, first: int, last: int) -> bool:
        """Restore messages that exceeded the buffer from the store. Return whether the store holds the whole range."""
        held = self._store.lowest(first, last, MAX_RANGE)
        for sequence in held:
            data = self._store.get(sequence)
            if data is None or sequence not in stream.missing:
                continue
            self._skip_before(stream, sequence, data)
            if self._buffer(stream, sequence, data, self._store.received_at(sequence) or 0) is ArrivalOutcome.NEW:
                self._repair_scheduler.arrived(sequence)
        return len(held) == last - first + 1

    def _is_repair(self, known: int, first: int, last: int, now: float) -> bool:
        """Return whether another client may send all of these messages, and none of them is stored."""
        if first > known + MAX_RANGE or not self._repair_scheduler.is_run_requested(first, last, now):
            return False
        # Repairs do not replace messages of the backbone.
        return not (self._journal and any(self._store.get(number) is not None for number in range(first, last + 1)))

    def _repaired_by_peer(self, first: int, last: int) -> None:
        self.highest_repair = max(self.highest_repair, last)
        self._stream_head.reported_by_peer(first, last)

    def _skip_before(self, stream: ReorderBuffer, sequence: int, data: bytes) -> None:
        """Skip the unused numbers before a message that starts a term."""
        start = self._seam.start_in(sequence, data)
        if start is not None:
            self._seam.started(start)
            stream.skip(start.held_up_to + 1, sequence - 1)

    def _buffer(self, stream: ReorderBuffer, sequence: int, data: bytes, received_at: int) -> ArrivalOutcome:
        if not (self.paused or stream.has_room(len(data))):
            self.ready += stream.take_ready()
        arrival = stream.add(sequence, data, received_at)
        if arrival is ArrivalOutcome.OVERFLOW and sequence in stream.missing:
            self._repair_scheduler.arrival_refused(sequence)
        return arrival

    def _store_message(self, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        # Repairs do not replace messages of the backbone.
        if self._journal and (live or self._store.get(sequence) is None):
            self._store.put(sequence, (data,), int(now * 1_000_000))
        self._on_new_messages(sequence, (data,), now, live)

    # Duplicates

    def _received_again(self, stream: ReorderBuffer, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        self._counters.duplicates += 1
        if self._own and data.startswith(self._own):
            self._on_own_repeated()
        else:
            self._repair_scheduler.arrived_twice(sequence)
        if not live:
            return
        if not self.paused:
            # Messages that are ready are not corrected any more, independent of the boundaries of batches.
            self.ready += stream.take_ready()
        self._check_duplicate(stream, sequence, data, now)

    def _check_duplicate(self, stream: ReorderBuffer, sequence: int, data: bytes, now: float) -> None:
        """Compare a duplicate of the backbone with the received message. The backbone is authoritative."""
        unconfirmed, held = self._stream_head.confirm(sequence), self._store.get(sequence)
        is_false = unconfirmed and held is not None and held != data
        if is_false:
            self._drops.counts["false_repair"] += 1
        # A buffered message may be forged, or its number may be the damaged number of another message.
        if stream.replace(sequence, data, int(now * 1_000_000)) or is_false:
            self._store_message(sequence, data, now, live=True)
            return
        self._check_regression(sequence, data, now)
        if sequence < self.start_sequence:
            self._on_new_messages(sequence, (data,), now, True)

    def _check_regression(self, sequence: int, data: bytes, now: float) -> None:
        head, held = self._stream_head, self._store.get(sequence)
        if held == data or (held is None and self._repair_scheduler.is_requested(sequence, now)):
            return
        if held is None and self.reported_last >= head.floor > 0:
            return  # The reported last number has not regressed, so this is a late repair by the backbone.
        if not (head.falls(sequence) if held is None else head.contradicts(sequence)):
            return
        self.failure = SequenceRegressed(
            f"backbone {format_address(self.backbone)} sent message {sequence} again after {head.highest};"
            " it has lost its state file or runs twice. Stop it before more numbers are assigned twice"
        )
