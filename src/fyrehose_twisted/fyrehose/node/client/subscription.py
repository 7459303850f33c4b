"""Receiving side of a client: start position, repairs and delivery of the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import ClientCounters
from fyrehose_twisted.fyrehose.node.client.message_arrival import MessageArrival
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE, RepairScheduler
from fyrehose_twisted.fyrehose.node.client.start_position import StartPositionSearch
from fyrehose_twisted.fyrehose.node.client.stream_head import (
    MAX_INITIAL_JUMP,
    MAX_JUMP,
    UNCONFIRMED_TIMEOUT,
    StreamHead,
)
from fyrehose_twisted.fyrehose.node.client.tail_probe import TailProbe
from fyrehose_twisted.fyrehose.node.client.takeover.seam import Seam
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE, Asked, Status
from fyrehose_twisted.interfaces import IMessageStore


class Subscription:
    """Receiving side of a client: takes received messages and fills :attr:`requests` and ``arrival.ready``.

    :param store: message store, from which messages that exceeded the reorder buffer are restored.
    :param backbone: see :class:`~fyrehose_twisted.fyrehose.node.client.message_arrival.MessageArrival`.
    :param on_new_messages: see there.
    :param own: see there.
    :param on_own_repeated: see there.
    :ivar arrival: messages that have arrived, and the failure that stops the subscription.
    :ivar requests: ranges to request; cleared by the caller.
    """

    def __init__(
        self,
        backbone: Address,
        config: ClientConfig,
        store: IMessageStore,
        counters: ClientCounters,
        drops: DropLog,
        rng: Random,
        now: float,
        *,
        on_new_messages: Callable[[int, Sequence[bytes], float, bool], None],
        own: bytes = b"",
        on_own_repeated: Callable[[], None] = lambda: None,
    ) -> None:
        self.requests: list[tuple[int, int]] = []
        self.reorder_buffer: ReorderBuffer | None = None
        self.stream_head = StreamHead(now, config.start if isinstance(config.start, int) else None)
        self._seam = Seam()
        self._config = config
        self._drops = drops
        self._repair_scheduler = RepairScheduler(config.repair, rng, now)
        self._start_search: StartPositionSearch | None = None
        self._suspect: tuple[int, bytes, float] | None = None
        self._start_over_at: float | None = None
        self._tail_probe = TailProbe(config, rng, now)
        self.arrival = MessageArrival(
            backbone,
            store,
            counters,
            drops,
            self._seam,
            self.stream_head,
            self._repair_scheduler,
            self._tail_probe,
            journal=config.journal,
            on_new_messages=on_new_messages,
            own=own,
            on_own_repeated=on_own_repeated,
        )
        if isinstance(config.start, int):
            self._start_stream(config.start)
        else:
            self._start_search = StartPositionSearch(config.start, config.buffer_bytes, config.repair.reorder_delay)

    @property
    def _missing_span(self) -> range:
        """Numbers from the first missing one to the highest known one."""
        stream = self.reorder_buffer
        return range(stream.missing.first, stream.highest + 1) if stream is not None and stream.missing else range(0)

    @property
    def tail_probe_due_at(self) -> float:
        """Time at which the subscriber asks for what may follow the last message."""
        return self._tail_probe.due_at

    @property
    def has_new_gaps(self) -> bool:
        """Whether numbers are missing that :meth:`advance` has not seen."""
        return self.reorder_buffer is not None and bool(self.reorder_buffer.new_gaps)

    @property
    def complete_up_to(self) -> int:
        """Number up to which every message from the start was received or is lost."""
        stream = self.reorder_buffer
        if stream is None:
            return MAX_SEQUENCE
        return stream.missing.first - 1 if stream.missing else max(stream.highest, self.arrival.start_sequence - 1)

    @property
    def highest_held(self) -> int:
        """Highest number that was received, or that the store held at the start; 0 if there is none."""
        if self._start_search is not None:
            return max(self._start_search.early_messages, default=0)
        return max(self.stream_head.highest, self.arrival.highest_repair)

    def leader_reported(self, backbone: Address, term: int) -> None:
        """Record the leader and its term, 0 for a single backbone."""
        self.arrival.backbone, self._seam.term = backbone, term

    def leader_changed(self, backbone: Address, term: int, now: float, *, connected: bool) -> None:
        """Handle the change of the leader.

        :param connected: whether messages of the former leader may still arrive.
        """
        self.arrival.backbone = backbone
        self._seam.open(term, self.highest_held if connected else inf, now)
        # The new leader does not know a message that this client does not hold.
        self._suspect = None
        self.stream_head.leader_changed()
        self._start_over_at = now

    def connected(self, now: float) -> None:
        """Handle the first answer of the backbone, or its return."""
        self._tail_probe.due_at = now
        self.stream_head.connected(now)
        self._start_over_at = now
        if self._suspect is not None:
            # While the backbone was silent, no message could contradict the suspect.
            self._suspect = *self._suspect[:2], now + UNCONFIRMED_TIMEOUT
        if self._start_search is not None:
            self._start_search.begin(now)

    def spread_requests(self, seconds: float) -> None:
        """Delay the first REQUEST for a gap by up to so many seconds, because many clients may miss the same."""
        self._repair_scheduler.spread = seconds

    def numbers_known(self, sequence: int) -> None:
        """Extend the stream to a number that the store holds, so that stored messages are delivered."""
        if self.reorder_buffer is not None:
            self.stream_head.raise_floor(self.reorder_buffer.next - 1)
            self.reorder_buffer.extend_to(sequence)
            self.arrival.highest_repair = sequence

    def extension_received(self, extension: Status | Asked) -> None:
        """Handle a STATUS or ASKED of the backbone."""
        if self.arrival.failure is not None:
            return
        match extension:
            case Status(oldest=oldest, last=last):
                self.status_reported(oldest, last)
            case Asked(first=first, last=last, left=left):
                self._repair_scheduler.search_progressed(first, last, left)

    def status_reported(self, oldest: int, last: int) -> None:
        """Handle a STATUS.

        :param oldest: oldest number of durable journals, 0 if there are none.
        :param last: last assigned number.
        """
        self.arrival.reported_last = last
        if self._start_search is not None:
            self._start_search.status_reported(oldest, last)
        elif self.reorder_buffer is not None:
            self.reorder_buffer.extend_to(last)

    def accepts(self, sequence: int, data: bytes, now: float, *, live: bool) -> bool:
        """Return whether a message may be part of the stream, and the backbone sent it or it was requested."""
        if not self._seam.permits(sequence, data, live=live):
            return False
        # While joining, any number may be the oldest. Afterwards, repairs must not lead far beyond the end.
        near = self.reorder_buffer is None or sequence <= self.reorder_buffer.highest + MAX_RANGE
        return live or (near and self._repair_scheduler.is_requested(sequence, now))

    def is_plausible(self, sequence: int, data: bytes) -> bool:
        """Return whether the backbone may have reached this number."""
        head = self.stream_head
        return self._seam.is_plausible_start(sequence, data, head.highest) or head.plausible(sequence)

    def received(self, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        """Handle a message. ``live`` means that it came from the address of the backbone."""
        if self.reorder_buffer is not None:
            self.arrival.add(self.reorder_buffer, sequence, data, now, live=live)
            if live:
                self._check_suspect(self.reorder_buffer, sequence, now)
        elif self._start_search is not None and not self._start_search.add(sequence, data, now, live=live):
            self._drops.counts["buffer_full"] += 1

    def uniform_count(self, first: int, count: int) -> int:
        """Return how many of ``count`` messages from number ``first`` on :meth:`run_received` can handle as one."""
        return count if self.reorder_buffer is None else self.reorder_buffer.uniform_count(first, count)

    def run_received(self, first: int, data: list[bytes], now: float, *, live: bool) -> bool:
        """Handle consecutive messages, starting with ``first``, if they simply continue the stream or fill a gap.

        :return: whether they did. If not, nothing has changed, and each has to be passed to :meth:`received`.
        """
        stream, seam = self.reorder_buffer, self._seam
        if stream is None or self.arrival.failure is not None or self._suspect is not None or seam.is_open:
            return False
        if seam.term and first != stream.highest + 1 and any(map(seam.start_in, range(first, first + len(data)), data)):
            return False
        return self.arrival.add_run(stream, first, data, now, live=live)

    def hold_suspect(self, sequence: int, data: bytes, now: float) -> None:
        """Hold back a message of the backbone that is too far ahead to be accepted without another one near it."""
        self._suspect = sequence, data, now + UNCONFIRMED_TIMEOUT

    def tick(self, now: float) -> None:
        """Send due requests and detect losses."""
        if self._start_search is not None:
            self._advance_start_search(self._start_search, now)
        if self.reorder_buffer is None or self.arrival.failure is not None:
            return
        self._seam.tick(now)
        if self._start_over_at is not None:
            self._start_over_at = None
            self._repair_scheduler.start_over(self.reorder_buffer.missing, now)
        if self._suspect is not None and now >= self._suspect[2]:
            self._accept_suspect(self.reorder_buffer, self._suspect[0], self._suspect[1], now)
        self._repair(self.reorder_buffer, now)

    def advance(self, now: float) -> None:
        """Schedule repairs of new gaps and collect the messages that are ready."""
        stream = self.reorder_buffer
        if stream is None or self.arrival.failure is not None:
            return
        self._repair_scheduler.gaps_found(stream.new_gaps, now)
        if not self.arrival.paused:
            self.arrival.ready += stream.take_ready()

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`tick` is due, or ``None``."""
        if self._start_search is not None:
            return self._start_search.next_deadline()
        if self.arrival.failure is not None:
            return None
        deadlines = [
            self._tail_probe.due_at,
            self._start_over_at,
            self._repair_scheduler.next_deadline(),
            None if self._suspect is None else self._suspect[2],
            self._seam.next_deadline(self._missing_span),
        ]
        return min([deadline for deadline in deadlines if deadline is not None])

    def _check_suspect(self, stream: ReorderBuffer, sequence: int, now: float) -> None:
        """Accept the suspect if another message of the backbone is near it; otherwise drop it."""
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
            self.arrival.add(stream, suspect, data, now, live=True)

    def _start_stream(self, start: int) -> ReorderBuffer:
        self._start_search = None
        self.stream_head.begin(start)
        self.arrival.start_sequence = start
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
                near = ahead <= MAX_JUMP or (live and self._seam.is_plausible_start(sequence, data, stream.highest))
                if near or (live and ahead <= MAX_INITIAL_JUMP and sequence in confirmed):
                    self.arrival.add(stream, sequence, data, now, live=live)
                else:
                    self._drops.counts["implausible"] += 1
                    if live:
                        self.hold_suspect(sequence, data, now)

    def _repair(self, stream: ReorderBuffer, now: float) -> None:
        deadline = self._repair_scheduler.next_deadline()
        if deadline is not None and deadline <= now:
            full_from = stream.overflow_from(paused=self.arrival.paused)
            due = self._repair_scheduler.take_due(stream.missing, now, defer_from=full_from)
            self.requests += [missing for missing in due.requests if not self.arrival.restore(stream, *missing)]
            for first, last in due.given_up:
                if self.stream_head.is_settled(now):
                    self._repair_scheduler.mark_resolved(first, last)
                    stream.give_up(first, last)
                elif not self.stream_head.beyond(last):
                    self._repair_scheduler.suspect_gap(first, last, now, until=self.stream_head.settled_at)
                else:
                    for lost in self._repair_scheduler.confirm_gap(first, last, now):
                        stream.give_up(*lost)
        if self._seam.is_open and (seam_probe := self._seam.next_probe(self._missing_span, now)) is not None:
            self._request_range(*seam_probe, now)
        if now >= self._tail_probe.due_at:
            self._request_range(*self._tail_probe.next_range(stream.highest, now), now)

    def _request_range(self, first: int, last: int, now: float) -> None:
        if first <= last and self._repair_scheduler.request_bucket.take(1, now):
            self._repair_scheduler.record_request(first, last, now)
            self.requests.append((first, last))
