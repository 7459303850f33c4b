"""The messages that a backbone sent last, and the REQUESTs that it answers from them itself."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER
from fyrehose_twisted.fyrehose.wire.envelope import COUNTER_WINDOW, ENVELOPE_SIZE, MAGIC
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.token_bucket import KeyedTokenBuckets, TokenBucket

CHUNK_OVERHEAD = 128
"""Bytes that a chunk costs beside its datagrams, so that the limit means memory."""

MAX_RANGES, MAX_RANGES_EACH = 65_536, 8_192
"""Separate ranges that wait to be sent, to all clients together and to one."""

ANSWER_LIMIT = 1_024
"""Messages with which one REQUEST is answered at most."""

BYTE_RATE, BYTE_BURST = 16.0 * 2**20, 256.0 * 2**10
"""Bytes of answers a second, and at once, for one client."""

TOTAL_RATE, TOTAL_BURST = 64.0 * 2**20, 2.0 * 2**20
"""The same for all clients together."""


class RetransmitBuffer:
    """DELIVERs with consecutive numbers as they were sent, up to ``limit`` bytes of them; the oldest go first.

    :param last: the last number given before the first that is kept.
    :ivar limit: may be replaced at any time.
    """

    def __init__(self, limit: int, last: int = 0) -> None:
        self.limit = limit
        self.end = last + 1
        """The number after the last."""
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
        """The oldest number here; :attr:`end` if there is none."""
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
        """Keep DELIVERs of ``size`` bytes each, of which the first has number ``first``."""
        if first != self.end:
            self.clear()
            self._run_first = first
        self.end = first + len(datagrams) // size
        self._chunks.append((datagrams, size))
        self._firsts.append(first)
        self._byte_offsets.append(self._written_bytes)
        self._written_bytes += len(datagrams) + CHUNK_OVERHEAD
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

    def clear(self) -> None:
        """Keep nothing."""
        self._chunks.clear()
        self._firsts.clear()
        self._byte_offsets.clear()
        self._dropped_chunks = 0

    def age(self, sequence: int) -> float:
        """Return how close ``sequence`` is to being dropped: 0 for the latest, 1 for what goes next."""
        return (self._written_bytes - self._byte_offsets[self._position(sequence)]) / self.limit

    def share_after(self, sequence: int) -> float:
        """Return how much was put after ``sequence``, as a share of the limit; more than 1 if some of it is dropped."""
        following = max(sequence + 1, self._run_first)
        if following >= self.end:
            return 0.0
        return self.age(following) if following >= self.first else 2.0

    def find(self, data: bytes) -> int | None:
        """Return the number of the message with the envelope and the text of ``data``, the lowest if there are two.

        The latest :data:`COUNTER_WINDOW` messages are indexed when this is asked for the first time, and the others as
        they come. A stream on which nothing is sent again pays nothing.
        """
        self._index()
        sequence = self._by_envelope.get(data[:ENVELOPE_SIZE])
        if sequence is None or sequence < self.first:
            return None
        (sent,), _, _ = self.read(sequence, sequence, 0)
        found = bytes(sent.data if isinstance(sent, Burst) else sent)
        return sequence if found[DATA_HEADER.size :] == data else None

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
                first = self._firsts[position] + len(data) // size
                continue
            for at in range(start, len(data), size):
                if data.startswith(MAGIC, at):
                    index.setdefault(data[at : at + ENVELOPE_SIZE], first)
                first += 1
        self._indexed_up_to = first

    def read(self, first: int, last: int, byte_limit: float) -> tuple[list[Datagram | Burst], int, int]:
        """Return the datagrams of ``first`` to ``last``, all of them here, that fit ``byte_limit`` bytes: one at least.

        :return: the datagrams, the number after the last of them, and their bytes.
        """
        taken: list[Datagram | Burst] = []
        position, spent = self._position(first), 0
        while first <= last and (not taken or spent < byte_limit):
            data, size = self._chunks[position]
            row = first - self._firsts[position]
            rows = min(len(data) // size - row, last + 1 - first, max(1, int((byte_limit - spent) // size)))
            part = memoryview(data)[row * size : (row + rows) * size]
            taken.append(Burst(part, size) if rows > 1 else part)
            spent += len(part)
            first += rows
            if row + rows < len(data) // size:
                break
            position += 1
        return taken, first, spent

    def _position(self, sequence: int) -> int:
        return bisect_right(self._firsts, sequence, self._dropped_chunks) - 1


class RetransmitScheduler:
    """What a backbone still has to send again, to whom: paced, the lowest numbers first.

    :ivar retransmitted: messages sent again since the start.
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
        """How many ranges wait."""
        return sum(map(len, self._pending.values()))

    def set_limits(self, limit: int, clients: int) -> None:
        """Go by other limits from now on."""
        self.buffer.limit, self._budgets.limit = limit, clients

    def enqueue(self, requester: Address, first: int, last: int) -> bool:
        """Queue ``first`` to ``last``, all of them in the buffer, 1,024 at most; say whether there was room."""
        if self.pending_ranges >= MAX_RANGES:
            return False
        waiting = self._pending.setdefault(requester, RangeSet())
        if len(waiting) >= MAX_RANGES_EACH:
            return False
        waiting.add(first, min(last, first + ANSWER_LIMIT - 1))
        return True

    def repair_counts(self, requester: Address) -> tuple[int, int]:
        """Return how many messages were sent to a client, and how many wait to be."""
        waiting = self._pending.get(requester)
        return self._retransmitted_by_client.get(requester, 0), 0 if waiting is None else waiting.count

    def take_due(self, now: float) -> list[tuple[Address, list[Datagram | Burst]]]:
        """Return what may be sent now."""
        return [(requester, sent) for requester in list(self._pending) if (sent := self.take_due_for(requester, now))]

    def take_due_for(self, requester: Address, now: float) -> list[Datagram | Burst]:
        """Return what may be sent to one client now."""
        waiting, budget = self._pending.get(requester), self._budgets.bucket(requester, now)
        sent: list[Datagram | Burst] = []
        while waiting and (room := min(budget.available(now), self._total_budget.available(now))) > 0:
            start, end = next(iter(waiting))
            first = max(start, self.buffer.first)
            if first > end:
                waiting.discard(start, end)  # Dropped while it waited; the client asks again.
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

    def next_deadline(self, now: float) -> float | None:
        """Return when :meth:`take_due` may go on, ``None`` if nothing waits."""
        if not self._pending:
            return None
        # A little credit first, so that a long answer leaves in bursts and not message by message.
        own = min(self._budgets.bucket(requester, now).ready_at(BYTE_BURST / 8) for requester in self._pending)
        return max(own, self._total_budget.ready_at(BYTE_BURST / 8))

    def forget(self, requester: Address) -> None:
        """Send nothing more to a client that is gone."""
        self._pending.pop(requester, None)
        self._retransmitted_by_client.pop(requester, None)
        self._budgets.forget(requester)
