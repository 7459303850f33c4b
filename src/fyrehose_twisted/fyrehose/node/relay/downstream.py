"""Relay as a backbone: serves its own clients with the numbers that its parent has given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ServedClient
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.client_table import CLIENT_LIFETIME, can_be_asked
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import SURVEY_THRESHOLD, RepairDispatcher
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, Sequencer
from fyrehose_twisted.fyrehose.node.relay.history import RelayHistory
from fyrehose_twisted.fyrehose.node.relay.other_side import OtherSideReady
from fyrehose_twisted.fyrehose.node.relay.passed_requests import PassedRequests
from fyrehose_twisted.fyrehose.node.relay.relay_delivery import RelayDelivery
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_HOLDINGS,
    MAX_SEQUENCE,
    Asked,
    Deliver,
    Depth,
    Flags,
    Forward,
    Head,
    Keepalive,
    Leader,
    Packet,
    Status,
)
from fyrehose_twisted.fyrehose.wire.run_codec import encode_delivers
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy, Outputs
from fyrehose_twisted.ranges import RangeSet

LATE_AFTER = 1.5
"""Seconds after which a repair that the relay gets itself is late; up to twice as many. Clients take numbers of 5 s ago
for old."""

MAX_UNCONFIRMED = 256
"""Maximum number of messages of other clients sent at once for one REQUEST."""

_KNOWS_FETCHED = int(Flags.IPV4 | Flags.IPV6)
_EXTENSIONS, _WATCHES, _RELAY = int(Flags.EXTENSIONS), int(Flags.WATCHES), int(Flags.RELAY)


class Parent(Protocol):
    """Other side of a relay: the client of its parent."""

    def has_parent(self, now: float) -> bool:
        """Return whether a parent answers, and is near enough to the backbone."""

    @property
    def has_output(self) -> bool:
        """Whether it has effects or events to drain."""

    @property
    def term(self) -> int:
        """Term of the group of backbones; 0 for a single one."""

    @property
    def depth(self) -> int:
        """Number of relays between the backbone and this one, including this one."""

    @property
    def status(self) -> Status | None:
        """Latest STATUS of the parent, if it sends any."""

    def push(self, pushes: Burst, again: bool) -> bool:
        """Send PUSHes to the parent, retransmitted ones if ``again``. Return whether there is a parent."""

    def request(self, first: int, last: int, now: float) -> None:
        """Send a REQUEST to the parent."""

    def missing(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Return the ranges from ``first`` to ``last`` that the relay itself waits for and requests."""

    def watch(self, now: float, until: float) -> None:
        """Ask for the progress of durable journals."""


