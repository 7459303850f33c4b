"""A backbone's part in repairs: it sends its latest messages again itself, and finds clients that hold older ones."""

from __future__ import annotations

from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import BackboneCounters
from fyrehose_twisted.fyrehose.node.backbone.backpressure import Backpressure
from fyrehose_twisted.fyrehose.node.backbone.client_table import Clients
from fyrehose_twisted.fyrehose.node.backbone.request_routing import Routing
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import Retransmissions
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS, Asked, Flags, Forward, Status
from fyrehose_twisted.interfaces import IForwardPolicy

SURVEY = 65_536
"""Numbers from which on a REQUEST looks for the oldest message rather than for all of them."""

BEHIND = 0.5
"""Share of the retransmit buffer that a message has aged through when its repair becomes urgent."""

REFUSALS = {
    "request_unanswerable": "no other client keeps messages",
    "retransmit_queue": "too many ranges wait to be sent again already",
}
"""What the reasons mean for which :meth:`Resending.request` refuses."""

Replies = dict[Address, list[Datagram | Burst]]


class Resending:
    """Answers REQUESTs, each once it is known to be a living client's.

    :param last: the last number given so far.
    :ivar backpressure: slows publishers down while repairs are behind.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        clients: Clients,
        counters: BackboneCounters,
        last: int,
        now: float,
    ) -> None:
        self.backpressure = Backpressure(config.min_rate, now)
        self._clients = clients
        self._counters = counters
        self._routing = Routing(policy, clients)
        self._retransmissions = Retransmissions(config.retransmit, config.max_clients, last, now)
        self._replies: Replies = {}

    @property
    def sent(self) -> int:
        """Messages sent again since the start."""
        return self._retransmissions.sent

    @property
    def size(self) -> int:
        """Bytes of messages in memory."""
        return self._retransmissions.buffer.size

    def repairs(self, address: Address) -> tuple[int, int]:
        """Return how many messages were sent again to a client from memory, and how many wait to be."""
        return self._retransmissions.repairs(address)

    def reconfigure(self, config: BackboneConfig) -> None:
        """Go by other limits from now on."""
        self._retransmissions.resize(config.retransmit, config.max_clients)
        self.backpressure.minimum = config.min_rate

    def published(self, first: int, datagrams: bytes, size: int, now: float) -> None:
        """Keep DELIVERs of ``size`` bytes each, of which the first has number ``first``."""
        self._retransmissions.buffer.put(first, datagrams, size)
        self.backpressure.published(len(datagrams), now)

    def room(self, now: float) -> float:
        """Return the bytes that may be numbered now, so that nothing is lost that cannot be repaired.

        No more is numbered ahead of the durable journal that has most than half of the memory, if there is one.
        """
        buffer, durable = self._retransmissions.buffer, self._clients.durable
        if not (durable and buffer.limit):
            return self.backpressure.room(now)
        has_most = max(max(client.joined, client.holds.reached if client.holds else 0) for client in durable)
        return self.backpressure.room(now, (BEHIND - buffer.ahead_of(has_most)) * buffer.limit)

    def request(self, requester: Address, first: int, last: int, now: float) -> str | None:
        """Have ``first`` to ``last`` sent to a client; return why not, if nothing can be done.

        :param last: no higher than the last number given.
        """
        if first > last:
            self._counters.beyond += 1
            return None
        buffer = self._retransmissions.buffer
        if first < buffer.first and self._route(requester, first, min(last, buffer.first - 1), now):
            self._counters.routed += 1
        elif last < buffer.first:
            return "request_unanswerable"
        else:
            self._counters.answered += 1
        if last >= buffer.first and not (last - first >= SURVEY and self._clients.durable):
            return self._retransmit(requester, max(first, buffer.first), last, now)
        return None

    def send_again(self, data: bytes, peer: Address) -> bool:
        """Send the DELIVER of a message that ``peer`` has pushed before to it alone; say whether it is known."""
        buffer = self._retransmissions.buffer
        sequence = buffer.find(data)
        if sequence is None:
            return False
        self._reply(peer, *buffer.take(sequence, sequence, 0)[0])
        return True

    def status(self, token: bytes, last: int, *, watches: bool) -> Status:
        """Return what to tell a client of the stream, whose last number is ``last``.

        :param watches: tell of each journal too; others are told in a packet that is hardly larger than their own.
        """
        holds = [client.holds for client in self._clients.durable if client.holds is not None]
        oldest = [one.oldest for one in holds if one.oldest <= one.holding.durable]
        holdings = tuple(one.holding for one in holds[:MAX_HOLDINGS]) if watches else ()
        return Status(token, min(oldest, default=0), last, holdings)

    def tell_watchers(self, last: int) -> None:
        """Send a STATUS to all clients that watch the journals."""
        for client in self._clients.watchers:
            if client.token:
                self._reply(client.address, encode(self.status(client.token, last, watches=True)))

    def tick(self, now: float) -> None:
        """Send what had to wait."""
        for requester, datagrams in self._retransmissions.due(now):
            self._reply(requester, *datagrams)

    def next_deadline(self, now: float) -> float | None:
        """Return when :meth:`tick` has something to do."""
        return self._retransmissions.next_deadline(now)

    def take(self) -> Replies:
        """Return what is to be sent now, by address."""
        replies, self._replies = self._replies, {}
        return replies

    def forget(self, address: Address) -> None:
        """Remember nothing of a client that is gone."""
        self._routing.forget(address)
        self._retransmissions.forget(address)

    def _route(self, requester: Address, first: int, last: int, now: float) -> bool:
        route = self._routing.route(requester, first, last, now)
        journals, left = route.journals, route.left
        if last - first >= SURVEY:
            journals += [journal for journal in self._routing.survey(requester) if journal not in journals]
        forward = encode(Forward(requester, first, last))
        for journal in journals:
            self._reply(journal, forward)
        self._counters.forwards += len(journals)
        client = self._clients.get(requester)
        if client is not None and client.token and client.flags & Flags.EXTENSIONS and route.repeated:
            self._reply(requester, encode(Asked(client.token, first, last, left)))
        return bool(journals)

    def _retransmit(self, requester: Address, first: int, last: int, now: float) -> str | None:
        retransmissions, client = self._retransmissions, self._clients.get(requester)
        urgent = retransmissions.buffer.age(first) > BEHIND and client is not None and client.joined < first
        if urgent and not any(one.holds is not None and one.holds.covers(first) for one in self._clients.durable):
            self.backpressure.fell_behind(now)
        if not retransmissions.request(requester, first, last):
            return "retransmit_queue"
        self._reply(requester, *retransmissions.due_to(requester, now))
        return None

    def _reply(self, peer: Address, *datagrams: Datagram | Burst) -> None:
        if datagrams:
            self._replies.setdefault(peer, []).extend(datagrams)
