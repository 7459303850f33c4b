"""Repairs by a relay: from its history, from a journal among its clients, and from its parent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import BackboneCounters
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable, can_be_asked
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import SURVEY_THRESHOLD, RepairDispatcher
from fyrehose_twisted.fyrehose.node.relay.history import RelayHistory
from fyrehose_twisted.fyrehose.node.relay.parent import NoParent, Parent
from fyrehose_twisted.fyrehose.node.relay.passed_requests import PassedRequests
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.codec import encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import Asked, Flags, Forward
from fyrehose_twisted.ranges import RangeSet

MAX_UNCONFIRMED = 256
"""Maximum number of messages of other clients sent at once for one REQUEST."""

_KNOWS_FETCHED = int(Flags.IPV4 | Flags.IPV6)
_EXTENSIONS = int(Flags.EXTENSIONS)


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


class RelayRepairs:
    """Handler of the REQUESTs of a relay's clients.

    :param dispatcher: sends messages of the history again, and gathers replies.
    :param own_address: returns the address at which a given client reaches this relay.
    :param answer_repairs: fetch what a journal among the clients holds, and have no client send to another one.
    :ivar requests: what was asked for, and who waits for the answers.
    :ivar counters: what a backbone does not do.
    :ivar parent: the other side of the relay.
    """

    def __init__(
        self,
        history: RelayHistory,
        dispatcher: RepairDispatcher,
        client_table: ClientTable,
        counters: BackboneCounters,
        own_address: Callable[[Address], Address],
        *,
        answer_repairs: bool,
    ) -> None:
        self.requests = PassedRequests()
        self.counters = RelayCounters()
        self.parent: Parent = NoParent()
        self._history = history
        self._dispatcher = dispatcher
        self._client_table = client_table
        self._counters = counters
        self._own_address = own_address
        self._answer_repairs = answer_repairs

    def repair(self, address: Address, first: int, last: int, now: float) -> str | None:
        """Send ``first`` to ``last`` to a client, or ask those who may hold them.

        :return: the reason if that is impossible.
        """
        buffer, parent = self._dispatcher.buffer, self.parent
        refusal, position, answered = None, first, False
        is_survey = last - first >= SURVEY_THRESHOLD
        status = parent.status
        leaves_it_to_journals = is_survey and status is not None and status.oldest > 0
        for start, end in () if leaves_it_to_journals else list(self._history.held(first, last)):
            if position < start:
                refusal = self._pass_request(address, position, start - 1, now) or refusal
            refusal = self._answer(address, start, end, now) or refusal
            position, answered = end + 1, True
        older = min(last, buffer.end - 1) if self._history.has_begun else last
        if position <= older:
            refusal = self._pass_request(address, position, older, now) or refusal
        newer = RangeSet([(max(position, older + 1), last)]) if older < last else RangeSet()
        if newer:
            refusal = self._repair_newer(address, newer, now) or refusal
        if answered:
            self._counters.answered += 1
        return refusal

    def _answer(self, address: Address, first: int, last: int, now: float) -> str | None:
        """Send messages of the history to a client."""
        refusal = None
        self.requests.served(address, first, last)
        for start, end in list(self._history.confirmed(first, last)):
            refusal = self._dispatcher.answer_from_memory(address, start, end, now) or refusal
        for sequence in self._history.unconfirmed(first, last, MAX_UNCONFIRMED):
            data = self._history.get(sequence)
            if data is not None:
                self.send_to(sequence, data, (address,), live=False)
        return refusal

    def _repair_newer(self, address: Address, numbers: RangeSet, now: float) -> str | None:
        """Repair numbers that follow on the history, which ends where the relay itself misses a message."""
        first, last, refusal = numbers.first, numbers.last, None
        for sequence, data in self._history.read_ahead(first, last):
            self.send_to(sequence, data, (address,), live=not self._history.is_unconfirmed(sequence))
            numbers.discard(sequence)
        for start, end in self.parent.missing(first, last):
            self.counters.requests_awaited += 1
            self.requests.wait(address, start, end, now)
            self.tell_asked(address, start, end, 1)
            numbers.discard(start, end)
        for start, end in list(numbers):
            refusal = self._pass_request(address, start, end, now) or refusal
        return refusal

    def _pass_request(self, address: Address, first: int, last: int, now: float) -> str | None:
        """Ask for older messages: a journal among the clients first, and the parent if that brings nothing."""
        is_repeated = bool(self.requests.waiting_for(first, first))
        due = self.requests.add(address, first, last, now)
        if due is None:
            return "retransmit_queue"
        self._counters.routed += 1
        for start, end in due:
            if not self._ask_journal(address, start, end) or is_repeated:
                self.parent.request(start, end, now)
                self.counters.requests_passed += 1
        self.counters.requests_joined += not due
        return None

    def _ask_journal(self, address: Address, first: int, last: int) -> bool:
        """Ask a durable journal that reports to hold the first number. Return whether there is one."""
        clients = self._client_table
        for journal in clients.durable_journals:
            holds_it = journal.holds is not None and journal.holds.covers(first)
            if journal.address == address or not holds_it or not can_be_asked(journal.address, journal.flags):
                continue
            if clients.gets_macs(address) and not clients.gets_macs(journal.address):
                continue
            is_direct = not self._answer_repairs and clients.repairs_directly(journal.address, address)
            to = address if is_direct else self._own_address(journal.address)
            if can_be_packed(to):
                with_macs = clients.gets_macs(address if is_direct else journal.address)
                self._dispatcher.reply(journal.address, encode(Forward(to, first, last, with_macs)))
                self._counters.forwards += 1
                return True
        return False

    def tell_asked(self, address: Address, first: int, last: int, left: int) -> None:
        """Tell a client that understands it that ``first`` to ``last`` are still searched for."""
        client = self._client_table.get(address)
        if client is not None and client.token and client.flags & _EXTENSIONS:
            self._dispatcher.reply(address, encode(Asked(client.token, first, last, left)))

    def send_to(self, sequence: int, data: bytes, receivers: Sequence[Address], *, live: bool) -> None:
        """Send a message to those who wait for it. Where it did not come from the parent, tell those who understand."""
        for receiver in receivers:
            client = self._client_table.get(receiver)
            fetched = not live and client is not None and bool(client.flags & _KNOWS_FETCHED)
            self._dispatcher.reply(receiver, encode_deliver(sequence, data, fetched=fetched))
        self.counters.repairs_passed += len(receivers)