class _NoParent:
    """Parent of a relay that has not been connected yet."""

    has_output = False
    term = 0
    depth = 1
    status: Status | None = None

    def has_parent(self, now: float) -> bool:
        return False

    def push(self, pushes: Burst, again: bool) -> bool:
        return False

    def request(self, first: int, last: int, now: float) -> None:
        pass

    def missing(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        return ()

    def watch(self, now: float, until: float) -> None:
        pass


@dataclass(slots=True)
class RelayCounters:
    """Counters of a relay since its start, in addition to those of a backbone and of a client.

    :ivar returned: DELIVERs returned to publishers that would not have got them otherwise.
    :ivar requests_passed: REQUESTs passed to the parent on behalf of clients.
    :ivar requests_joined: REQUESTs for what had just been requested for another client.
    :ivar requests_awaited: REQUESTs for what the relay itself waited for.
    :ivar repairs_passed: DELIVERs sent to those who waited for them, and not to all.
    """

    returned: int = 0
    requests_passed: int = 0
    requests_joined: int = 0
    requests_awaited: int = 0
    repairs_passed: int = 0


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
    :ivar relay_counters: what a backbone does not do.
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
        self._parent: Parent = _NoParent()
        self._answer_repairs = answer_repairs
        self._requests = PassedRequests()
        self._has_begun = False
        self._has_new_deadline = False
        self._passed_before = self._checkpoint = 0
        self._checkpoint_at = now
        self.relay_counters = RelayCounters()
        # The backbone sets the pace. What leaves the history of a relay can still be had from its parent.
        config = replace(config, min_rate=None)
        super().__init__(config, policy, BackboneStart(), own_address=own_address, is_own=is_own, now=now)
        self.history = RelayHistory(self.repair_dispatcher.buffer)

    def connect(self, parent: Parent) -> None:
        """Set the other side of the relay."""
        self._parent = parent

    @property
    def has_output(self) -> bool:
        """Whether it has effects or events to drain."""
        if self._output.effects or self._output.events or self.repair_dispatcher.has_replies:
            return True
        return self._has_new_deadline

    @property
    def awaits_messages(self) -> bool:
        """Whether clients wait for messages that may not be new to the relay."""
        return bool(self._requests) or len(self._relay_delivery.returns) > 0

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
        self._has_begun = True
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
        takers, publisher = self._requests.take(sequence), self._publisher_of(data)
        subscribes = self._client_table.subscribes
        missed = [one for one in dict.fromkeys((*takers, *publisher)) if to_subscribers or not subscribes(one)]
        self._return_to(sequence, data, missed, live=live)
        self.relay_counters.returned += any(one in missed for one in publisher)

    def _note_head(self, last: int, now: float) -> None:
        """Record the highest number, and how far the stream was some seconds ago."""
        self.number_known(last)
        if now >= self._checkpoint_at + LATE_AFTER:
            self._passed_before, self._checkpoint = self._checkpoint, self.sequencer.last
            self._checkpoint_at = now

    def message_arrived_again(self, sequence: int, data: bytes, *, live: bool) -> bool:
        """Pass a message that is not new to the clients that asked for it. Return whether there are any."""
        takers, publisher = self._requests.take(sequence), self._publisher_of(data)
        self._return_to(sequence, data, list(dict.fromkeys((*takers, *publisher))), live=live)
        self.relay_counters.returned += len(publisher)
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
        for requester in self._requests.waiting_for(asked.first, asked.last):
            self._tell_asked(requester, asked.first, asked.last, asked.left)

    # From clients

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.receive`."""
        match packet:
            case Head():
                pass  # The answer to a LEADER, which this relay does not need.
            case Deliver(sequence, data) if self._client_table.get_by_source(peer) and (
                takers := self._requests.take(sequence)
            ):
                self._return_to(sequence, data, takers, live=False)
            case _:
                super().receive(packet, peer, now)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        self._has_new_deadline = False
        outputs = super().drain()
        if self._parent.has_output:
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
            push=lambda pushes, again: self._parent.push(pushes, again),
            drop=self._drop_pushes,
        )

    def _make_status(self, token: bytes, *, watches: bool) -> Status:
        own, parent = super()._make_status(token, watches=watches), self._parent.status
        if parent is None:
            return own
        oldest = min((number for number in (own.oldest, parent.oldest) if number), default=0)
        holdings = (*parent.holdings, *own.holdings)[:MAX_HOLDINGS] if watches else ()
        return replace(own, oldest=oldest, holdings=holdings)

    def _acknowledge(self, keepalive: Keepalive, address: Address, now: float) -> None:
        """Acknowledge only while a parent answers, so that clients with several parents take another one."""
        parent = self._parent
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
        buffer, parent = self.repair_dispatcher.buffer, self._parent
        if first > last:
            self.counters.beyond += 1
            return None
        refusal, position, answered = None, first, False
        is_survey = last - first >= SURVEY_THRESHOLD
        status = parent.status
        leaves_it_to_journals = is_survey and status is not None and status.oldest > 0
        for start, end in () if leaves_it_to_journals else list(self.history.held(first, last)):
            if position < start:
                refusal = self._pass_request(address, position, start - 1, now) or refusal
            refusal = self._answer(address, start, end, now) or refusal
            position, answered = end + 1, True
        older = min(last, buffer.end - 1) if self._has_begun else last
        if position <= older:
            refusal = self._pass_request(address, position, older, now) or refusal
        newer = RangeSet([(max(position, older + 1), last)]) if older < last else RangeSet()
        if newer:
            refusal = self._repair_newer(address, newer, now) or refusal
        if answered:
            self.counters.answered += 1
        return refusal

    def _repair_run(self, address: Address, ranges: Sequence[tuple[int, int]], now: float) -> bool:
        return self.history.is_plain(ranges[0][0], ranges[-1][1]) and super()._repair_run(address, ranges, now)

    def _answer(self, address: Address, first: int, last: int, now: float) -> str | None:
        """Send messages of the history to a client."""
        refusal = None
        self._requests.served(address, first, last)
        for start, end in list(self.history.confirmed(first, last)):
            refusal = self.repair_dispatcher.answer_from_memory(address, start, end, now) or refusal
        for sequence in self.history.unconfirmed(first, last, MAX_UNCONFIRMED):
            data = self.history.get(sequence)
            if data is not None:
                self._return_to(sequence, data, (address,), live=False)
        return refusal

    def _repair_newer(self, address: Address, numbers: RangeSet, now: float) -> str | None:
        """Repair numbers that follow on the history, which ends where the relay itself misses a message."""
        first, last, refusal = numbers.first, numbers.last, None
        for sequence, data in self.history.read_ahead(first, last):
            self._return_to(sequence, data, (address,), live=not self.history.is_unconfirmed(sequence))
            numbers.discard(sequence)
        for start, end in self._parent.missing(first, last):
            self.relay_counters.requests_awaited += 1
            self._requests.wait(address, start, end, now)
            self._tell_asked(address, start, end, 1)
            numbers.discard(start, end)
        for start, end in list(numbers):
            refusal = self._pass_request(address, start, end, now) or refusal
        return refusal

    def _pass_request(self, address: Address, first: int, last: int, now: float) -> str | None:
        """Ask for older messages: a journal among the clients first, and the parent if that brings nothing."""
        is_repeated = bool(self._requests.waiting_for(first, first))
        due = self._requests.add(address, first, last, now)
        if due is None:
            return "retransmit_queue"
        self.counters.routed += 1
        for start, end in due:
            if not self._ask_journal(address, start, end) or is_repeated:
                self._parent.request(start, end, now)
                self.relay_counters.requests_passed += 1
        self.relay_counters.requests_joined += not due
        return None

    def _ask_journal(self, address: Address, first: int, last: int) -> bool:
        """Ask a durable journal that reports to hold the first number. Return whether there is one."""
        clients = self._client_table
        for journal in clients.durable_journals:
            holds_it = journal.holds is not None and journal.holds.covers(first)
            if journal.address == address or not holds_it or not can_be_asked(journal.address, journal.flags):
                continue
            is_direct = not self._answer_repairs and clients.repairs_directly(journal.address, address)
            to = address if is_direct else self._own_address(journal.address)
            if can_be_packed(to):
                self.repair_dispatcher.reply(journal.address, encode(Forward(to, first, last)))
                self.counters.forwards += 1
                return True
        return False

    def _tell_asked(self, address: Address, first: int, last: int, left: int) -> None:
        client = self._client_table.get(address)
        if client is not None and client.token and client.flags & _EXTENSIONS:
            self.repair_dispatcher.reply(address, encode(Asked(client.token, first, last, left)))

    def _return_to(self, sequence: int, data: bytes, receivers: Sequence[Address], *, live: bool) -> None:
        """Send a message to those who wait for it. Where it did not come from the parent, tell those who understand."""
        for receiver in receivers:
            client = self._client_table.get(receiver)
            fetched = not live and client is not None and bool(client.flags & _KNOWS_FETCHED)
            self.repair_dispatcher.reply(receiver, encode_deliver(sequence, data, fetched=fetched))
        self.relay_counters.repairs_passed += len(receivers)

    def _publisher_of(self, data: bytes) -> tuple[Address, ...]:
        """Return the publisher that waits for this message, if there is one."""
        returns = self._relay_delivery.returns
        publisher = returns.take(data) if len(returns) else None
        return () if publisher is None else (publisher,)

    def _make_leader(self, token: bytes) -> Leader:
        # Asked for a HEAD, a client takes the relay's address from the packet, whatever a translator made of it.
        return Leader(token, self._parent.term, ANY_ADDRESS, asks_head=True)

    def _client_expired(self, client: ServedClient) -> None:
        self._requests.forget(client.address)

    def _drop_pushes(self, reason: str, peer: Address, detail: str, now: float, count: int) -> None:
        self._drop(reason, peer, detail, now)
        self.drops.counts[reason] += count - 1


classImplements(RelayDownstream, IDatagramNode)
