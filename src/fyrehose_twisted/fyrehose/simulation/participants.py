"""Participants of a simulated run: hosts of the backbone and clients, and the applications on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import (
    ClientFailed,
    GroupAbandoned,
    GroupAnnounced,
    MessagesDelivered,
    MessagesExpired,
    MessagesLost,
    MessagesPublished,
)
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME, Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, KnownClient, SequenceCheckpoint
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.journal_store import JournalStore
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.publishing.durability import DurabilityExpired
from fyrehose_twisted.fyrehose.wire.envelope import Envelope, unwrap, wrap
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.interfaces import IPayloadOpener, IPayloadSealer
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network

BACKBONE: Address = ("10.0.0.1", 2323)


class BackboneFiles:
    """State file and client table of a backbone, and what its next process knows from them.

    :ivar checkpoint: stored checkpoint; ``None`` without a state file.
    :ivar complete: whether the running backbone started with a complete client table.
    """

    def __init__(self, checkpoint: SequenceCheckpoint | None = None) -> None:
        self.checkpoint = checkpoint
        self.complete = self._is_current = False
        self._clients: dict[Address, KnownClient] = {}

    def replace(self, checkpoint: SequenceCheckpoint) -> None:
        """Replace the files, as an operator does."""
        self.checkpoint, self._is_current = checkpoint, False

    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        """Store a checkpoint."""
        self.checkpoint = checkpoint
        for address, client in checkpoint.clients:
            if client is None:
                self._clients.pop(address, None)
            else:
                self._clients[address] = client

    def start(self, boot: Boot) -> BackboneStart:
        """Return the knowledge of a backbone that starts after a crash, as ``SequenceFile`` does."""
        if boot.last_crash is CrashMode.DISK:
            self.checkpoint = None
        mark = self.checkpoint
        killed = boot.last_crash is CrashMode.KILLED and mark is not None
        self.complete, self._is_current = self._is_current and killed, True
        if not self.complete:
            self._clients.clear()
        if mark is not None:
            self.checkpoint = mark = SequenceCheckpoint(mark.last if killed else mark.bound, mark.bound)
        fresh = mark is None or mark.bound == 0
        return BackboneStart(
            last=0 if mark is None else mark.last,
            bound=0 if mark is None else mark.bound,
            settle_until=None if self.complete and not fresh else boot.now + SETTLE_TIME,
            query_clients=fresh,
            known_clients=list(self._clients.values()),
        )


class BackboneHost:
    """Host of the backbone.

    :param other_address: second address, of the other IP version.
    """

    def __init__(
        self, network: Network, config: BackboneConfig, rng: Random, other_address: Address | None = None
    ) -> None:
        self.config = config
        self._rng = rng
        self._files = BackboneFiles()
        self.host = network.add("backbone", BACKBONE, self._start)
        self.host.on_persist = self._files.persist
        if other_address is not None:
            network.add_address(self.host, other_address)

    @property
    def complete(self) -> bool:
        """Whether the running backbone started with a complete client table."""
        return self._files.complete

    @property
    def node(self) -> Backbone:
        """Running backbone."""
        node = self.host.node
        assert isinstance(node, Backbone)
        return node

    def start_at(self, last: int) -> None:
        """Start with a new state file whose last number an operator has set."""
        checkpoint = self.host.persisted = SequenceCheckpoint(last, last)
        self._files.replace(checkpoint)
        self.host.start()

    def _start(self, boot: Boot) -> Backbone:
        policy = RandomForward(Random(self._rng.getrandbits(64)))
        start = self._files.start(boot)
        self.host.persisted = self._files.checkpoint
        return Backbone(
            self.config,
            policy,
            start,
            own_address=lambda peer: self.host.address_towards(peer) or ANY_ADDRESS,
            is_own=lambda address: address in (self.host.address, self.host.other_address),
            now=boot.now,
        )


class Application:
    """Application on the host of a client, from one start of the client to the next.

    :ivar next: lowest number that may still be delivered or reported; ``None`` before the first.
    :ivar first: first number that was delivered or reported.
    :ivar handed: delivered numbers.
    :ivar lost: numbers reported as lost.
    :ivar envelopes: envelopes of delivered messages.
    :ivar payloads: published payloads by ticket.
    :ivar published: sequence numbers of acknowledged messages by ticket.
    :ivar unpublished: tickets of messages that were not published, or not kept, in time.
    :ivar failure: error that stopped the client, or ``None``.
    """

    def __init__(self, config: ClientConfig, client: Client, store: MemoryStore | JournalStore) -> None:
        self.config = config
        self.client = client
        self.store = store
        self.next: int | None = config.start if isinstance(config.start, int) else None
        self.first: int | None = self.next
        self.handed = RangeSet()
        self.lost = RangeSet()
        self.envelopes: set[Envelope] = set()
        self.payloads: dict[int, bytes] = {}
        self.published: dict[int, int] = {}
        self.unpublished: set[int] = set()
        self.failure: Exception | None = None

    def data_of(self, ticket: int) -> bytes:
        """Return the DATA of a published message."""
        payload, outbox = self.payloads[ticket], self.client.send_queue
        return payload if outbox.config.raw else wrap(outbox.publisher, ticket, payload)

    def has_received(self, sequence: int, data: bytes) -> bool:
        """Return whether a message was delivered, under this number or, with its envelope, under another."""
        return sequence in self.handed or (not self.config.raw and unwrap(data) in self.envelopes)

    def on_event(self, event: object) -> None:
        """Record an event of the client."""
        match event:
            case MessagesDelivered(messages):
                for message in messages:
                    self._advance(message.sequence, message.sequence)
                    self.handed.add(message.sequence)
                    envelope = None if self.config.raw else unwrap(message.payload)
                    if envelope is not None:
                        self.envelopes.add(envelope)
            case MessagesLost(first, last):
                self._advance(first, last)
                self.lost.add(first, last)
            case MessagesPublished(messages=pairs):
                self.published.update(pairs)
            case MessagesExpired(tickets):
                self.unpublished.update(tickets)
            case DurabilityExpired(messages):
                self.unpublished.update(message.ticket for message in messages)
            case ClientFailed(error):
                self.failure = error

    def digest(self) -> str:
        """Return a digest of the delivered, lost and published messages."""
        seen = (self.next, list(self.handed), list(self.lost), sorted(self.published.items()), sorted(self.unpublished))
        return sha256(repr((seen, sorted(self.envelopes))).encode()).hexdigest()

    def _advance(self, first: int, last: int) -> None:
        if self.first is None:
            self.first = first
        self.next = last + 1


class Participant:
    """Host of one client.

    :param resumes: whether the application resumes at its position in the stream after a crash.
    :param backbones: addresses of backbones that the client is given.
    :ivar must_follow: whether it has to receive the stream in the end.
    :ivar application: application since the last start.
    :ivar former_applications: applications before, one for each crash.
    :ivar kept: number of durable journals that must sync its messages.
    :ivar make_seals: called at each start; returns its sealer and opener, or ``None`` for payloads that are not sealed.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        address: Address,
        config: ClientConfig,
        rng: Random,
        *,
        resumes: bool = False,
        start_delay: float = 0.0,
        backbones: Sequence[Address] = (BACKBONE,),
    ) -> None:
        self.name = name
        self.config = config
        self.backbones = tuple(backbones)
        self.must_follow = True
        self.resumes = resumes
        self.kept = 0
        self.make_seals: Callable[[], tuple[IPayloadSealer | None, IPayloadOpener | None]] = lambda: (None, None)
        self.former_applications: list[Application] = []
        self.application: Application
        self._rng = rng
        self._network = network
        self.host: Host = network.add(name, address, self._start, start_delay=start_delay)
        self.host.on_event = self._on_event

    @property
    def has_started(self) -> bool:
        """Whether the client has started at least once."""
        return self.host.boots > 0

    @property
    def applications(self) -> list[Application]:
        """All applications, one for each start."""
        return [*self.former_applications, self.application] if self.has_started else []

    @property
    def is_live(self) -> bool:
        """Whether the client runs and subscribes, and has to receive the stream."""
        return self.host.running and self.config.subscribe and self.must_follow

    def _start(self, boot: Boot) -> Client:
        config = self.config
        self._network.multicast.leave(self.host)
        if self.host.boots > 1:
            self.former_applications.append(self.application)
            if self.resumes and self.application.next is not None:
                config = replace(config, start=self.application.next)
        store = MemoryStore(config.history_bytes if config.journal else 0)
        rng, (sealer, opener) = Random(self._rng.getrandbits(64)), self.make_seals()
        client = Client(self.backbones, config, rng, boot.now, store=store, sealer=sealer, opener=opener)
        self.application = Application(config, client, store)
        return client

    def _on_event(self, event: object) -> None:
        match event:
            case GroupAnnounced(group):
                self._network.multicast.join(self.host, group)
            case GroupAbandoned():
                self._network.multicast.leave(self.host)
        self.application.on_event(event)
