"""Relay as a backbone: serves its own clients with the numbers that its parent has given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ServedClient
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.client_table import CLIENT_LIFETIME
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import RepairDispatcher
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, Sequencer
from fyrehose_twisted.fyrehose.node.relay.history import RelayHistory
from fyrehose_twisted.fyrehose.node.relay.other_side import OtherSideReady
from fyrehose_twisted.fyrehose.node.relay.parent import Parent
from fyrehose_twisted.fyrehose.node.relay.relay_delivery import RelayDelivery
from fyrehose_twisted.fyrehose.node.relay.relay_repairs import RelayCounters, RelayRepairs
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_HOLDINGS,
    MAX_SEQUENCE,
    Asked,
    Deliver,
    Depth,
    Flags,
    Head,
    Keepalive,
    Leader,
    Packet,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import encode_delivers
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy, Outputs

LATE_AFTER = 1.5
"""Seconds after which a repair that the relay gets itself is late; up to twice as many. Clients take numbers of 5 s ago
for old."""

_EXTENSIONS, _WATCHES, _RELAY = int(Flags.EXTENSIONS), int(Flags.WATCHES), int(Flags.RELAY)


class _ParentNumbers(Sequencer):
    """Last number that a parent is known to have given. A relay gives none, so there is nothing to persist."""

    def __init__(self) -> None:
        super().__init__(0, MAX_SEQUENCE)

    @property
    def checkpoint(self) -> tuple[int, int]:
        return 0, 0


@mypyc_attr(allow_interpreted_subclasses=True)
class RelayDownstream(Backbone):
    """Node of a relay that its clients see as their backbone.

    :param parent: the other side of the relay.
    :ivar history: messages from which REQUESTs are answered.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        *,
        answer_repairs: bool = False,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
        is_own: Callable[[Address], bool] = lambda address: False,
        now: float = 0.0,
    ) -> None:
        self._has_new_deadline = False
        self._passed_before = self._checkpoint = 0
        self._checkpoint_at = now
        # The backbone sets the pace. What leaves the history of a relay can still be had from its parent.
        config = replace(config, min_rate=None)
        super().__init__(config, policy, BackboneStart(), own_address=own_address, is_own=is_own, now=now)
        self.history = RelayHistory(self.repair_dispatcher.buffer)
        self._repairs = RelayRepairs(
            self.history,
            self.repair_dispatcher,
            self._client_table,
            self.counters,
            own_address,
            answer_repairs=answer_repairs,
        )

    def connect(self, parent: Parent) -> None:
        """Set the other side of the relay."""
        self._repairs.parent = parent

    @property
    def has_output(self) -> bool:
        """Whether it has effects or events to drain."""
        if self._output.effects or self._output.events or self.repair_dispatcher.has_replies:
            return True
        return self._has_new_deadline

    @property
    def awaits_messages(self) -> bool:
        """Whether clients wait for messages that may not be new to the relay."""
        return bool(self._repairs.requests) or len(self._relay_delivery.returns) > 0

    @property
    def relay_counters(self) -> RelayCounters:
        """Counters of what a backbone does not do."""
        return self._repairs.counters

    @property
    def pushed(self) -> int:
        """Number of PUSHes passed to the parent since the start."""
        return self._relay_delivery.pushed

    def reconfigure(self, config: BackboneConfig) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.reconfigure`."""
        super().reconfigure(replace(config, min_rate=None))

    # From the parent

    def stream_began(self, first: int) -> None:
        """Begin the history with number ``first``."""
        self.history.begin(first)

    def messages_arrived(self, first: int, messages: Sequence[bytes], now: float, *, live: bool = True) -> None:
        """Deliver messages that the relay has received for the first time to all clients, in whatever order.

        Late repairs, and those that the parent has not sent itself, go to the clients that asked for them. Others do
        not miss them, and would take one for a numbering that began anew, the other for the word of their backbone.

        :param live: whether the parent sent them.
        """
        self._now = now
        if self.history.has_passed(first):
            # A correction of the parent, after clients were sent what it corrects. To them it would look as if the
            # numbers began anew.
            return
        last = first + len(messages) - 1
        is_for_all = live and last > self._passed_before
        if live:
            self._note_head(last, now)
        sequence = first
        for burst in encode_delivers(first, messages):
            count = len(burst.data) // burst.size
            self.history.add(sequence, burst, confirmed=live)
            if is_for_all:
                self._delivery.deliver(burst, count, len(burst.data) - count * DATA_HEADER.size)
            sequence += count
        if self.awaits_messages:
            for number, data in enumerate(messages, first):
                self._return_new(number, data, to_subscribers=not is_for_all, live=live)

    def _return_new(self, sequence: int, data: bytes, *, to_subscribers: bool, live: bool) -> None:
        """Send a new message to those who wait for it: ``to_subscribers`` too, unless these get it anyway."""
        takers, publisher = self._repairs.requests.take(sequence), self._publisher_of(data)
        subscribes = self._client_table.subscribes
        missed = [one for one in dict.fromkeys((*takers, *publisher)) if to_subscribers or not subscribes(one)]
        self._repairs.send_to(sequence, data, missed, live=live)
        self._repairs.counters.returned += any(one in missed for one in publisher)

    def _note_head(self, last: int, now: float) -> None:
        """Record the highest number, and how far the stream was some seconds ago."""
        self.number_known(last)
        if now >= self._checkpoint_at + LATE_AFTER:
            self._passed_before, self._checkpoint = self._checkpoint, self.sequencer.last
            self._checkpoint_at = now

    def message_arrived_again(self, sequence: int, data: bytes, *, live: bool) -> bool:
        """Pass a message that is not new to the clients that asked for it. Return whether there are any."""
        takers, publisher = self._repairs.requests.take(sequence), self._publisher_of(data)
        self._repairs.send_to(sequence, data, list(dict.fromkeys((*takers, *publisher))), live=live)
        self._repairs.counters.returned += len(publisher)
        return bool(takers or publisher)

    def numbers_lost(self, first: int, last: int) -> None:
        """Note that the relay has given numbers up. A client that asks for them makes the relay ask its parent."""
        self.history.skip(first, last)

    def number_known(self, last: int) -> None:
        """Note that number ``last`` was given."""
        self.sequencer.last = max(self.sequencer.last, last)

    def status_changed(self, now: float) -> None:
        """Tell clients that watch journals what the parent has reported."""
        self._now = now
        self._watchers_outdated = self._has_new_deadline = True

    def term_changed(self) -> None:
        """Tell clients of a new term before the messages of the term."""
        for client in self._client_table:
            if client.flags & _EXTENSIONS and client.token:
                self._send(encode(self._make_leader(client.token)), client.address)

    def search_progressed(self, asked: Asked) -> None:
        """Pass an ASKED to the clients that wait for these numbers."""
        for requester in self._repairs.requests.waiting_for(asked.first, asked.last):
            self._repairs.tell_asked(requester, asked.first, asked.last, asked.left)

    # From clients

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.receive`."""
        match packet:
            case Head():
                pass  # The answer to a LEADER, which this relay does not need.
            case Deliver(sequence, data, mac=mac) if self._client_table.get_by_source(peer) and (
                takers := self._repairs.requests.take(sequence)
            ):
                # What came without a MAC must not get one of this relay.
                takers = [one for one in takers if mac or not self._client_table.gets_macs(one)]
                self._repairs.send_to(sequence, data, takers, live=False)
            case _:
                super().receive(packet, peer, now)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        self._has_new_deadline = False
        outputs = super().drain()
        if self._repairs.parent.has_output:
            outputs.events.append(OtherSideReady())
        return Outputs(None, outputs.effects, outputs.events)

    @property
    def _relay_delivery(self) -> RelayDelivery:
        assert isinstance(self._delivery, RelayDelivery)
        return self._delivery

    @property
    def _last_announced(self) -> int:
        return self.sequencer.last

    def _number_from(self, sequencer: Sequencer, policy: IForwardPolicy, now: float) -> None:
        self.sequencer = _ParentNumbers()
        self.repair_dispatcher = RepairDispatcher(
            self.config, policy, self._client_table, self.counters, 0, now, self._own_address
        )
        self._delivery = RelayDelivery(
            self.sequencer,
            self.repair_dispatcher,
            self._client_table,
            self.counters,
            self._output,
            push=lambda pushes, again: self._repairs.parent.push(pushes, again),
            drop=self._drop_pushes,
        )

    def _make_status(self, token: bytes, *, watches: bool) -> Status:
        own, parent = super()._make_status(token, watches=watches), self._repairs.parent.status
        if parent is None:
            return own
        oldest = min((number for number in (own.oldest, parent.oldest) if number), default=0)
        holdings = (*parent.holdings, *own.holdings)[:MAX_HOLDINGS] if watches else ()
        return replace(own, oldest=oldest, holdings=holdings)

    def _acknowledge(self, keepalive: Keepalive, address: Address, now: float) -> None:
        """Acknowledge only while a parent answers, so that clients with several parents take another one."""
        parent = self._repairs.parent
        if keepalive.flags & _EXTENSIONS:
            if parent.term:
                self._send(encode(self._make_leader(keepalive.token)), address)
            if keepalive.flags & _WATCHES:
                parent.watch(now, now + CLIENT_LIFETIME)
        if not parent.has_parent(now):
            return
        if keepalive.flags & _RELAY:
            self._send(encode(Depth(keepalive.token, parent.depth)), address)
        super()._acknowledge(keepalive, address, now)

    def _repair(self, address: Address, first: int, last: int, now: float) -> str | None:
        if first > last:
            self.counters.beyond += 1
            return None
        return self._repairs.repair(address, first, last, now)

    def _repair_run(self, address: Address, ranges: Sequence[tuple[int, int]], now: float) -> bool:
        return self.history.is_plain(ranges[0][0], ranges[-1][1]) and super()._repair_run(address, ranges, now)

    def _publisher_of(self, data: bytes) -> tuple[Address, ...]:
        """Return the publisher that waits for this message, if there is one."""
        returns = self._relay_delivery.returns
        publisher = returns.take(data) if len(returns) else None
        return () if publisher is None else (publisher,)

    def _make_leader(self, token: bytes) -> Leader:
        # Asked for a HEAD, a client takes the relay's address from the packet, whatever a translator made of it.
        return Leader(token, self._repairs.parent.term, ANY_ADDRESS, asks_head=True)

    def _client_expired(self, client: ServedClient) -> None:
        self._repairs.requests.forget(client.address)

    def _drop_pushes(self, reason: str, peer: Address, detail: str, now: float, count: int) -> None:
        self._drop(reason, peer, detail, now)
        self.drops.counts[reason] += count - 1


classImplements(RelayDownstream, IDatagramNode)
