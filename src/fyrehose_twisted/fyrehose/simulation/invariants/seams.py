"""Invariants of the seam between two terms of a group of backbones."""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar, NamedTuple

from fyrehose_twisted.consensus.messages import EntryKind
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost, MessagesPublished
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import DELIVER_KINDS, ClientInvariant, parse_deliver
from fyrehose_twisted.fyrehose.simulation.invariants.numbering import GroupMessages
from fyrehose_twisted.fyrehose.simulation.member_hosts import Group, MemberHost
from fyrehose_twisted.fyrehose.simulation.participants import Participant
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Flags, Head, Leader, PacketType
from fyrehose_twisted.fyrehose.wire.term_start import TermStart
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import BegunFault, SimPacket

FAST_LINK = 0.02
"""Maximum latency in seconds of a link over which a client must be able to answer a new leader in time."""

KNOWN_FOR = 2.0
"""Seconds after its first KEEPALIVE at which every member must know a client."""


class _Question(NamedTuple):
    """A takeover, as it began."""

    leader: MemberHost
    asked_at: float
    link_version: int
    askable: frozenset[Host]
    """Clients that a new leader must be able to hear."""


class _Answer(NamedTuple):
    """First answer of a client to a takeover."""

    highest: int
    boots: int
    arrived_at: float


