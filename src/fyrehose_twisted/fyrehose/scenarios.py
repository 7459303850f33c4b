"""What the simulator runs for this wing: a backbone and its clients, a workload, and what must hold of any of it."""

from __future__ import annotations

from collections import Counter
from random import Random

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.backbone import RESTART_TIME, Backbone
from fyrehose_twisted.fyrehose.client import Client
from fyrehose_twisted.fyrehose.codec import decode
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.envelope import Envelope, unwrap, wrap
from fyrehose_twisted.fyrehose.events import Delivered, Failed, Message
from fyrehose_twisted.fyrehose.forwarding import RandomForward
from fyrehose_twisted.fyrehose.history import History
from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE, Deliver
from fyrehose_twisted.fyrehose.outbox import Published, PublishFailed
from fyrehose_twisted.fyrehose.reassembly import Lost
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.sim.network import Link, Network

BACKBONE: Address = ("10.0.0.1", 2323)


class InvariantViolated(AssertionError):
    """Something that must hold in every run did not; the message names the seed."""


class Participant:
    """One client of the simulated backbone, and everything that its application was told.

    :ivar messages: every message handed over, in that order.
    :ivar lost: every number reported as lost.
    :ivar payloads: what it published, by ticket.
    :ivar published: sequence numbers of acknowledged messages, by ticket.
    :ivar unpublished: tickets of messages that timed out.
    :ivar errors: why it stopped, if it did.
    :ivar violations: what was wrong with what it was told.
    """

    def __init__(self, network: Network, address: Address, config: ClientConfig, rng: Random) -> None:
        self.config = config
        self.history = History(config.history_bytes if config.journal else 0)
        self.client = Client(BACKBONE, config, rng, network.now, store=self.history)
        self.messages: list[Message] = []
        self.lost = RangeSet()
        self.payloads: dict[int, bytes] = {}
        self.published: dict[int, int] = {}
        self.unpublished: set[int] = set()
        self.errors: list[Exception] = []
        self.violations: list[str] = []
        self._enveloped: set[Envelope] = set()
        self.host = network.add(address, self.client)
        self.host.on_event = self._told
        network.scheduler.call_at(network.now, self.host.flush)

    @property
    def first(self) -> int | None:
        """The first number handed over or reported, once there is one."""
        firsts = [message.sequence for message in self.messages[:1]] + [first for first, _ in self.lost][:1]
        return min(firsts, default=None)

    @property
    def settled(self) -> bool:
        """Whether nothing waits to be published or to be handed over."""
        client = self.client
        return not len(client.outbox) and not client.buffered

    def publish(self, payload: bytes, now: float) -> int:
        """Publish, and return the ticket."""
        ticket = self.client.publish(payload, now)
        self.payloads[ticket] = payload
        self.host.flush()
        return ticket

    def check_limits(self) -> None:
        """Note where more memory is in use than the configuration allows."""
        config, client = self.config, self.client
        for what, used, limit in (
            ("history", self.history.size, config.history_bytes),
            ("buffer", client.buffered, config.buffer_bytes + MAX_DELIVERABLE),
            ("outbox", len(client.outbox), config.outbox.queue_messages),
        ):
            if used > limit:
                self._violated(f"{what} holds {used:,}, its limit is {limit:,}")

    def _told(self, event: object) -> None:
        match event:
            case Delivered(messages):
                for message in messages:
                    self._handed_over(message)
            case Lost(first, last):
                if self.messages and first <= self.messages[-1].sequence:
                    self._violated(f"lost {first} to {last} after {self.messages[-1].sequence} was handed over")
                self.lost.add(first, last)
            case Published(messages=pairs):
                for ticket, sequence in pairs:
                    if ticket in self.published or ticket in self.unpublished:
                        self._violated(f"ticket {ticket} reported twice")
                    self.published[ticket] = sequence
            case PublishFailed(tickets):
                if not self.unpublished.isdisjoint(tickets) or not self.published.keys().isdisjoint(tickets):
                    self._violated(f"tickets {tickets} reported twice")
                self.unpublished.update(tickets)
            case Failed(error):
                self.errors.append(error)

    def _handed_over(self, message: Message) -> None:
        sequence = message.sequence
        if self.messages and sequence <= self.messages[-1].sequence:
            self._violated(f"{sequence} handed over after {self.messages[-1].sequence}")
        if sequence in self.lost:
            self._violated(f"{sequence} handed over after it was reported lost")
        envelope = None if self.config.raw else unwrap(message.payload)
        if envelope is not None:
            if envelope in self._enveloped:
                self._violated(
                    f"message {envelope.counter} of {envelope.publisher.hex()} handed over again, as {sequence}"
                )
            self._enveloped.add(envelope)
        self.messages.append(message)

    def _violated(self, what: str) -> None:
        self.violations.append(f"{self.host.address[0]}: {what}")


