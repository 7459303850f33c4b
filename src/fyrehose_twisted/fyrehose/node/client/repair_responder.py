"""Answers to FORWARDs from the message store: bounded and paced, with the lowest numbers first."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from fyrehose_twisted.effects import Address, Burst, Datagram, Send
from fyrehose_twisted.fyrehose.node.client.publishing.linger import LingerState
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.fyrehose.wire.codec import encode_deliver
from fyrehose_twisted.interfaces import IMessageStore
from fyrehose_twisted.token_bucket import KeyedTokenBuckets

ANSWER_LIMIT = 1_024
"""Maximum number of messages sent for one FORWARD."""

QUEUE_LIMIT, QUEUE_BYTES = 4_096, 8 * 2**20
"""Queue limits per requester in messages and bytes, because a FORWARD of 19 bytes must not cause a flood."""

REQUESTERS = 256
"""Maximum number of requesters with queued messages."""

BYTE_RATE = 16.0 * 2**20
BYTE_BURST = 256.0 * 2**10


class RepairResponder:
    """Answers of this client to FORWARDs.

    :param drops: counts FORWARDs that cannot be answered.
    :param linger: is told of answers, for which the client stays.
    :param add_macs: returns DELIVERs with MACs, for requesters that accept no others.
    :ivar sent: number of messages sent as repairs since the start.
    """

    def __init__(
        self,
        store: IMessageStore,
        drops: DropLog,
        linger: LingerState,
        *,
        add_macs: Callable[[Iterable[Datagram | Burst]], list[Datagram | Burst]] = list,
        rate: float = BYTE_RATE,
        burst: float = BYTE_BURST,
    ) -> None:
        self.sent = 0
        self._store = store
        self._drops = drops
        self._linger = linger
        self._add_macs = add_macs
        self._wanting_macs: set[Address] = set()
        self._budgets: KeyedTokenBuckets[Address] = KeyedTokenBuckets(rate, burst, 4 * REQUESTERS)
        self._queues: OrderedDict[Address, deque[tuple[int, int]]] = OrderedDict()
        self._queued_bytes: dict[Address, int] = {}
        self._gathered: dict[Sequence[Address], list[Datagram | Burst]] = {}

    def answer(
        self, requester: Address, ranges: Sequence[tuple[int, int]], now: float, *, with_macs: bool = False
    ) -> None:
        """Answer FORWARDs of one requester as far as its budget allows, and queue the rest.

        :param with_macs: whether the requester wants MACs.
        """
        for first, last in ranges:
            refusal = self.enqueue(requester, first, last)
            if requester in self._queues and with_macs:
                self._wanting_macs.add(requester)
            else:
                self._wanting_macs.discard(requester)
            if refusal is not None:
                self._drops.counts[refusal] += 1
            if refusal != "forward_not_held":
                self._linger.answered(now)
            # Before the next one is queued, because that may exceed the limits.
            for send in self._take_due_for(requester, now):
                self._gathered.setdefault(send.peers, []).extend(send.datagrams)

    def take_gathered(self) -> list[Send]:
        """Remove and return the answers. A client that misses one message mostly misses more: they leave together."""
        if not self._gathered:
            return []
        gathered, self._gathered = self._gathered, {}
        return [Send(datagrams, peers) for peers, datagrams in gathered.items()]

    def enqueue(self, requester: Address, first: int, last: int) -> str | None:
        """Queue an answer to a FORWARD. Return the drop reason if that is impossible."""
        numbers = self._store.lowest(first, last, ANSWER_LIMIT)
        if not numbers:
            return "forward_not_held"
        queue = self._queues.get(requester)
        if queue is None:
            if len(self._queues) >= REQUESTERS:
                return "forward_requesters"
            queue = self._queues[requester] = deque()
            self._queued_bytes[requester] = 0
        for sequence in numbers:
            size = len(self._store.get(sequence) or b"")
            if len(queue) >= QUEUE_LIMIT or self._queued_bytes[requester] + size > QUEUE_BYTES:
                return "forward_queue"
            queue.append((sequence, size))
            self._queued_bytes[requester] += size
        return None

    def take_due(self, now: float) -> list[Send]:
        """Remove and return the repairs that may be sent now."""
        if not self._queues:
            return []
        sends = [send for requester in list(self._queues) for send in self._take_due_for(requester, now)]
        if sends:
            self._linger.answered(now)
        return sends

    def next_deadline(self, now: float) -> float | None:
        """Return the time at which :meth:`take_due` may continue, ``None`` if nothing is queued."""
        if not self._queues:
            return None
        # Wait for some credit, so that a long answer leaves in bursts and not message by message.
        return min(self._budgets.bucket(requester, now).ready_at(BYTE_BURST / 8) for requester in self._queues)

    def _take_due_for(self, requester: Address, now: float) -> list[Send]:
        queue = self._queues.get(requester)
        if queue is None:
            return []
        budget, datagrams = self._budgets.bucket(requester, now), list[Datagram | Burst]()
        while queue and budget.available(now) > 0:
            sequence, size = queue.popleft()
            self._queued_bytes[requester] -= size
            data = self._store.get(sequence)
            if data is not None:
                datagram = encode_deliver(sequence, data)
                datagrams.append(datagram)
                budget.spend(len(datagram))
        if requester in self._wanting_macs:
            datagrams = self._add_macs(datagrams)
        if not queue:
            del self._queues[requester], self._queued_bytes[requester]
            self._wanting_macs.discard(requester)
        self.sent += len(datagrams)
        return [Send(datagrams, (requester,))] if datagrams else []
