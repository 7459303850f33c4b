"""Retransmit buffer of the backbone, and the paced retransmission of messages from it."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER
from fyrehose_twisted.fyrehose.wire.envelope import COUNTER_WINDOW, ENVELOPE_SIZE, MAGIC
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.token_bucket import KeyedTokenBuckets, TokenBucket

CHUNK_OVERHEAD = 128
"""Bytes of memory per chunk in addition to its datagrams."""

MAX_RANGES, MAX_RANGES_EACH = 65_536, 8_192
"""Maximum number of queued ranges, in total and per client."""

ANSWER_LIMIT = 1_024
"""Maximum number of messages sent for one REQUEST."""

BYTE_RATE, BYTE_BURST = 16.0 * 2**20, 256.0 * 2**10
"""Retransmitted bytes per second, and burst in bytes, per client."""

TOTAL_RATE, TOTAL_BURST = 64.0 * 2**20, 2.0 * 2**20
"""Retransmitted bytes per second, and burst in bytes, in total."""


class RetransmitBuffer:
    """Buffer of consecutive DELIVERs of at most ``limit`` bytes, from which the oldest are dropped first.

    :param last: last number assigned before the first one in the buffer.
    :ivar limit: size limit in bytes; may be replaced at any time.
    """

    def __init__(self, limit: int, last: int = 0) -> None:
        self.limit = limit
        self.end = last + 1
        """Number after the last one in the buffer."""
        self._chunks: list[tuple[bytes, int]] = []
        self._firsts: list[int] = []
        self._byte_offsets: list[int] = []
        self._run_first = self.end
        self._dropped_chunks = 0
        self._written_bytes = 0
        self._indexed_up_to = 0
        self._by_envelope: dict[bytes, int] = {}

    @property
    def first(self) -> int:
        """Oldest number in the buffer; :attr:`end` if it is empty."""
        return self._firsts[self._dropped_chunks] if self._dropped_chunks < len(self._firsts) else self.end

    @property
    def size(self) -> int:
        """Bytes in use."""
        return (
            self._written_bytes - self._byte_offsets[self._dropped_chunks]
            if self._dropped_chunks < len(self._byte_offsets)
            else 0
        )

    def append(self, first: int, datagrams: bytes, size: int) -> None:
        """Add DELIVERs of ``size`` bytes each, starting with number ``first``."""
        if first != self.end:
            self.clear()
            self._run_first = first
        self.end = first + len(datagrams) // size
        self._chunks.append((datagrams, size))
        self._firsts.append(first)
        self._byte_offsets.append(self._written_bytes)
        self._written_bytes += len(datagrams) + CHUNK_OVERHEAD
        self._drop_oldest()

    def begin(self, first: int) -> None:
        """Drop all messages, and begin with number ``first``."""
        self.clear()
        self.end = self._run_first = first

    def skip(self, last: int) -> None:
        """Leave the numbers up to ``last`` without a message."""
        if last < self.end:
            return
        self._chunks.append((b"", 1))
        self._firsts.append(self.end)
        self._byte_offsets.append(self._written_bytes)
        self._written_bytes += CHUNK_OVERHEAD
        self.end = last + 1
        self._drop_oldest()

    def replace(self, sequence: int, datagram: bytes) -> None:
        """Replace the DELIVER of a number that is in the buffer."""
        position = self._position(sequence)
        data, size = self._chunks[position]
        first, offset = self._firsts[position], self._byte_offsets[position]
        start = (sequence - first) * size
        if start >= len(data):
            return  # The number was skipped.
        parts = [
            (first, offset, data[:start], size),
            (sequence, offset + start, datagram, len(datagram)),
            (sequence + 1, offset + start + size, data[start + size :], size),
        ]
        parts = [part for part in parts if part[2]]
        self._chunks[position : position + 1] = [(content, each) for _, _, content, each in parts]
        self._firsts[position : position + 1] = [number for number, _, _, _ in parts]
        self._byte_offsets[position : position + 1] = [at for _, at, _, _ in parts]

    def clear(self) -> None:
        """Drop all messages."""
        self._chunks.clear()
        self._firsts.clear()
        self._byte_offsets.clear()
        self._dropped_chunks = 0

    def age(self, sequence: int) -> float:
        """Return the age of ``sequence`` as a share of the limit: 0 for the latest, 1 for the next to be dropped."""
        return (self._written_bytes - self._byte_offsets[self._position(sequence)]) / self.limit

    def share_after(self, sequence: int) -> float:
        """Return the bytes added after ``sequence`` as a share of the limit; more than 1 if some are dropped."""
        following = max(sequence + 1, self._run_first)
        if following >= self.end:
            return 0.0
        return self.age(following) if following >= self.first else 2.0

    def find(self, data: bytes) -> int | None:
        """Return the lowest number of a message with the envelope and payload of ``data``, or ``None``.

        The first call indexes the latest :data:`COUNTER_WINDOW` messages; later calls index new ones. Streams without
        retransmitted PUSHes need no index.
        """
        self._index()
        sequence = self._by_envelope.get(data[:ENVELOPE_SIZE])
        if sequence is None or sequence < self.first:
            return None
        (sent,), _, _ = self.read(sequence, sequence, 0)
        found = bytes(sent.data if isinstance(sent, Burst) else sent)
        return sequence if found[DATA_HEADER.size :] == data else None

    def _drop_oldest(self) -> None:
        while self.size > self.limit:
            self._chunks[self._dropped_chunks] = b"", 1
            self._dropped_chunks += 1
        if self._dropped_chunks > 1_024 and 2 * self._dropped_chunks > len(self._chunks):
            del (
                self._chunks[: self._dropped_chunks],
                self._firsts[: self._dropped_chunks],
                self._byte_offsets[: self._dropped_chunks],
            )
            self._dropped_chunks = 0

    def _index(self) -> None:
        first = max(self._indexed_up_to, self.first, self.end - COUNTER_WINDOW)
        index = self._by_envelope
        if len(index) > 2 * COUNTER_WINDOW:
            oldest = self.end - COUNTER_WINDOW
            index = self._by_envelope = {envelope: at for envelope, at in index.items() if at >= oldest}
        while first < self.end:
            position = self._position(first)
            data, size = self._chunks[position]
            start = (first - self._firsts[position]) * size + DATA_HEADER.size
            if size < DATA_HEADER.size + ENVELOPE_SIZE:
                first = self._end_of(position)
                continue
            for at in range(start, len(data), size):
                if data.startswith(MAGIC, at):
                    index.setdefault(data[at : at + ENVELOPE_SIZE], first)
                first += 1
        self._indexed_up_to = first

    def read(self, first: int, last: int, byte_limit: float) -> tuple[list[Datagram | Burst], int, int]:
        """Return the datagrams of ``first`` to ``last`` that fit ``byte_limit`` bytes, at least one.

        All numbers must be in the buffer. Those that were skipped have none.

        :return: the datagrams, the number after the last of them, and their size in bytes.
        """
        taken: list[Datagram | Burst] = []
        position, spent = self._position(first), 0
        while first <= last and (not taken or spent < byte_limit):
            data, size = self._chunks[position]
            row = first - self._firsts[position]
            if not data:
                first, position = min(self._end_of(position), last + 1), position + 1
                continue
            rows = min(len(data) // size - row, last + 1 - first, max(1, int((byte_limit - spent) // size)))
            part = memoryview(data)[row * size : (row + rows) * size]
            taken.append(Burst(part, size) if rows > 1 else part)
            spent += len(part)
            first += rows
            if row + rows < len(data) // size:
                break
            position += 1
        return taken, first, spent

    def read_ranges(self, ranges: Sequence[tuple[int, int]], byte_limit: float) -> tuple[list[Datagram | Burst], int]:
        """Return the datagrams of ``ranges``, which must be in the buffer, and their size in bytes.

        :return: an incomplete result, whose size is over ``byte_limit`` bytes, if they exceed that limit.
        """
        taken: list[Datagram | Burst] = []
        spent = 0
        for first, last in ranges:
            datagrams, _, size = self.read(first, last, byte_limit - spent + 1)
            taken += datagrams
            spent += size
            if spent > byte_limit:
                break
        return taken, spent

    def _end_of(self, position: int) -> int:
        """Return the number after the last one of a chunk."""
        return self._firsts[position + 1] if position + 1 < len(self._firsts) else self.end

    def _position(self, sequence: int) -> int:
        return bisect_right(self._firsts, sequence, self._dropped_chunks) - 1


class RetransmitScheduler:
    """Queue of retransmissions by client, paced, with the lowest numbers first.

    :ivar retransmitted: number of messages retransmitted since the start.
    """

    def __init__(self, limit: int, clients: int, last: int, now: float) -> None:
        self.buffer = RetransmitBuffer(limit, last)
        self.retransmitted = 0
        self._pending: OrderedDict[Address, RangeSet] = OrderedDict()
        self._retransmitted_by_client: dict[Address, int] = {}
        self._budgets: KeyedTokenBuckets[Address] = KeyedTokenBuckets(BYTE_RATE, BYTE_BURST, clients)
        self._total_budget = TokenBucket(TOTAL_RATE, TOTAL_BURST, now)

    @property
    def pending_ranges(self) -> int:
        """Number of queued ranges."""
        return sum(map(len, self._pending.values()))

    def set_limits(self, limit: int, clients: int) -> None:
        """Apply new limits."""
        self.buffer.limit, self._budgets.limit = limit, clients

    def enqueue(self, requester: Address, first: int, last: int) -> bool:
        """Queue ``first`` to ``last``, at most 1,024 numbers. Return whether the queue had room for them.

        All numbers must be in the buffer.
        """
        if self.pending_ranges >= MAX_RANGES:
            return False
        waiting = self._pending.setdefault(requester, RangeSet())
        if len(waiting) >= MAX_RANGES_EACH:
            return False
        waiting.add(first, min(last, first + ANSWER_LIMIT - 1))
        return True

    def repair_counts(self, requester: Address) -> tuple[int, int]:
        """Return the number of messages retransmitted to a client, and the number queued for it."""
        waiting = self._pending.get(requester)
        return self._retransmitted_by_client.get(requester, 0), 0 if waiting is None else waiting.count

    def take_due(self, now: float) -> list[tuple[Address, list[Datagram | Burst]]]:
        """Remove and return the datagrams that may be sent now, by client."""
        return [(requester, sent) for requester in list(self._pending) if (sent := self.take_due_for(requester, now))]

    def take_due_for(self, requester: Address, now: float) -> list[Datagram | Burst]:
        """Remove and return the datagrams that may be sent to one client now."""
        waiting, budget = self._pending.get(requester), self._budgets.bucket(requester, now)
        sent: list[Datagram | Burst] = []
        while waiting and (room := min(budget.available(now), self._total_budget.available(now))) > 0:
            start, end = next(iter(waiting))
            first = max(start, self.buffer.first)
            if first > end:
                waiting.discard(start, end)  # The messages left the buffer in the meantime. The client asks again.
                continue
            datagrams, after, spent = self.buffer.read(first, end, room)
            waiting.discard(start, after - 1)
            budget.spend(spent)
            self._total_budget.spend(spent)
            self.retransmitted += after - first
            self._retransmitted_by_client[requester] = self._retransmitted_by_client.get(requester, 0) + after - first
            sent += datagrams
        if waiting is not None and not waiting:
            del self._pending[requester]
        return sent

    def take_at_once(
        self, requester: Address, ranges: Sequence[tuple[int, int]], now: float
    ) -> list[Datagram | Burst] | None:
        """Return the datagrams of ``ranges`` for one client, without the queue.

        :param ranges: numbers in the buffer.
        :return: ``None`` if they do not rise, the client has queued retransmissions, or a limit is exceeded.
        """
        budget = self._budgets.bucket(requester, now)
        room = min(budget.available(now), self._total_budget.available(now))
        if (
            requester in self._pending
            or self.pending_ranges + len(ranges) > MAX_RANGES
            or len(ranges) > MAX_RANGES_EACH
        ):
            return None
        if any(last - first >= ANSWER_LIMIT for first, last in ranges):
            return None
        if any(following <= last for (_, last), (following, _) in pairwise(ranges)):
            return None
        datagrams, spent = self.buffer.read_ranges(ranges, room)
        if spent > room:
            return None
        budget.spend(spent)
        self._total_budget.spend(spent)
        count = sum(last - first + 1 for first, last in ranges)
        self.retransmitted += count
        self._retransmitted_by_client[requester] = self._retransmitted_by_client.get(requester, 0) + count
        return datagrams

    def next_deadline(self, now: float) -> float | None:
        """Return the time at which :meth:`take_due` may continue, ``None`` if nothing is queued."""
        if not self._pending:
            return None
        # Wait for some credit, so that a long answer leaves in bursts and not message by message.
        own = min(self._budgets.bucket(requester, now).ready_at(BYTE_BURST / 8) for requester in self._pending)
        return max(own, self._total_budget.ready_at(BYTE_BURST / 8))

    def forget(self, requester: Address) -> None:
        """Discard the state of an expired client."""
        self._pending.pop(requester, None)
        self._retransmitted_by_client.pop(requester, None)
        self._budgets.forget(requester)