class HeldNumbersKept(ClientInvariant):
    """The marker of a term leaves out no number that a connected client held, and claims none that was never given.
    After a transfer it leaves out none at all.

    A client that has answered takes no number of an earlier term from the former leader.
    """

    name: ClassVar[str] = "held messages stay in the stream"

    participants: Group

    sent_kinds = (PacketType.EXTENSION,)
    arrived_kinds = (PacketType.EXTENSION, *DELIVER_KINDS)

    def __init__(self, participants: Group, messages: GroupMessages) -> None:
        super().__init__(participants)
        self.messages = messages
        self.answers = 0
        messages.on_started.append(self._term_started)
        self._by_address = {one.host.address: one for one in participants.clients}
        self._questions: dict[int, _Question] = {}
        self._answers: dict[int, dict[Host, _Answer]] = {}
        self._answered_starts: dict[Host, list[TermStart]] = {one.host: [] for one in participants.clients}
        self._repaired: dict[Host, set[int]] = {one.host: set() for one in participants.clients}
        self._undisturbed_since: dict[Host, float] = {}

    # Disturbances

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._undisturbed_since[host] = self.network.now
        if host in self._answered_starts:
            self._answered_starts[host].clear()

    def paused(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._undisturbed_since[host] = inf

    def resumed(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._undisturbed_since[host] = self.network.now

    # Questions and answers

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        leader = self.participants.member_of(packet.source)
        if leader is None:
            return
        question = _decode_extension(packet)
        if not isinstance(question, Leader) or not question.asks_head:
            return
        if question.term not in self._questions:
            askable = frozenset(one.host for one in self.participants.clients if self._must_hear(leader, one))
            self._questions[question.term] = _Question(leader, self.network.now, self.network.link_version, askable)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host in self._repaired:
            self._note_repair(packet, host)
            return
        if packet.source not in self.by_host or packet.data[0] != PacketType.EXTENSION:
            return
        answer = _decode_extension(packet)
        if not isinstance(answer, Head):
            return
        question = self._questions.get(answer.term)
        if question is None or question.leader.host is not host:
            return
        client = question.leader.client_at(packet.source.address)
        # A client that answers before its KEEPALIVE arrives is a stranger to the leader.
        if client is not None and client.token == answer.token:
            told = _Answer(answer.highest, packet.source.boots, self.network.now)
            self._answers.setdefault(answer.term, {}).setdefault(packet.source, told)

    def _note_repair(self, packet: SimPacket, host: Host) -> None:
        if packet.source not in self._repaired or packet.damaged or packet.truncated:
            return
        if packet.data[0] in DELIVER_KINDS:
            self._repaired[host].add(parse_deliver(packet.data)[0])

    def _must_hear(self, leader: MemberHost, one: Participant) -> bool:
        """Return whether a client is known to a new leader, can be asked, and uses the extensions."""
        host, client = one.host, leader.client_at(one.host.address)
        return (
            client is not None
            and bool(client.flags & Flags.EXTENSIONS)
            and host.running
            and self._undisturbed_since.get(host, inf) <= self.network.now - KNOWN_FOR
            and all(map(_is_fast, self._links(leader, one)))
        )

    def _links(self, leader: MemberHost, one: Participant) -> tuple[Link, Link]:
        network, here, there = self.network, leader.host, one.host
        return network.link_between(here, there.address), network.link_between(there, here.address)

    # Markers

    def _term_started(self, start: TermStart, leader: MemberHost) -> None:
        given = max((last for term, last in self.messages.last_given.items() if term < start.term), default=0)
        if start.held_up_to > given:
            what = f"term {start.term} claims {start.held_up_to} as held, but the last number was {given}"
            self.violated(what, leader.host)
        if self.messages.is_skipped(start.held_up_to):
            what = f"term {start.term} claims {start.held_up_to} as held, but an earlier term began without it"
            self.violated(what, leader.host)
        if start.skipped and _is_exact(start.term, leader):
            what = f"term {start.term} began at {start.first} without {len(start.skipped)} numbers, but was handed over"
            self.violated(what, leader.host)
        if self.messages.given[start.first].at == self.network.now:  # Else nobody subscribed then.
            self._check_start(start, leader)

    def _check_start(self, start: TermStart, leader: MemberHost) -> None:
        term, held_up_to, first = start
        answers = self._answers.get(term, {})
        self.answers += len(answers)
        for host, (highest, boots, arrived_at) in answers.items():
            if arrived_at == self.network.now:
                continue  # It may be behind the last answer in the same batch.
            if held_up_to < highest < first and not _is_given_up(highest, start, leader):
                what = f"term {term} began without {held_up_to + 1} to {first - 1}, but {highest} was told to be held"
                self.violated(what, leader.host, host)
            if host.boots == boots:
                self._answered_starts[host].append(start)
                self._check_holder(start, leader, host)
        question = self._questions.get(term)
        if question is None or self.network.link_version != question.link_version:
            return
        for host in question.askable:
            if host.running and self._undisturbed_since[host] <= question.asked_at:
                self._check_holder(start, leader, host)

    def _check_holder(self, start: TermStart, leader: MemberHost, host: Host) -> None:
        """Check that a client holds no number that a term leaves out."""
        application = self.by_host[host].application
        for number in set(self.messages.truth).intersection(start.skipped) - self._repaired[host]:
            holds = number in application.handed or application.store.get(number) is not None
            if holds and not _is_given_up(number, start, leader):
                what = f"term {start.term} began without {start.held_up_to + 1} to {start.first - 1}"
                self.violated(f"{what}, but {number} is held", leader.host, host)

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesDelivered):
            return
        for message in event.messages:
            for start in self._answered_starts[host]:
                if message.sequence in start.skipped and message.sequence not in self._repaired[host]:
                    what = f"{message.sequence} was delivered, but term {start.term} began without it"
                    self.violated(what, host)


class KeptMessagesStay(ClientInvariant):
    """A message that was acknowledged as kept by durable journals stays in the stream, and reaches the subscribers."""

    name: ClassVar[str] = "kept messages stay in the stream"

    SETTLING: ClassVar[float] = 20.0
    """Seconds after a fault in which a message may be lost to a subscriber."""

    def __init__(self, participants: Group, messages: GroupMessages) -> None:
        super().__init__(participants)
        self.kept: set[int] = set()
        self._messages = messages
        self._disturbed_until = 0.0
        messages.on_started.append(self._term_started)

    def fault_began(self, fault: BegunFault) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._disturbed_until = max(self._disturbed_until, fault.ends_at + self.SETTLING)

    def stopped(self, host: Host, description: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._disturbed_until = max(self._disturbed_until, self.network.elapsed + self.SETTLING)

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        match event:
            case MessagesPublished(messages=pairs) if self.by_host[host].kept:
                for _, sequence in pairs:
                    self.kept.add(sequence)
                    if self._messages.is_skipped(sequence):
                        self.violated(f"{sequence} was acknowledged as kept, but is not part of the stream", host)
            case MessagesLost(first, last) if self.by_host[host].must_follow:
                if self.network.elapsed > self._disturbed_until:
                    self._check_lost(host, first, last)

    def _check_lost(self, host: Host, first: int, last: int) -> None:
        for sequence in self.kept.intersection(range(first, last + 1)):
            self.violated(f"{sequence} was acknowledged as kept, but reported as lost without a fault", host)

    def _term_started(self, start: TermStart, leader: MemberHost) -> None:
        lost = min(self.kept.intersection(start.skipped), default=None)
        if lost is not None:
            what = f"{lost} was acknowledged as kept, but term {start.term} begins without it"
            self.violated(what, leader.host)


def _is_given_up(number: int, start: TermStart, leader: MemberHost) -> bool:
    """Return whether the group had already recorded that a number is in an earlier seam."""
    seams = leader.node.authority.seams
    return any(seam.held_up_to < number < seam.first for seam in seams if seam.first < start.first)


def _is_exact(term: int, leader: MemberHost) -> bool:
    """Return whether the leader before ``term`` handed over."""
    log = leader.node.raft.log
    entries = log.entries_from(log.snapshot_index + 1)
    before = [entry for entry in entries if entry.kind is EntryKind.DATA and entry.term < term]
    return bool(before) and before[-1].content.exact


def _is_fast(link: Link) -> bool:
    latency = link.delay + link.jitter
    clean = not (link.loss or link.tail or link.reordering or link.corruption or link.truncation)
    return link.up and clean and latency <= FAST_LINK and link.bandwidth is None and link.mtu is None


def _decode_extension(packet: SimPacket) -> Any:
    if packet.damaged or packet.truncated:
        return None
    try:
        return decode(packet.data)
    except MalformedPacket:
        return None
