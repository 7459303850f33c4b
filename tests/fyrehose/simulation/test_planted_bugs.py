"""Planted bugs that the simulator must find, at least one per invariant."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, persist_after_sending, search

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.fyrehose.events import Messages
from fyrehose_twisted.fyrehose.node.backbone import client_table, request_routing, sequencer
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.delivery import Delivery
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import RepairDispatcher
from fyrehose_twisted.fyrehose.node.backbone.request_routing import RepairRouter, RequestRoute
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, Sequencer
from fyrehose_twisted.fyrehose.node.client import repair_responder, start_position, stream_head
from fyrehose_twisted.fyrehose.node.client.deduplication import Deduplicator
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.message_arrival import MessageArrival
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.node.client.publishing.session import PublishingSession
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import ArrivalOutcome, MessageRun, ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.repair import RepairScheduler
from fyrehose_twisted.fyrehose.node.client.repair_responder import RepairResponder
from fyrehose_twisted.fyrehose.node.client.stream_head import StreamHead
from fyrehose_twisted.fyrehose.node.client.subscription import Subscription
from fyrehose_twisted.fyrehose.simulation.invariants.access import (
    AccessControlled,
    JournalMatchesDelivery,
    LowestNumberReported,
    NoNumbersWasted,
    StartsAtOldestConfirmed,
)
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    AcknowledgedArePublished,
    ExactlyOnce,
    InOrder,
    LiveClientsServed,
    OneMessagePerNumber,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded
from fyrehose_twisted.fyrehose.simulation.invariants.repair import (
    HeldMessagesFound,
    LossOnlyAfterRetries,
    RequestsForwarded,
)
from fyrehose_twisted.fyrehose.simulation.scenarios import Amnesia, Bystanders, Garbage, Limits, Restarts, Storm
from fyrehose_twisted.fyrehose.simulation.workload import ALL_PROFILES
from fyrehose_twisted.fyrehose.wire import codec
from fyrehose_twisted.fyrehose.wire.packets import Deliver
from fyrehose_twisted.repeats import RepeatDetector
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS

pytestmark = pytest.mark.interpreted


class Heavy(Storm):
    """A storm in which every other message is large."""

    large_share = 0.5


class Brief:
    """Limits a scenario to a tenth of its length, for violations detected at the end."""

    duration = 60.0
    messages = 300
    fault_counts = (3, 6)
    profiles = tuple(role for role in ALL_PROFILES if not role.start_delay)


class BriefStorm(Brief, Storm):
    """A short storm."""


class BriefGarbage(Brief, Garbage):
    """A short run with damaged datagrams."""


class Lossy(BriefStorm):
    """A short storm over lossy links."""

    def make_link(self, rng: Random) -> Link:
        return Link(loss=0.1)


def repeats_the_last_number_after_a_restart(patch: Patch) -> None:
    original = Sequencer.__init__
    patch.setattr(Sequencer, "__init__", lambda self, last, bound: original(self, max(0, last - 1), bound))


def persists_after_sending(patch: Patch) -> None:
    persist_after_sending(patch, Backbone)


def alters_repairs(patch: Patch) -> None:
    patch.setattr(repair_responder, "encode_deliver", lambda sequence, data: codec.encode_deliver(sequence, data[:-1]))


def drops_a_message_silently(patch: Patch) -> None:
    original, calls = Deduplicator.deliverable, count(1)

    def deliverable(self: Any, run: Any) -> Messages:
        if next(calls) % 500 == 0:
            run = MessageRun(run.first + 1, run.messages[1:], run.times[1:])
        return original(self, run)

    patch.setattr(Deduplicator, "deliverable", deliverable)


def delivers_a_message_twice(patch: Patch) -> None:
    original = ReorderBuffer.add

    def add(self: Any, sequence: int, data: bytes, received_at: int) -> ArrivalOutcome:
        arrival = original(self, sequence, data, received_at)
        if arrival is ArrivalOutcome.DUPLICATE and sequence == self.next - 1:
            self.next -= 1
            self.missing.add(sequence)
            return original(self, sequence, data, received_at)
        return arrival

    patch.setattr(ReorderBuffer, "add", add)


def forgets_seen_counters(patch: Patch) -> None:
    patch.setattr(RepeatDetector, "add", lambda self, run: [])


def acknowledges_the_oldest_message(patch: Patch) -> None:
    original = SendQueue.acknowledge

    def returned(self: Any, tickets: range, now: float) -> list[int]:
        oldest = next(iter(self._pending), tickets[0])
        return original(self, range(oldest, oldest + len(tickets)), now)

    patch.setattr(SendQueue, "acknowledge", returned)


def gives_up_before_the_last_attempt(patch: Patch) -> None:
    original = RepairScheduler._request_range

    def ask(self: Any, start: int, end: int, attempt: int, *others: Any) -> int:
        return original(self, start, end, attempt + 6, *others)

    patch.setattr(RepairScheduler, "_request_range", ask)


def drops_requests(patch: Patch) -> None:
    original, calls = Backbone.request_received, count(1)

    def request_received(self: Any, request: Any, peer: Any, now: float) -> None:
        if next(calls) % 3:
            original(self, request, peer, now)
        else:
            self.counters.requests += 1

    patch.setattr(Backbone, "request_received", request_received)


def invents_messages(patch: Patch) -> None:
    original, calls = Delivery.deliver, count(1)

    def deliver(self: Any, *what: Any) -> None:
        if next(calls) % 10 == 0:
            sequence = self._sequencer.take(1, 0.0)
            original(self, codec.encode_deliver(sequence, b"phantom"), 1, 7)
        original(self, *what)

    patch.setattr(Delivery, "deliver", deliver)


def skips_one_subscriber(patch: Patch) -> None:
    original, calls = Delivery.deliver, count(1)

    def deliver(self: Any, *what: Any) -> None:
        group, everybody = self._client_table._subscriber_group, self._client_table.subscribers
        group._cached_addresses = everybody[1:] if next(calls) % 3 == 0 else everybody
        original(self, *what)
        group._cached_addresses = everybody

    patch.setattr(Delivery, "deliver", deliver)


def forgets_a_message(patch: Patch) -> None:
    original = SendQueue.take_expired

    def expired(self: Any, now: float) -> list[int]:
        for ticket in [ticket for ticket in self._pending if ticket % 40 == 39]:
            self._remove(ticket)
        return original(self, now)

    patch.setattr(SendQueue, "take_expired", expired)


def forwards_no_requests(patch: Patch) -> None:
    patch.setattr(RepairRouter, "route", lambda self, *others: RequestRoute([], 0))


def forwards_requests_at_random(patch: Patch) -> None:
    rng = Random(1)

    def route(self: Any, requester: Any, *others: Any) -> RequestRoute:
        keepers = [client.address for client in self._client_table.durable_journals]
        journals = [address for address in (*keepers, *self._client_table.memory_journals) if address != requester]
        return RequestRoute([rng.choice(journals)] if journals else [], 0)

    patch.setattr(RepairRouter, "route", route)
    patch.setattr(RepairRouter, "journals_to_survey", lambda self, requester: [])


def never_reports_remaining_clients(patch: Patch) -> None:
    patch.setattr(RepairScheduler, "search_progressed", lambda self, first, last, left: None)
    patch.setattr(request_routing, "FAN_OUT_RATE", 0.01)
    patch.setattr(request_routing, "FAN_OUT_BURST", 0.01)


def answers_no_forwards(patch: Patch) -> None:
    patch.setattr(RepairResponder, "enqueue", lambda self, requester, first, last: None)


def ignores_repairs(patch: Patch) -> None:
    patch.setattr(Subscription, "accepts", lambda self, sequence, data, now, live: live)


def ignores_the_memory_limit(patch: Patch) -> None:
    original = MemoryStore.put

    def put(self: Any, sequence: int, data: bytes, received_at: int = 0) -> None:
        limit, self.limit = self.limit, 2**60
        original(self, sequence, data, received_at)
        self.limit = limit

    patch.setattr(MemoryStore, "put", put)


def buffers_without_limit(patch: Patch) -> None:
    patch.setattr(ReorderBuffer, "_make_room", lambda self, sequence, cost: True)
    original = ReorderBuffer.__init__
    patch.setattr(ReorderBuffer, "__init__", lambda self, start, **others: original(self, start))


def expires_clients_early(patch: Patch) -> None:
    patch.setattr(client_table, "CLIENT_LIFETIME", 1.5)


def serves_expired_clients(patch: Patch) -> None:
    patch.setattr(ClientTable, "expire", lambda self, now: [])
    patch.setattr(ClientTable, "next_expiry", lambda self: None)


def forgets_clients_at_restart(patch: Patch) -> None:
    patch.setattr(ClientTable, "restore", lambda self, known, now: [])


def settles_despite_restored_clients(patch: Patch) -> None:
    original = Backbone.__init__

    def init(self: Any, config: Any, policy: Any, start: BackboneStart, **options: Any) -> None:
        original(self, config, policy, replace(start, settle_until=options["now"] + 1.25), **options)

    patch.setattr(Backbone, "__init__", init)


def never_probes_the_tail(patch: Patch) -> None:
    original = Subscription._repair

    def repair(self: Any, stream: Any, now: float) -> None:
        self._tail_probe.due_at = now + 1_000.0
        original(self, stream, now)

    patch.setattr(Subscription, "_repair", repair)
    patch.setattr(
        Subscription, "status_reported", lambda self, oldest, last: None
    )  # Disabled, since the backbone reports the tail too.


def stops_at_one_contradiction(patch: Patch) -> None:
    patch.setattr(stream_head, "CONTRADICTIONS", 1)


def attributes_repairs_to_the_backbone(patch: Patch) -> None:
    patch.setattr(StreamHead, "confirm", lambda self, sequence: False)


def numbers_retransmissions_again(patch: Patch) -> None:
    patch.setattr(RepairDispatcher, "redeliver", lambda self, data, peer: False)
    patch.setattr(PublishingSession, "_await_lowest_number", lambda self, ticket, ahead: False)


def reports_the_first_number_received(patch: Patch) -> None:
    patch.setattr(PublishingSession, "_await_lowest_number", lambda self, ticket, ahead: False)


def trusts_the_length(patch: Patch) -> None:
    def decode_deliver(datagram: Any, mac_size: int) -> Deliver:
        _, _, high, low = codec.DATA_HEADER.unpack_from(datagram)
        return Deliver(high << 32 | low, bytes(datagram[codec.DATA_HEADER.size :]))

    patch.setattr(codec, "_decode_deliver", decode_deliver)


def wastes_numbers(patch: Patch) -> None:
    wastes_numbers_at_batch_boundaries(patch)
    patch.setattr(NoNumbersWasted, "sent", lambda self, packet: None)  # Disables its other check.


def wastes_numbers_at_batch_boundaries(patch: Patch) -> None:
    original, calls = Sequencer.take, count(1)

    def take(self: Any, numbers: int, now: float) -> int:
        first = original(self, numbers, now)
        self.last += next(calls) % 50 == 0
        return first

    patch.setattr(Sequencer, "take", take)


def wastes_numbers_unreported(patch: Patch) -> None:
    wastes_numbers_at_batch_boundaries(patch)
    patch.setattr(NoNumbersWasted, "sample", lambda self: None)


def reserves_too_many_numbers(patch: Patch) -> None:
    patch.setattr(sequencer, "MINIMUM_RESERVE", 10_000)


def forgets_repairs(patch: Patch) -> None:
    for name in ("add", "add_run"):
        original = getattr(MessageArrival, name)

        def add(self: Any, *args: Any, live: bool, original: Any = original) -> Any:
            journal = self._journal
            self._journal = live and journal
            try:
                return original(self, *args, live=live)
            finally:
                self._journal = journal

        patch.setattr(MessageArrival, name, add)


def starts_at_the_newest_message(patch: Patch) -> None:
    patch.setattr(start_position, "sorted", lambda numbers: sorted(numbers, reverse=True), raising=False)


def restarts_numbering(patch: Patch) -> None:
    original = Backbone.__init__

    def init(self: Any, config: Any, policy: Any, start: BackboneStart, **options: Any) -> None:
        original(self, config, policy, replace(start, query_clients=False), **options)

    patch.setattr(Backbone, "__init__", init)


def accepts_every_token(patch: Patch) -> None:
    patch.setattr(client_table, "token_is_valid", lambda secret, keepalive, now: True)


def numbers_pushes_not_admitted(patch: Patch) -> None:
    patch.setattr(ClientTable, "may_push", lambda self, peer: True)


def forwards_requests_not_admitted(patch: Patch) -> None:
    patch.setattr(ClientTable, "may_request", lambda self, address, peer: True)


def exceeds_the_client_limit(patch: Patch) -> None:
    original = ClientTable.refusal_reason

    def refusal(self: Any, *others: Any) -> str | None:
        reason = original(self, *others)
        return None if reason == "table_full" else reason

    patch.setattr(ClientTable, "refusal_reason", refusal)


def evicts_clients_when_full(patch: Patch) -> None:
    original = ClientTable.refusal_reason

    def refusal(self: Any, *others: Any) -> str | None:
        return original(self, *others) or ("table_full" if len(self) >= self.config.max_clients else None)

    patch.setattr(ClientTable, "refusal_reason", refusal)


BUGS = [
    Bug(
        repeats_the_last_number_after_a_restart, (OneMessagePerNumber.name,), Restarts, seed=0, message="was sent with"
    ),
    Bug(persists_after_sending, (OneMessagePerNumber.name,), Storm, seed=0, message="was sent, but only"),
    Bug(alters_repairs, (OneMessagePerNumber.name,), Storm, seed=1, message="was sent as a repair"),
    Bug(invents_messages, (OneMessagePerNumber.name,), Storm, seed=0, message="which no client pushed"),
    Bug(
        skips_one_subscriber, (LiveClientsServed.name,), Storm, seed=0, message="was not sent to a connected subscriber"
    ),
    Bug(forgets_a_message, (AcknowledgedArePublished.name,), BriefStorm, seed=0, message="was never reported"),
    Bug(drops_a_message_silently, (InOrder.name,), Storm, seed=1, message="neither delivered nor reported as lost"),
    Bug(delivers_a_message_twice, (InOrder.name,), Storm, seed=0, message="delivered or reported as lost after"),
    Bug(forgets_seen_counters, (ExactlyOnce.name,), Storm, seed=0, message="delivered again"),
    Bug(
        acknowledges_the_oldest_message,
        (AcknowledgedArePublished.name,),
        Storm,
        seed=0,
        message="which is another message",
    ),
    Bug(gives_up_before_the_last_attempt, (LossOnlyAfterRetries.name,), Storm, seed=0, message="of 14 attempts"),
    Bug(drops_requests, (RequestsForwarded.name,), Storm, seed=0, message="handled and"),
    Bug(forwards_no_requests, (RequestsForwarded.name,), Storm, seed=1, message="could not be forwarded"),
    Bug(forwards_requests_at_random, (HeldMessagesFound.name,), Bystanders, seed=0, message="stores it"),
    Bug(never_reports_remaining_clients, (HeldMessagesFound.name,), Bystanders, seed=1, message="stores it"),
    Bug(answers_no_forwards, (LossOnlyAfterRetries.name,), Storm, seed=1, message="s after a FORWARD to"),
    Bug(ignores_repairs, (LossOnlyAfterRetries.name,), Storm, seed=3, message="s after a FORWARD to"),
    Bug(ignores_the_memory_limit, (MemoryBounded.name,), Storm, seed=0, message="bytes of history"),
    Bug(buffers_without_limit, (MemoryBounded.name,), Heavy, seed=0, message="bytes in the reorder buffer"),
    Bug(expires_clients_early, (LiveClientsServed.name,), Storm, seed=0, message="not served, although"),
    Bug(serves_expired_clients, (LiveClientsServed.name,), Storm, seed=1, message="long after its last KEEPALIVE"),
    Bug(
        forgets_clients_at_restart,
        (LiveClientsServed.name,),
        Restarts,
        seed=0,
        message="were served before the restart",
    ),
    Bug(settles_despite_restored_clients, (LiveClientsServed.name,), Restarts, seed=0, message="settling although"),
    Bug(never_probes_the_tail, (StreamProgress.name,), Lossy, seed=1, message="waiting for"),
    Bug(stops_at_one_contradiction, (StreamProgress.name,), Garbage, seed=0, message="failed: "),
    Bug(attributes_repairs_to_the_backbone, (StreamProgress.name,), Garbage, seed=5, message="failed: "),
    Bug(
        numbers_retransmissions_again,
        (LowestNumberReported.name,),
        Lossy,
        seed=0,
        message="subscribers receive",
    ),
    Bug(
        reports_the_first_number_received,
        (LowestNumberReported.name,),
        Lossy,
        seed=1,
        message="subscribers receive",
    ),
    Bug(wastes_numbers, (NoNumbersWasted.name,), Storm, seed=0, message="messages since the start"),
    Bug(
        wastes_numbers_unreported,
        (NoNumbersWasted.name,),
        Storm,
        seed=0,
        message="although there were",
    ),
    Bug(reserves_too_many_numbers, (NoNumbersWasted.name,), Storm, seed=0, message="are reserved"),
    Bug(forgets_repairs, (JournalMatchesDelivery.name,), BriefStorm, seed=3, message="is not stored"),
    Bug(starts_at_the_newest_message, (StartsAtOldestConfirmed.name,), Storm, seed=0, message="had been received"),
    Bug(restarts_numbering, (OneMessagePerNumber.name,), Amnesia, seed=0, message="was sent with"),
    Bug(accepts_every_token, (AccessControlled.name,), Limits, seed=0, message="was sent to an adversary"),
    Bug(numbers_pushes_not_admitted, (AccessControlled.name,), Limits, seed=0, message="was numbered"),
    Bug(
        forwards_requests_not_admitted,
        (AccessControlled.name, RequestsForwarded.name),
        Limits,
        seed=0,
        message="was sent to an adversary",
    ),
    Bug(exceeds_the_client_limit, (MemoryBounded.name,), Limits, seed=0, message="clients: 9 in use, the limit is 8"),
    Bug(evicts_clients_when_full, (LiveClientsServed.name,), Limits, seed=0, message="not served, although"),
    Bug(trusts_the_length, (NO_EXCEPTIONS,), Garbage, seed=0, message="decode_deliver: unpack_from requires"),
]


@each(BUGS)
def test_the_recorded_seed_shows_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This searches for gaps in the simulator, not in the product.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_seed_search_finds_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)


def test_numbers_that_depend_on_batch_boundaries_are_detected(monkeypatch: Patch) -> None:
    assert_equal_outcomes(0)
    original = Backbone.receive_batch

    def receive_batch(self: Any, batch: Batch, now: float) -> None:
        rows = [(bytes(datagram), peer) for datagram, peer, _ in batch]
        original(self, Batch.pack(reversed(rows)), now)

    monkeypatch.setattr(Backbone, "receive_batch", receive_batch)
    with pytest.raises(AssertionError, match="where batches are cut changes"):
        assert_equal_outcomes(0)


def assert_equal_outcomes(seed: int) -> None:
    first, second = (BriefGarbage(seed, split_seed=split_seed).run() for split_seed in (0, 1))
    assert first.counters["batches"] != second.counters["batches"]
    assert first.digest == second.digest, "where batches are cut changes what comes of it"
