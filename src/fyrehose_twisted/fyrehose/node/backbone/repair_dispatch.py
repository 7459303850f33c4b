"""A backbone's part in repairs: it sends its latest messages again itself, and finds clients that hold older ones."""

from __future__ import annotations

from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import BackboneCounters
from fyrehose_twisted.fyrehose.node.backbone.backpressure import Backpressure
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.request_routing import RepairRouter
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import RetransmitScheduler
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS, Asked, Flags, Forward, Status
from fyrehose_twisted.interfaces import IForwardPolicy

SURVEY_THRESHOLD = 65_536
"""Numbers from which on a REQUEST looks for the oldest message rather than for all of them."""

URGENT_AGE = 0.5
"""Share of the retransmit buffer that a message has aged through when its repair becomes urgent."""

REFUSAL_TEXTS = {
    "request_unanswerable": "no other client keeps messages",
    "retransmit_queue": "too many ranges wait to be sent again already",
}
"""What the reasons mean for which :meth:`RepairDispatcher.request` refuses."""

Replies = dict[Address, list[Datagram | Burst]]


class RepairDispatcher:
    """Answers REQUESTs, each once it is known to be a living client's.

    :param last: the last number given so far.
    :ivar backpressure: slows publishers down while repairs are behind.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        clients: ClientTable,
        counters: BackboneCounters,
        last: int,
        now: float,
    ) -> None:
        self.backpressure = Backpressure(config.min_rate, now)
        self._client_table = clients
        self._counters = counters
        self._router = RepairRouter(policy, clients)
        self._retransmit_scheduler = RetransmitScheduler(config.retransmit, config.max_clients, last, now)
        self._replies: Replies = {}

    @property
    def retransmitted(self) -> int:
        """Messages sent again since the start."""
        return self._retransmit_scheduler.retransmitted

    @property
    def buffered_bytes(self) -> int:
        """Bytes of messages in memory."""
        return self._retransmit_scheduler.buffer.size

    def repair_counts(self, address: Address) -> tuple[int, int]:
        """Return how many messages were sent again to a client from memory, and how many wait to be."""
        return self._retransmit_scheduler.repair_counts(address)

    def reconfigure(self, config: BackboneConfig) -> None:
        """Go by other limits from now on."""
        self._retransmit_scheduler.set_limits(config.retransmit, config.max_clients)
        self.backpressure.min_rate = config.min_rate

    def published(self, first: int, datagrams: bytes, size: int, now: float) -> None:
        """Keep DELIVERs of ``size`` bytes each, of which the first has number ``first``."""
        self._retransmit_scheduler.buffer.append(first, datagrams, size)
        self.backpressure.published(len(datagrams), now)

    def publish_allowance(self, now: float) -> float:
        """Return the bytes that may be numbered now, so that nothing is lost that cannot be repaired.

        No more is numbered ahead of the durable journal that has most than half of the memory, if there is one.
        """
        buffer, durable = self._retransmit_scheduler.buffer, self._client_table.durable_journals
        if not (durable and buffer.limit):
            return self.backpressure.allowance(now)
        has_most = max(max(client.joined_sequence, client.holds.reached if client.holds else 0) for client in durable)
        return self.backpressure.allowance(now, (URGENT_AGE - buffer.share_after(has_most)) * buffer.limit)

    def request(self, requester: Address, first: int, last: int, now: float) -> str | None:
        """Have ``first`` to ``last`` sent to a client; return why not, if nothing can be done.

        :param last: no higher than the last number given.
        """
        if first > last:
            self._counters.beyond += 1
            return None
        buffer = self._retransmit_scheduler.buffer
        if first < buffer.first and self._route(requester, first, min(last, buffer.first - 1), now):
            self._counters.routed += 1
        elif last < buffer.first:
            return "request_unanswerable"
        else:
            self._counters.answered += 1
        if last >= buffer.first and not (last - first >= SURVEY_THRESHOLD and self._client_table.durable_journals):
            return self._retransmit(requester, max(first, buffer.first), last, now)
        return None

    def redeliver(self, data: bytes, peer: Address) -> bool:
        """Send the DELIVER of a message that ``peer`` has pushed before to it alone; say whether it is known."""
        buffer = self._retransmit_scheduler.buffer
        sequence = buffer.find(data)
        if sequence is None:
            return False
        self._reply(peer, *buffer.read(sequence, sequence, 0)[0])
        return True

    def make_status(self, token: bytes, last: int, *, watches: bool) -> Status:
        """Return what to tell a client of the stream, whose last number is ``last``.

        :param watches: tell of each journal too; others are told in a packet that is hardly larger than their own.
        """
        holds = [client.holds for client in self._client_table.durable_journals if client.holds is not None]
        oldest = [one.oldest for one in holds if one.oldest <= one.holding.durable]
        holdings = tuple(one.holding for one in holds[:MAX_HOLDINGS]) if watches else ()
        return Status(token, min(oldest, default=0), last, holdings)

    def notify_watchers(self, last: int) -> None:
        """Send a STATUS to all clients that watch the journals."""
        for client in self._client_table.watchers:
            if client.token:
                self._reply(client.address, encode(self.make_status(client.token, last, watches=True)))

    def tick(self, now: float) -> None:
        """Send what had to wait."""
        for requester, datagrams in self._retransmit_scheduler.take_due(now):
            self._reply(requester, *datagrams)

    def next_deadline(self, now: float) -> float | None:
        """Return when :meth:`tick` has something to do."""
        return self._retransmit_scheduler.next_deadline(now)

    def take_replies(self) -> Replies:
        """Return what is to be sent now, by address."""
        replies, self._replies = self._replies, {}
        return replies

    def forget(self, address: Address) -> None:
        """Remember nothing of a client that is gone."""
        self._router.forget(address)
        self._retransmit_scheduler.forget(address)

    def _route(self, requester: Address, first: int, last: int, now: float) -> bool:
        route = self._router.route(requester, first, last, now)
        journals, left = route.journals, route.remaining
        if last - first >= SURVEY_THRESHOLD:
            journals += [journal for journal in self._router.journals_to_survey(requester) if journal not in journals]
        forward = encode(Forward(requester, first, last))
        for journal in journals:
            self._reply(journal, forward)
        self._counters.forwards += len(journals)
        client = self._client_table.get(requester)
        if client is not None and client.token and client.flags & Flags.EXTENSIONS and route.is_repeated:
            self._reply(requester, encode(Asked(client.token, first, last, left)))
        return bool(journals)

    def _retransmit(self, requester: Address, first: int, last: int, now: float) -> str | None:
        retransmissions, client = self._retransmit_scheduler, self._client_table.get(requester)
        urgent = (
            retransmissions.buffer.age(first) > URGENT_AGE and client is not None and client.joined_sequence < first
        )
        if urgent and not any(
            one.holds is not None and one.holds.covers(first) for one in self._client_table.durable_journals
        ):
            self.backpressure.fell_behind(now)
        if not retransmissions.enqueue(requester, first, last):
            return "retransmit_queue"
        self._reply(requester, *retransmissions.take_due_for(requester, now))
        return None

    def _reply(self, peer: Address, *datagrams: Datagram | Burst) -> None:
        if datagrams:
            self._replies.setdefault(peer, []).extend(datagrams)
