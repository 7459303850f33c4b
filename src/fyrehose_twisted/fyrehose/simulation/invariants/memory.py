"""Invariant of bounded memory: usage and limits of everything that peers or applications can make grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeAlias

from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.push_backlog import HELD_BYTES, HELD_MESSAGES
from fyrehose_twisted.fyrehose.node.backbone.repair_fetching import MAX_PEERS, MAX_RANGES
from fyrehose_twisted.fyrehose.node.backbone.request_routing import MAX_SEARCHES
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import MAX_RANGES as MAX_RANGES_WAITING
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.journal_store import READ_AHEAD, READ_BYTES, READ_RECORDS, JournalStore
from fyrehose_twisted.fyrehose.node.client.keepalive import UNANSWERED
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.publishing.session import MAX_UNSETTLED
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MAX_GAPS, MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.repair import MAX_PLANNED, MAX_REMEMBERED_RANGES
from fyrehose_twisted.fyrehose.node.client.repair_responder import QUEUE_BYTES, QUEUE_LIMIT, REQUESTERS
from fyrehose_twisted.fyrehose.node.drop_log import SOURCES_REMEMBERED
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import ClientInvariant, ClientsOfRun
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE
from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE
from fyrehose_twisted.repeats import WINDOW
from fyrehose_twisted.sim.host import Host

ONE_MESSAGE = MAX_DELIVERABLE + MESSAGE_OVERHEAD


Usage: TypeAlias = tuple[str, int, int]
"""Resource, its usage and its limit."""


def backbone_usage(backbone: Backbone) -> Iterator[Usage]:
    """Yield the resource usage of a backbone."""
    limit = backbone.config.max_clients
    yield "clients", len(backbone.clients), limit
    yield "budgets for REQUESTs", len(backbone._request_budgets), limit
    resending = backbone.repair_dispatcher
    yield "bytes to retransmit", resending._retransmit_scheduler.buffer.size, backbone.config.retransmit
    yield "ranges to retransmit", resending._retransmit_scheduler.pending_ranges, MAX_RANGES_WAITING
    yield "searches", len(resending._router), MAX_SEARCHES
    yield "messages held back", len(backbone._push_backlog._pushes), HELD_MESSAGES
    yield "bytes held back", backbone._push_backlog._bytes, HELD_BYTES
    yield "sources reported", len(backbone.drops._reports), SOURCES_REMEMBERED
    fetcher = resending.fetcher
    yield "clients asked on behalf of others", len(fetcher._asked), MAX_PEERS
    yield "requesters of fetched messages", len(fetcher._wanted), MAX_PEERS
    for ranges in (*fetcher._asked.values(), *fetcher._wanted.values()):
        yield "ranges to fetch", len(ranges), 2 * (2 * MAX_RANGES + 1)


def client_usage(client: Client, store: MemoryStore | JournalStore) -> Iterator[Usage]:
    """Yield the resource usage of a client."""
    config, outbox, answers = client.config, client.send_queue, client.repair_responder
    if isinstance(store, MemoryStore):
        yield "bytes of history", store.size, store.limit
    else:
        yield "messages read from the journal", len(store._read_cache), READ_RECORDS + READ_AHEAD
        yield "bytes read from the journal", store._read_cache_bytes, 3 * READ_BYTES
    yield "messages to publish", len(outbox), config.outbox.queue_messages
    yield "bytes to publish", outbox._size, config.outbox.queue_bytes + ENVELOPE_SIZE
    yield "messages with an unconfirmed number", len(client.unconfirmed_numbers), MAX_UNSETTLED
    yield "messages waiting for journals", len(client.durability), config.outbox.queue_messages
    yield "requesters waiting", len(answers._queues), REQUESTERS
    yield "queued repairs of one requester", max(map(len, answers._queues.values()), default=0), QUEUE_LIMIT
    yield "queued bytes of one requester", max(answers._queued_bytes.values(), default=0), QUEUE_BYTES
    yield "envelope ranges remembered", len(client.repeats), WINDOW + 1
    yield "KEEPALIVEs unanswered", len(client.keepalive._sent_at), UNANSWERED
    yield "sources reported", len(client.drops._reports), SOURCES_REMEMBERED
    subscription = client._subscription
    if subscription is None:
        return
    yield "bytes in the reorder buffer", client.buffered_bytes, config.buffer_bytes + ONE_MESSAGE
    repairs, joining, stream = subscription._repair_scheduler, subscription._start_search, subscription.reorder_buffer
    yield "requested ranges", len(repairs._requested) + len(repairs._requested_before), 2 * MAX_REMEMBERED_RANGES
    yield "ranges still searched for", len(repairs._still_searched), MAX_REMEMBERED_RANGES
    if stream is not None:
        # The schedule is rebuilt when its first entry is due, so it may be larger for a moment.
        yield "repairs planned", len(repairs), 4 * max(MAX_PLANNED, 2 * len(stream.missing))
        # A message inside a gap splits it, and so does a request whose answer did not fit the buffer.
        # Entries of the schedule may count as lost before adjacent ones.
        ranges = MAX_GAPS + 1 + config.buffer_bytes // MESSAGE_OVERHEAD + config.repair.in_flight + MAX_PLANNED
        yield "gaps", len(stream.missing), ranges
        yield "ranges given up", len(stream._lost), ranges
    if joining is not None:
        yield "bytes received before the start position", joining._size, config.buffer_bytes + ONE_MESSAGE


class MemoryBounded(ClientInvariant):
    """Every resource that peers or applications can make grow stays within its limit.

    :ivar peaks: highest usage of each resource as a share of its limit.
    """

    name: ClassVar[str] = "memory is bounded"

    def __init__(self, participants: ClientsOfRun) -> None:
        super().__init__(participants)
        self.peaks: dict[str, float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for host in self.network.hosts.values():
            if host.up and self.participants.is_backbone(host):
                self._check(host, backbone_usage(getattr(host.node, "backbone", host.node)))
        for one in self.participants.clients:
            if one.host.up:
                self._check(one.host, client_usage(one.application.client, one.application.store))

    def _check(self, host: Host, usage: Iterator[Usage]) -> None:
        for resource, used, limit in usage:
            if used > limit:
                self.violated(f"{resource}: {used:,} in use, the limit is {limit:,}", host)
            if used and limit and used / limit > self.peaks.get(resource, 0.0):
                self.peaks[resource] = used / limit
