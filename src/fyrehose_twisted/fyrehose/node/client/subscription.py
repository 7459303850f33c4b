"""One subscriber's place in the stream: where it begins, what is missing, what can be handed over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from fyrehose_twisted.errors import SequenceRegressed
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import ClientCounters, MessagesLost
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import ArrivalOutcome, MessageRun, ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE, RepairScheduler
from fyrehose_twisted.fyrehose.node.client.start_position import StartPositionSearch
from fyrehose_twisted.fyrehose.node.client.stream_head import (
    MAX_INITIAL_JUMP,
    MAX_JUMP,
    UNCONFIRMED_TIMEOUT,
    StreamHead,
)
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.interfaces import IMessageStore

MAX_PROBE_INTERVAL = 30.0
"""Seconds between tail probes of a stream on which nothing happens."""


class Subscription:
    """Messages go in as they come; :attr:`ready` and :attr:`requests` come out.

    :param backbone: how to name the backbone in errors.
    :param store: where messages are kept; what found no room to wait is taken from there.
    :param kept: called with messages that are seen for the first time: the first number, and DATA of each.
    :ivar ready: what can be handed over, in order; whoever takes it clears it.
    :ivar requests: ranges to ask for; whoever asks clears it.
    :ivar paused: hand nothing over.
    :ivar start_sequence: the number that the stream begins with, once there is one.
    :ivar reported_last: the last number that the backbone has said to have given; 0 if it has not said so.
    :ivar failure: why this has stopped for good, if it has.
    """

    def __init__(
        self,
        backbone: str,
        config: ClientConfig,
        store: IMessageStore,
        counters: ClientCounters,
        drops: DropLog,
        rng: Random,
        now: float,
        *,
        on_new_messages: Callable[[int, Sequence[bytes], float], None],
    ) -> None:
        self.ready: list[MessageRun | MessagesLost] = []
        self.requests: list[tuple[int, int]] = []
        self.paused = False
        self.failure: SequenceRegressed | None = None
        self.reorder_buffer: ReorderBuffer | None = None
        self.stream_head = StreamHead(now, config.start if isinstance(config.start, int) else None)
        self._backbone = backbone
        self._config = config
        self._store = store
        self._counters = counters
        self._drops = drops
        self._rng = rng
        self._on_new_messages = on_new_messages
        self._repair_scheduler = RepairScheduler(config.repair, rng, now)
        self._start_search: StartPositionSearch | None = None
        self.start_sequence = 1
        self._suspect: tuple[int, bytes, float] | None = None
        self.reported_last = 0
        self._probe_at = now
        self._probed_up_to = MAX_SEQUENCE
        self._probe_interval = config.keepalive_interval
        if isinstance(config.start, int):
            self._start_stream(config.start)
        else:
            self._start_search = StartPositionSearch(config.start, config.buffer_bytes, config.repair.reorder_delay)

    @property
    def complete_up_to(self) -> int:
        """All numbers up to this one are here or given up, from the beginning on."""
        stream = self.reorder_buffer
        if stream is None:
            return MAX_SEQUENCE
        return stream.missing.first - 1 if stream.missing else max(stream.highest, self.start_sequence - 1)

    def connected(self, now: float) -> None:
        """The backbone is there, for the first time or again."""
        self._probe_at = now
        self.stream_head.connected(now)
        if self._suspect is not None:
            self._suspect = *self._suspect[:2], now + UNCONFIRMED_TIMEOUT  # Nothing could contradict it meanwhile.
        if self._start_search is not None:
            self._start_search.begin(now)

    def numbers_known(self, sequence: int) -> None:
        """Numbers up to this one exist, for the store has had it: what is there need not wait for a higher one."""
        if self.reorder_buffer is not None:
            self.stream_head.raise_floor(self.reorder_buffer.next - 1)
            self.reorder_buffer.extend_to(sequence)

    def status_reported(self, oldest: int, last: int) -> None:
        """The backbone says that durable journals begin at ``oldest``, 0 if there are none, and the stream ends at
        ``last``."""
        self.reported_last = last
        if self._start_search is not None:
            self._start_search.status_reported(oldest, last)
        elif self.reorder_buffer is not None:
            self.reorder_buffer.extend_to(last)

    def search_progressed(self, first: int, last: int, left: int) -> None:
        """The backbone has yet to ask ``left`` clients for ``first`` to ``last``."""
        self._repair_scheduler.search_progressed(first, last, left)

    def is_requested(self, sequence: int, now: float) -> bool:
        """Say whether a repair of ``sequence`` is welcome."""
        # Who looks for the oldest message asks for any; once there is a stream, none leads far beyond its end.
        near = self.reorder_buffer is None or sequence <= self.reorder_buffer.highest + MAX_RANGE
        return near and self._repair_scheduler.is_requested(sequence, now)

    def received(self, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        """Take a message in. ``live``: it came from the backbone's address."""
        if self.reorder_buffer is not None:
            self._message_arrived(self.reorder_buffer, sequence, data, now, live)
            if live:
                self._check_suspect(self.reorder_buffer, sequence, now)
        elif self._start_search is not None and not self._start_search.add(sequence, data, now, live=live):
            self._drops.counts["buffer_full"] += 1

    def run_received(self, first: int, data: list[bytes], now: float) -> bool:
        """Take in messages that came from the backbone with numbers from ``first`` on, if they are simply what follows.

        :return: whether they were. If not, nothing has changed, and they are to be taken in one by one.
        """
        stream, tide = self.reorder_buffer, self.stream_head
        if stream is None or self.failure is not None or self._suspect is not None or not tide.expects(first):
            return False
        received_at = int(now * 1_000_000)
        ready = None if self.paused else stream.deliver_directly(first, data, received_at)
        if ready is not None:
            self.ready.append(ready)
        elif not stream.add_run(first, data, received_at):
            return False
        tide.run_received(first, first + len(data) - 1, now)
        self._probe_interval = self._config.keepalive_interval
        self._probe_at = now + self._probe_interval
        if self._config.journal:
            self._store.put(first, data, received_at)
        self._on_new_messages(first, data, now)
        return True

    def hold_suspect(self, sequence: int, data: bytes, now: float) -> None:
        """A message came from the backbone that is too far ahead to be believed without another near it."""
        self._suspect = sequence, data, now + UNCONFIRMED_TIMEOUT

    def tick(self, now: float) -> None:
        """Decide what depends on time: what to ask for, and what to give up."""
        if self._start_search is not None:
            self._advance_start_search(self._start_search, now)
        if self.reorder_buffer is None or self.failure is not None:
            return
        if self._suspect is not None and now >= self._suspect[2]:
            self._accept_suspect(self.reorder_buffer, self._suspect[0], self._suspect[1], now)
        self._repair(self.reorder_buffer, now)

    def advance(self, now: float) -> None:
        """Plan repairs of what turned out to be missing, and hand over what is ready."""
        stream = self.reorder_buffer
        if stream is None or self.failure is not None:
            return
        for first, last in stream.new_gaps:
            self._repair_scheduler.gap_found(first, last, now)
        stream.new_gaps.clear()
        if not self.paused:
            self.ready += stream.take_ready()

    def next_deadline(self) -> float | None:
        """Return when :meth:`tick` may have something to do."""
        if self._start_search is not None:
            return self._start_search.next_deadline()
        if self.failure is not None:
            return None
        deadlines = [
            self._probe_at,
            self._repair_scheduler.next_deadline(),
            None if self._suspect is None else self._suspect[2],
        ]
        return min([deadline for deadline in deadlines if deadline is not None])

    def _check_suspect(self, stream: ReorderBuffer, sequence: int, now: float) -> None:
        """Something else came: if it is near the suspect the stream has really jumped, and if not it has not."""
        if self._suspect is None:
            return
        suspect, data, _ = self._suspect
        if abs(sequence - suspect) <= MAX_JUMP:
            self._accept_suspect(stream, suspect, data, now)
        else:
            self._suspect = None

    def _accept_suspect(self, stream: ReorderBuffer, suspect: int, data: bytes, now: float) -> None:
        self._suspect = None
        if suspect <= max(stream.highest, self.stream_head.highest) + MAX_INITIAL_JUMP:
            self._message_arrived(stream, suspect, data, now, True)

    def _start_stream(self, start: int) -> ReorderBuffer:
        self._start_search = None
        self.stream_head.begin(start)
        self.start_sequence = start
        self.reorder_buffer = ReorderBuffer(start, limit=self._config.buffer_bytes)
        return self.reorder_buffer

    def _advance_start_search(self, joining: StartPositionSearch, now: float) -> None:
        asked = joining.next_request(now)
        if asked is not None:
            self._request_range(*asked, now)
            return
        beginning = joining.result(now)
        if beginning is not None:
            stream, confirmed = self._start_stream(beginning), joining.confirmed_numbers()
            stream.extend_to(joining.reported_last)
            for sequence, data in sorted(joining.early_messages.items()):
                live, ahead = sequence in joining.live_numbers, sequence - stream.highest
                if ahead <= MAX_JUMP or (live and ahead <= MAX_INITIAL_JUMP and sequence in confirmed):
                    self._message_arrived(stream, sequence, data, now, live)
                else:
                    self._drops.counts["implausible"] += 1
                    if live:
                        self.hold_suspect(sequence, data, now)

    def _message_arrived(self, stream: ReorderBuffer, sequence: int, data: bytes, now: float, live: bool) -> None:
        known = stream.highest
        if live:
            self.stream_head.received(sequence, now)
        arrival = self._add(stream, sequence, data, int(now * 1_000_000))
        if arrival is ArrivalOutcome.DUPLICATE:
            self._counters.duplicates += 1
            if live and not self.paused:
                self.ready += stream.take_ready()  # What can be handed over is not corrected, wherever a batch is cut.
            if live:
                self._check_duplicate(stream, sequence, data, now)
            return
        if live:
            self.stream_head.advance(sequence)
        if sequence <= known and arrival is ArrivalOutcome.NEW:
            self._counters.repaired += self._repair_scheduler.arrived(sequence)
        elif sequence > known:
            self._probe_interval = self._config.keepalive_interval
            if live:
                self._probe_at = now + self._probe_interval
            else:
                # Somebody answers a tail probe, and may have more: who comes late would need hours otherwise.
                self._probe_at = now if sequence >= self._probed_up_to else now + self._config.repair.first_retry
        if arrival is ArrivalOutcome.OVERFLOW:
            self._drops.counts["buffer_full"] += 1
        self._store_message(sequence, data, now, live=live)
        if not live:
            self.stream_head.reported_by_peer(sequence)

    def _check_duplicate(self, stream: ReorderBuffer, sequence: int, data: bytes, now: float) -> None:
        """The backbone sent what is here already: nobody knows better what it says."""
        hearsay, held = self.stream_head.confirm(sequence), self._store.get(sequence)
        false = hearsay and held is not None and held != data
        if false:
            self._drops.counts["false_repair"] += 1
        # What waits may be forged, or the number of another that got damaged.
        if stream.replace(sequence, data, int(now * 1_000_000)) or false:
            self._store_message(sequence, data, now, live=True)
            return
        self._check_regression(sequence, data, now)
        if sequence < self.start_sequence:
            self._on_new_messages(sequence, (data,), now)

    def _store_message(self, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        # What the backbone sent is not given up for what others say.
        if self._config.journal and (live or self._store.get(sequence) is None):
            self._store.put(sequence, (data,), int(now * 1_000_000))
        self._on_new_messages(sequence, (data,), now)

    def _add(self, stream: ReorderBuffer, sequence: int, data: bytes, received_at: int) -> ArrivalOutcome:
        if not (self.paused or stream.has_room(len(data))):
            self.ready += stream.take_ready()
        arrival = stream.add(sequence, data, received_at)
        if arrival is ArrivalOutcome.OVERFLOW and sequence in stream.missing:
            self._repair_scheduler.arrival_refused(sequence)
        return arrival

    def _check_regression(self, sequence: int, data: bytes, now: float) -> None:
        held = self._store.get(sequence)
        if held == data or (held is None and self._repair_scheduler.is_requested(sequence, now)):
            return
        if held is None and self.reported_last >= self.stream_head.floor > 0:
            return  # By its own account the backbone does not count anew: it repairs what was asked for long ago.
        if not (self.stream_head.falls(sequence) if held is None else self.stream_head.contradicts(sequence)):
            return
        self.failure = SequenceRegressed(
            f"backbone {self._backbone} sent message {sequence} anew after {self.stream_head.highest};"
            " it has lost its state file or runs twice. Stop it before more numbers are given twice"
        )

    def _repair(self, stream: ReorderBuffer, now: float) -> None:
        deadline = self._repair_scheduler.next_deadline()
        if deadline is not None and deadline <= now:
            due = self._repair_scheduler.take_due(
                stream.missing, now, defer_from=stream.overflow_from(paused=self.paused)
            )
            self.requests += [asked for asked in due.requests if not self._restore_from_store(stream, *asked)]
            for first, last in due.given_up:
                if self.stream_head.is_settled(now):
                    self._repair_scheduler.mark_resolved(first, last)
                    stream.give_up(first, last)
                elif not self.stream_head.beyond(last):
                    self._repair_scheduler.suspect_gap(first, last, now, until=self.stream_head.settled_at)
                else:
                    for lost in self._repair_scheduler.confirm_gap(first, last, now):
                        stream.give_up(*lost)
        if now >= self._probe_at:
            # A tail probe: the last message of a burst may be lost with nothing after it to show the gap.
            self._probed_up_to = min(stream.highest + MAX_RANGE, MAX_SEQUENCE)
            self._request_range(stream.highest + 1, self._probed_up_to, now)
            self._probe_at = now + self._probe_interval * (0.75 + 0.5 * self._rng.random())
            self._probe_interval = min(self._probe_interval * 2, MAX_PROBE_INTERVAL)

    def _restore_from_store(self, stream: ReorderBuffer, first: int, last: int) -> bool:
        """Take what the buffer had no room for from our own memory; say whether that is all of it."""
        held = self._store.lowest(first, last, MAX_RANGE)
        for sequence in held:
            data = self._store.get(sequence)
            if data is None or sequence not in stream.missing:
                continue
            if self._add(stream, sequence, data, self._store.received_at(sequence) or 0) is ArrivalOutcome.NEW:
                self._repair_scheduler.arrived(sequence)
        return len(held) == last - first + 1

    def _request_range(self, first: int, last: int, now: float) -> None:
        if first <= last and self._repair_scheduler.request_bucket.take(1, now):
            self._repair_scheduler.record_request(first, last, now)
            self.requests.append((first, last))