class FyrehoseScenario:
    """A backbone and its clients on one simulated network; everything random comes from ``seed``.

    :ivar truth: DATA by number, as the backbone sent it.
    """

    def __init__(self, seed: int, link: Link | None = None, *, config: BackboneConfig | None = None) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.network = Network(self.rng.getrandbits(64), link, moment=0.001, split=0.1)
        self.network.on_send = self._sent
        self.config = BackboneConfig() if config is None else config
        self.participants: list[Participant] = []
        self.truth: dict[int, bytes] = {}
        self.violations: list[str] = []
        self.backbone = self.network.add(BACKBONE, self._make_backbone(0, 0, None))

    def join(self, config: ClientConfig | None = None) -> Participant:
        """Add a client."""
        address = (f"10.0.1.{len(self.participants) + 1}", 4000)
        participant = Participant(self.network, address, ClientConfig() if config is None else config, self._rng())
        self.participants.append(participant)
        return participant

    def run(self, seconds: float) -> None:
        """Let time pass, and look at the limits now and then."""
        end = self.network.now + seconds
        while self.network.now < end:
            self.network.scheduler.run_until(min(end, self.network.now + 0.25))
            for participant in self.participants:
                participant.check_limits()

    def publish(self, publishers: list[Participant], messages: int, *, over: float) -> None:
        """Let each of ``publishers`` publish ``messages`` messages at random times in the next ``over`` seconds."""
        now = self.network.now
        for index, publisher in enumerate(publishers):
            for number in range(messages):
                payload = b"%d/%d/%d " % (index, number, self.rng.getrandbits(32)) + bytes(self.rng.randrange(100))
                self._publish_at(now + over * self.rng.random(), publisher, payload)

    def stop_backbone(self) -> None:
        """Kill the backbone."""
        self.backbone.stop()

    def start_backbone(self) -> None:
        """Start the backbone again, with what it persisted and nothing else."""
        last, bound = 0, 0
        if self.backbone.persisted:
            last, bound = self.backbone.persisted[-1].last, self.backbone.persisted[-1].bound
        self.backbone.restart(self._make_backbone(last, bound, self.network.now + RESTART_TIME))

    def settle(self, limit: float = 180.0) -> None:
        """Let time pass until everybody has everything, or for ``limit`` seconds."""
        end = self.network.now + limit
        while self.network.now < end and not self._settled():
            self.run(0.5)

    def check(self) -> None:
        """Look at everything that has happened.

        :raises InvariantViolated: naming the seed, if any of it must not happen.
        """
        violations = list(self.violations)
        for participant in self.participants:
            name = participant.host.address[0]
            violations += participant.violations
            violations += [f"{name}: {violation}" for violation in self._wrongly_acknowledged(participant)]
            if participant.config.subscribe:
                violations += [f"{name}: {violation}" for violation in self._wrongly_handed_over(participant)]
        if violations:
            shown = "\n  ".join(violations[:20])
            raise InvariantViolated(f"seed {self.seed}: {len(violations)} violations\n  {shown}")

    def counts(self) -> Counter[str]:
        """Return what happened, so that a test can see that anything did."""
        total = Counter(self.network.counts)
        for participant in self.participants:
            counters = participant.client.counters
            total["delivered_to_applications"] += counters.delivered
            total["repeats"] += counters.repeats
            total["repaired"] += counters.repaired
            total["reported_lost"] += counters.lost
            total["acknowledged"] += len(participant.published)
            total["unpublished"] += len(participant.unpublished)
        return total

    def _wrongly_acknowledged(self, participant: Participant) -> list[str]:
        outbox = participant.client.outbox
        violations = []
        for ticket, sequence in participant.published.items():
            payload = participant.payloads[ticket]
            data = payload if outbox.config.raw else wrap(outbox.publisher, ticket, payload)
            if self.truth.get(sequence) != data:
                violations.append(f"ticket {ticket} was acknowledged as {sequence}, which is another message")
        return violations

    def _wrongly_handed_over(self, participant: Participant) -> list[str]:
        first, last = participant.first, self._last_held()
        if participant.errors:
            return [f"stopped: {error}" for error in participant.errors]
        if first is None:
            return [f"was handed nothing of {last:,} messages"] if last else []
        violations = []
        got = {message.sequence: message.payload for message in participant.messages}
        for sequence, payload in got.items():
            if self.truth.get(sequence) != payload:
                violations.append(f"{sequence} is not what the backbone sent under that number")
        envelopes = {unwrap(payload) for payload in got.values()} - {None}
        for sequence in range(first, last + 1):
            if sequence in got:
                continue
            if sequence in participant.lost:
                if self._is_held(sequence):
                    violations.append(f"{sequence} is reported lost, and somebody holds it")
            elif participant.config.raw or unwrap(self.truth.get(sequence, b"")) not in envelopes:
                violations.append(f"{sequence} neither came nor is reported lost")
        return violations

    def _is_held(self, sequence: int) -> bool:
        return any(participant.history.get(sequence) is not None for participant in self._journals())

    def _last_held(self) -> int:
        # What reached nobody who keeps it is gone, and if it was the last message nobody can know that it was.
        return next((sequence for sequence in sorted(self.truth, reverse=True) if self._is_held(sequence)), 0)

    def _journals(self) -> list[Participant]:
        return [participant for participant in self.participants if participant.host.up and not participant.errors]

    def _settled(self) -> bool:
        last = self._last_held()
        return all(
            participant.settled and (not participant.config.subscribe or (participant.client.next_sequence or 0) > last)
            for participant in self.participants
            if participant.host.up and not participant.errors
        )

    def _make_backbone(self, last: int, bound: int, settle_until: float | None) -> Backbone:
        policy = RandomForward(self._rng())
        return Backbone(self.config, policy, last=last, bound=bound, settle_until=settle_until)

    def _publish_at(self, when: float, publisher: Participant, payload: bytes) -> None:
        def publish() -> None:
            if publisher.host.up:
                publisher.publish(payload, self.network.now)

        self.network.scheduler.call_at(when, publish)

    def _sent(self, source: Address, effect: Send) -> None:
        if source != BACKBONE:
            return
        for datagram in effect.datagrams:
            try:
                packet = decode(datagram)
            except MalformedPacket as error:
                self.violations.append(f"the backbone sent {bytes(datagram)!r}: {error}")
                continue
            if isinstance(packet, Deliver) and self.truth.setdefault(packet.sequence, packet.data) != packet.data:
                self.violations.append(f"the backbone gave {packet.sequence} to two messages")

    def _rng(self) -> Random:
        return Random(self.rng.getrandbits(64))
