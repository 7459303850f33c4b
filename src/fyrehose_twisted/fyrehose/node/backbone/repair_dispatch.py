"""Handling of REQUESTs by the backbone: retransmission of recent messages and routing of requests for older ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import BackboneCounters, ServedClient
from fyrehose_twisted.fyrehose.node.backbone.backpressure import Backpressure
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.repair_fetching import RepairFetcher
from fyrehose_twisted.fyrehose.node.backbone.request_routing import RepairRouter
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import RetransmitBuffer, RetransmitScheduler
from fyrehose_twisted.fyrehose.node.multicast.gathering import RepairGatherer
from fyrehose_twisted.fyrehose.wire.codec import encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_HOLDINGS,
    Asked,
    Deliver,
    Flags,
    Forward,
    Holding,
    Status,
)
from fyrehose_twisted.interfaces import IForwardPolicy

SURVEY_THRESHOLD = 65_536
"""Size of the range above which a REQUEST looks for the oldest message, and not for all messages."""

URGENT_AGE = 0.5
"""Age of a message, as a share of the retransmit buffer, above which its repair is urgent."""

REFUSAL_TEXTS = {
    "request_unanswerable": "no other client stores messages",
    "retransmit_queue": "too many ranges are queued for retransmission",
}
"""Descriptions of the reasons for which :meth:`RepairDispatcher.request` refuses."""

Replies = dict[Address, list[Datagram | Burst]]

HoldingReport = Callable[[Holding], tuple[Holding, ...]]


def _as_it_is(holding: Holding) -> tuple[Holding, ...]:
    return (holding,)


class RepairDispatcher:
    """Handler of the REQUESTs of admitted clients.

    :param last: last assigned number.
    :param own_address: returns the address at which a given client reaches this backbone.
    :ivar fetcher: fetches messages that only clients hold which cannot send to the requester.
    :ivar backpressure: rate limit of publishers while repairs are behind.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        clients: ClientTable,
        counters: BackboneCounters,
        last: int,
        now: float,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
    ) -> None:
        self.backpressure = Backpressure(config.min_rate, now)
        self._client_table = clients
        self._counters = counters
        self._router = RepairRouter(policy, clients)
        self.fetcher = RepairFetcher(own_address, now)
        self._retransmit_scheduler = RetransmitScheduler(config.retransmit, config.max_clients, last, now)
        self._gatherer = RepairGatherer(now)
        self._replies: Replies = {}

    @property
    def retransmitted(self) -> int:
        """Number of messages retransmitted since the start."""
        return self._retransmit_scheduler.retransmitted

    @property
    def buffer(self) -> RetransmitBuffer:
        """Messages that can be sent again."""
        return self._retransmit_scheduler.buffer

    @property
    def buffered_bytes(self) -> int:
        """Size of the retransmit buffer in bytes."""
        return self._retransmit_scheduler.buffer.size

    def repair_counts(self, address: Address) -> tuple[int, int]:
        """Return the number of messages retransmitted to a client, and the number queued for it."""
        return self._retransmit_scheduler.repair_counts(address)

    def reconfigure(self, config: BackboneConfig) -> None:
        """Apply new limits."""
        self._retransmit_scheduler.set_limits(config.retransmit, config.max_clients)
        self.backpressure.min_rate = config.min_rate

    def published(self, first: int, datagrams: bytes, size: int, now: float) -> None:
        """Store DELIVERs of ``size`` bytes each, starting with number ``first``."""
        self._retransmit_scheduler.buffer.append(first, datagrams, size)
        self.backpressure.published(len(datagrams), now)

    def publish_allowance(self, now: float) -> float:
        """Return the number of bytes that may be numbered now without a loss that cannot be repaired.

        If there are durable journals, numbering stays within half of the retransmit buffer of the most advanced one.
        """
        buffer, durable = self._retransmit_scheduler.buffer, self._client_table.durable_journals
        if not (durable and buffer.limit):
            return self.backpressure.allowance(now)
        reached = max(max(client.joined_sequence, client.holds.reached if client.holds else 0) for client in durable)
        return self.backpressure.allowance(now, (URGENT_AGE - buffer.share_after(reached)) * buffer.limit)

    def request(self, requester: Address, first: int, last: int, now: float) -> str | None:
        """Send or request ``first`` to ``last`` for a client. Return the reason if that is impossible.

        :param last: at most the last assigned number.
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

    def request_run(self, requester: Address, ranges: Sequence[tuple[int, int]], now: float) -> bool:
        """Send all of ``ranges`` to a client, as :meth:`request` does one by one, if the limits allow that at once.

        :param ranges: at least one, up to the last assigned number.
        :return: whether they were sent. If not, nothing has changed.
        """
        retransmissions, first = self._retransmit_scheduler, ranges[0][0]
        buffer = retransmissions.buffer
        if not buffer.first <= first <= ranges[-1][1] < buffer.end or buffer.age(first) > URGENT_AGE:
            return False
        if self._client_table.audience.hears(requester):
            return False  # One by one, because others may miss the same.
        datagrams = retransmissions.take_at_once(requester, ranges, now)
        if datagrams is None:
            return False
        self._counters.answered += len(ranges)
        self.reply(requester, *datagrams)
        return True

    def answer_from_memory(self, requester: Address, first: int, last: int, now: float) -> str | None:
        """Send what is left of ``first`` to ``last``. Return the reason if that is impossible."""
        first = max(first, self._retransmit_scheduler.buffer.first)
        return self._retransmit(requester, first, last, now) if first <= last else "forward_not_held"

    def has_numbered(self, data: bytes) -> bool:
        """Return whether :meth:`redeliver` finds the message."""
        return self._retransmit_scheduler.buffer.find(data) is not None

    def redeliver(self, data: bytes, peer: Address) -> bool:
        """Send the DELIVER of an already numbered message to its publisher. Return whether the message was found."""
        buffer = self._retransmit_scheduler.buffer
        sequence = buffer.find(data)
        if sequence is None:
            return False
        self.reply(peer, *buffer.read(sequence, sequence, 0)[0])
        return True

    def make_status(self, token: bytes, last: int, *, watches: bool, reported: HoldingReport = _as_it_is) -> Status:
        """Return the STATUS of the stream for a client.

        :param last: last assigned number.
        :param watches: include the progress of each journal. Otherwise the reply is hardly larger than the KEEPALIVE.
        :param reported: returns what to report of the progress of one journal.
        """
        reports = [client.holds for client in self._client_table.durable_journals if client.holds is not None]
        oldest = [holds.oldest for holds in reports if holds.oldest <= holds.holding.durable]
        holdings = [part for holds in reports for part in reported(holds.holding)][:MAX_HOLDINGS] if watches else ()
        return Status(token, min(oldest, default=0), last, tuple(holdings))

    def notify_watchers(self, make_status: Callable[[bytes], Status]) -> None:
        """Send a STATUS to all clients that watch journals. ``make_status`` returns it for a token."""
        for client in self._client_table.watchers:
            if client.token:
                self.reply(client.address, encode(make_status(client.token)))

    def tick(self, now: float) -> None:
        """Send the retransmissions that are due."""
        for requester, datagrams in self._retransmit_scheduler.take_due(now):
            self.reply(requester, *datagrams)

    def next_deadline(self, now: float) -> float | None:
        """Return the time at which :meth:`tick` is due."""
        return self._retransmit_scheduler.next_deadline(now)

    @property
    def has_replies(self) -> bool:
        """Whether there are datagrams to send now."""
        return bool(self._replies)

    def take_replies(self) -> Replies:
        """Remove and return the datagrams to send now, by address."""
        replies, self._replies = self._replies, {}
        return replies

    def forget(self, address: Address) -> None:
        """Discard the state of an expired client."""
        self._router.forget(address)
        self._retransmit_scheduler.forget(address)
        self.fetcher.forget(address)

    def fetched(self, deliver: Deliver, peer: Address, now: float) -> bool:
        """Pass a message on that was fetched from a client. Return whether this backbone has asked ``peer`` for it."""
        client = self._client_table.get_by_source(peer)
        requesters = self.fetcher.received(
            peer if client is None else client.address, deliver, now, self._client_table.gets_macs
        )
        if requesters is None:
            return False
        for requester in requesters:
            client = self._client_table.get(requester)
            if client is not None:
                knows = bool(client.flags & (Flags.IPV4 | Flags.IPV6))
                self.reply(requester, encode_deliver(deliver.sequence, deliver.data, fetched=knows))
                self._counters.fetched += 1
        return True

    def _route(self, requester: Address, first: int, last: int, now: float) -> bool:
        route = self._router.route(requester, first, last, now)
        journals, left = route.journals, route.remaining
        if last - first >= SURVEY_THRESHOLD:
            journals += [journal for journal in self._router.journals_to_survey(requester) if journal not in journals]
        asked = 0
        for journal in journals:
            if self._client_table.repairs_directly(journal, requester):
                forward: Forward | None = Forward(requester, first, last, self._client_table.gets_macs(requester))
            else:
                forward = self.fetcher.fetch(
                    journal, requester, first, last, now, with_macs=self._client_table.gets_macs(journal)
                )
            if forward is not None:
                asked += 1
                self.reply(journal, encode(forward))
        self._counters.forwards += asked
        client = self._client_table.get(requester)
        if client is not None and client.token and client.flags & Flags.EXTENSIONS and route.is_repeated:
            self.reply(requester, encode(Asked(client.token, first, last, left)))
        return asked > 0

    def _retransmit(self, requester: Address, first: int, last: int, now: float) -> str | None:
        retransmissions, client = self._retransmit_scheduler, self._client_table.get(requester)
        urgent = (
            retransmissions.buffer.age(first) > URGENT_AGE and client is not None and client.joined_sequence < first
        )
        if urgent and not any(
            journal.holds is not None and journal.holds.covers(first) for journal in self._client_table.durable_journals
        ):
            self.backpressure.fell_behind(now)
        if client is None or not self._client_table.audience.hears(requester):
            return self._send_again(requester, ((first, last),), now)
        # What was numbered before the client joined is not lost, so others do not miss it.
        return self._repair_listener(client, max(first, client.joined_sequence + 1), first, last, now)

    def _repair_listener(self, client: ServedClient, shared_from: int, first: int, last: int, now: float) -> str | None:
        """Send ``first`` to ``last`` to a client that hears the multicast group, or to all that do.

        :param shared_from: number from which on others may have lost the same messages.
        """
        alone = [(first, min(last, shared_from - 1))] if first < shared_from else []
        if shared_from > last:
            return self._send_again(client.address, alone, now)
        audience = self._client_table.audience
        gathered = self._gatherer.requested(shared_from, last, audience.listeners, now)
        self._counters.gathered += gathered.ignored
        refusal = self._send_again(client.address, alone + gathered.alone, now)
        if gathered.group and audience.group is not None:
            refusal = self._send_again(audience.group, gathered.group, now) or refusal
            self._counters.repaired_for_all += sum(end - start + 1 for start, end in gathered.group)
        return refusal

    def _send_again(self, peer: Address, ranges: Sequence[tuple[int, int]], now: float) -> str | None:
        """Send messages in the retransmit buffer again. Return the reason if that is impossible."""
        if not ranges:
            return None
        retransmissions = self._retransmit_scheduler
        queued = [retransmissions.enqueue(peer, first, last) for first, last in ranges]
        self.reply(peer, *retransmissions.take_due_for(peer, now))
        return None if all(queued) else "retransmit_queue"

    def reply(self, peer: Address, *datagrams: Datagram | Burst) -> None:
        """Send datagrams to one client, together with other replies."""
        if datagrams:
            self._replies.setdefault(peer, []).extend(datagrams)
