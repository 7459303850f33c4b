"""Base of the fyrehose scenarios: a backbone, clients, a workload and invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any, ClassVar, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket, PublishQueueFull
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig, OutboxConfig, Start
from fyrehose_twisted.fyrehose.events import KeepaliveAcked as AckReceived
from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.simulation.adversaries import ADVERSARY_ADDRESS, Adversary
from fyrehose_twisted.fyrehose.simulation.invariants.access import (
    JournalMatchesDelivery,
    LowestNumberReported,
    NoNumbersWasted,
    StartsAtOldestConfirmed,
)
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    ADVERSARY,
    AcknowledgedArePublished,
    ExactlyOnce,
    InOrder,
    LiveClientsServed,
    NumberedMessages,
    OneMessagePerNumber,
    Participants,
    StreamProgress,
)
from fyrehose_twisted.fyrehose.simulation.invariants.keys import KeysDelivered, framed, key_of
from fyrehose_twisted.fyrehose.simulation.invariants.memory import MemoryBounded
from fyrehose_twisted.fyrehose.simulation.invariants.repair import LossOnlyAfterRetries, RequestsForwarded
from fyrehose_twisted.fyrehose.simulation.journal_hosts import JournalHost
from fyrehose_twisted.fyrehose.simulation.participants import BACKBONE, BackboneHost, Participant
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC, add_key
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Dialect, Push
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule

DRAIN_TIME = 5.0
"""Seconds before the final messages, in which datagrams in flight arrive."""

FINAL_MESSAGES = 3
"""Number of messages that each publisher sends after the last fault, so that subscribers detect missing messages."""


RETRANSMIT_SIZES = (0, 4_000, BackboneConfig().retransmit)
"""Sizes of the retransmit buffer in bytes: for no message, a few dozen messages, or all."""


class ClientProfile(NamedTuple):
    """Profile of a client in a scenario."""

    name: str
    config: ClientConfig = ClientConfig()
    publishes: bool = False
    resumes: bool = False
    start_delay: float = 0.0
    has_journal: bool = False
    """Whether it has a durable journal."""
    kept: int = 0
    """Number of durable journals that must sync its messages."""
    backbones: int = 0
    """Number of members of a group of backbones whose addresses it is given; 0 for all."""
    must_follow: bool = True
    """Whether it has to receive the stream in the end."""
    over_ipv6: bool = False
    """Whether the backbone knows it by its IPv6 address, in scenarios with both IP versions."""


RAW_CONFIG = ClientConfig(raw=True, outbox=OutboxConfig(raw=True))

ALL_PROFILES = (
    ClientProfile("subscriber", resumes=True),
    ClientProfile("subscriber-v1", ClientConfig(dialect=Dialect.V1), resumes=True),
    ClientProfile("subscriber-raw", ClientConfig(raw=True)),
    ClientProfile("subscriber-small", ClientConfig(buffer_bytes=4_000, history_bytes=40_000), resumes=True),
    ClientProfile("subscriber-forgetful", ClientConfig(journal=False)),
    ClientProfile("publisher", publishes=True),
    ClientProfile("publisher-v1", ClientConfig(dialect=Dialect.V1), publishes=True),
    ClientProfile("publisher-only", ClientConfig(subscribe=False), publishes=True),
    ClientProfile("publisher-raw", RAW_CONFIG, publishes=True),
    ClientProfile("late-oldest", ClientConfig(start=Start.OLDEST), start_delay=200.0),
    ClientProfile("late-numbered", ClientConfig(start=50), start_delay=250.0, resumes=True),
    ClientProfile("late", start_delay=300.0),
)


class FyrehoseScenario(Scenario):
    """Base of the fyrehose scenarios: one backbone, :attr:`profiles`, a workload, and :meth:`fault_mix` of faults.

    :cvar messages: number of messages published before the final ones.
    :cvar large_share: share of messages with up to 20,000 bytes; the others have about 20.
    :cvar keyed: whether messages with envelopes have keys, or look as if they had one.
    :cvar pause_count: number of times that an application pauses delivery for a while.
    :cvar fault_counts: minimum and maximum number of faults of a run.
    :cvar secret: shared secret of the backbone and its clients, or ``None``.
    """

    profiles: ClassVar[Sequence[ClientProfile]] = ALL_PROFILES
    messages: ClassVar[int] = 800
    large_share: ClassVar[float] = 0.02
    keyed: ClassVar[bool] = False
    pause_count: ClassVar[int] = 20
    fault_counts: ClassVar[tuple[int, int]] = (25, 60)
    secret: ClassVar[bytes | None] = None

    backbone: BackboneHost
    participants: list[Participant]

    def build(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        self.backbone = self.make_backbone()
        self.participants = [self.make_client(number, role) for number, role in enumerate(self.profiles, 1)]
        self.publishers = [one for one, role in zip(self.participants, self.profiles, strict=True) if role.publishes]
        self._arrange_workload()
        self.add_invariants(Participants(self.network, self.backbone, self.participants))

    def make_backbone(self) -> BackboneHost:
        """Return the host of the backbone."""
        return BackboneHost(self.network, self.backbone_config(), self._make_rng())

    def make_client(self, number: int, profile: ClientProfile) -> Participant:
        """Return the host of a client, of which ``number`` is unique."""
        return self._make_participant(profile, (f"10.0.1.{number}", 4_000))

    def backbone_config(self) -> BackboneConfig:
        """Return the backbone configuration. In two of three runs, the retransmit buffer is small or empty."""
        retransmit = Random(f"{self.seed}/retransmit").choice(RETRANSMIT_SIZES)
        return BackboneConfig(secret=self.secret, retransmit=retransmit)

    def make_network(self, split_seed: int) -> Network:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        rng = Random(f"{self.seed}/link")
        moment = rng.choice((0.001, 0.01, 0.05))
        return Network(self.seed, self.make_link(rng), moment=moment, split=0.3, split_seed=split_seed)

    def make_link(self, rng: Random) -> Link:
        """Return the link without faults. In every other run, nothing is lost or reordered."""
        bad = rng.random() < 0.5
        return Link(
            loss=bad * rng.uniform(0.0, 0.05),
            duplication=bad * rng.uniform(0.0, 0.05),
            delay=0.001,
            jitter=bad * rng.uniform(0.0, 0.02),
        )

    def add_invariants(self, participants: Participants) -> None:
        """Add the invariants."""
        self.content: NumberedMessages = OneMessagePerNumber(participants)
        self.progress = StreamProgress(participants, self.content)
        for invariant in (
            self.progress,  # First, because without progress the other invariants fail too.
            self.content,
            InOrder(participants, self.content),
            ExactlyOnce(participants),
            AcknowledgedArePublished(participants, self.content),
            LossOnlyAfterRetries(participants),
            RequestsForwarded(participants),
            LiveClientsServed(participants),
            NoNumbersWasted(participants),
            JournalMatchesDelivery(participants, self.content),
            LowestNumberReported(participants, self.content),
            StartsAtOldestConfirmed(participants),
            MemoryBounded(participants),
        ):
            self.add_invariant(invariant)
        if self.keyed:
            self.add_invariant(KeysDelivered(participants))

    def draw_faults(self, rng: Random) -> FaultSchedule:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        kinds = self.fault_mix()
        count = rng.randint(*self.fault_counts) if kinds else 0
        return FaultSchedule.draw(rng, count, until=self.duration - 30, kinds=kinds) if count else FaultSchedule()

    def fault_mix(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """Return the kinds of faults with their relative frequencies."""
        return ()

    def _all_faults(self) -> Sequence[tuple[float, fault_generators.FaultGenerator]]:
        """Return faults of clients, the backbone and the links between them, for :meth:`fault_mix`."""
        clients, hosts = self._client_names, self._host_names
        return (
            (3.0, fault_generators.crashes(clients)),
            (1.0, fault_generators.crashes(["backbone"], kinds=(CrashMode.KILLED, CrashMode.POWER), after_persist=0.3)),
            (3.0, fault_generators.pauses(clients, max_duration=12.0)),
            (1.0, fault_generators.pauses(["backbone"])),
            (4.0, fault_generators.cuts(hosts, hub="backbone")),
            (6.0, fault_generators.bad_links(hosts, hub="backbone")),
        )

    def finish(self) -> None:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        self.progress.faults_ended()
        for publisher in self.publishers:
            for number in range(FINAL_MESSAGES):
                self.network.call_in(DRAIN_TIME + number, partial(self._publish, publisher, b"the last words"))
        self.network.run(DRAIN_TIME + FINAL_MESSAGES)

    def settled(self) -> bool:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        return self.progress.find_unsettled() is None

    def describe(self, thing: Any) -> str:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        match thing:
            case bytes():
                return _describe_packet(thing)
            case MessagesDelivered(messages):
                return f"Delivered {messages[0].sequence} to {messages[-1].sequence}, {len(messages)} messages"
            case AckReceived(round_trip):
                return f"Acknowledged after {round_trip:.6f} s"
        return str(thing)

    def digest(self) -> str:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        seen = [application.digest() for one in self.participants for application in one.applications]
        return sha256(repr((sorted(self.content.truth.items()), seen)).encode()).hexdigest()

    def statistics(self) -> Counter[str]:
        """See :class:`~fyrehose_twisted.sim.scenario.Scenario`."""
        total: Counter[str] = Counter(numbered=len(self.content.truth))
        for one in self.participants:
            for application in one.applications:
                counters = application.client.counters
                total["delivered"] += application.handed.count
                total["reported lost"] += application.lost.count
                total["repaired"] += counters.repaired
                total["repeats"] += counters.repeats
                total["acknowledged"] += len(application.published)
                total["unpublished"] += len(application.unpublished)
        return total

    # Workload

    def _arrange_workload(self) -> None:
        rng, network = self.rng, self.network
        remaining = self.messages
        while remaining > 0:
            burst = min(remaining, rng.choice((1, 1, 1, 2, 5, 40)))
            remaining -= burst
            at, publisher = rng.uniform(5.0, self.duration), rng.choice(self.publishers)
            for number in range(burst):
                network.call_in(at + number * rng.choice((0.0, 0.001)), partial(self._publish, publisher, b""))
        subscribers = [one for one in self.participants if one.config.subscribe]
        for _ in range(self.pause_count):
            one, at = rng.choice(subscribers), rng.uniform(5.0, self.duration - 20)
            network.call_in(at, partial(self.operate, one.host, "pause", lambda client, now: client.pause()))
            network.call_in(
                at + rng.uniform(0.1, 15.0),
                partial(self.operate, one.host, "resume", lambda client, now: client.resume(now)),
            )

    def _add_adversary(self) -> None:
        """Add a host that sends arbitrary datagrams to all others, and a steady stream."""
        rng = self._make_rng()
        # A steady stream contradicts numbers that are too high. An idle stream would accept them in the end.
        for second in range(3, int(self.duration + DRAIN_TIME), 3):
            self.network.call_in(second, partial(self._publish, rng.choice(self.publishers), b"tick"))
        self.network.add(
            ADVERSARY,
            ADVERSARY_ADDRESS,
            lambda boot: Adversary(self.network, rng, boot.now, self.duration, forges_repairs=True),
        )

    def _publish(self, publisher: Participant, text: bytes) -> None:
        # Payloads are unique, because equal ones without an envelope acknowledge each other.
        payload = b"%s/%d %s" % (publisher.name.encode(), self.operations, text)
        if self.rng.random() < self.large_share:
            payload += bytes(self.rng.randrange(20_000))
        message = sent = payload
        if self.keyed and not publisher.config.outbox.raw:
            data = KEY_MAGIC + payload if self.operations % 4 == 0 else payload
            key = key_of(data)
            message, sent = data if key is None else add_key(data, key), framed(data)

        def publish(client: Client, now: float) -> None:
            try:
                ticket = client.publish(message, now, kept=publisher.kept)
                publisher.application.payloads[ticket] = sent
            except PublishQueueFull:
                self.network.counters["refused to publish"] += 1

        self.operate(publisher.host, f"publish {len(payload)} bytes", publish)

    def _make_participant(
        self, profile: ClientProfile, address: Address, backbones: Sequence[Address] = (BACKBONE,)
    ) -> Participant:
        config = profile.config
        if self.secret is not None:
            config = replace(config, secret=self.secret, address=address)
        if profile.has_journal:
            return JournalHost(
                self.network,
                profile.name,
                address,
                config,
                self._make_rng(),
                start_delay=profile.start_delay,
                backbones=backbones,
            )
        participant = Participant(
            self.network,
            profile.name,
            address,
            config,
            self._make_rng(),
            resumes=profile.resumes,
            start_delay=profile.start_delay,
            backbones=backbones,
        )
        participant.kept, participant.must_follow = profile.kept, profile.must_follow
        return participant

    def _make_rng(self) -> Random:
        return Random(self.rng.getrandbits(64))

    @property
    def _client_names(self) -> list[str]:
        return [one.name for one in self.participants]

    @property
    def _host_names(self) -> list[str]:
        return ["backbone", *self._client_names]


def _describe_packet(datagram: bytes) -> str:
    try:
        packet = decode(datagram)
    except MalformedPacket as error:
        return f"{datagram[:16].hex()} ({error})"
    kind = type(packet).__name__
    name = "KEEPALIVE-ACK" if kind == "KeepaliveAck" else kind.upper()
    match packet:
        case Deliver(sequence, data):
            return f"{name} {sequence} {data[-40:]!r}" if len(data) < 200 else f"{name} {sequence}, {len(data):,} bytes"
        case Push(data=data):
            return f"{name} {data[-40:]!r}" if len(data) < 200 else f"{name} {len(data):,} bytes"
    return f"{name} {str(packet).removeprefix(kind)}"
