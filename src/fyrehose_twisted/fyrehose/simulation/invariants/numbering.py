"""Invariants of the numbers that a group of backbones gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

from fyrehose_twisted.consensus.messages import EntryKind, MemberId
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.node.member.persistent_state import MemberCheckpoint, MemberState, decode_group
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    DELIVER_KINDS,
    PUSH_KINDS,
    ClientInvariant,
    NumberedMessages,
    parse_deliver,
)
from fyrehose_twisted.fyrehose.simulation.member_hosts import Group, MemberHost
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Push
from fyrehose_twisted.fyrehose.wire.term_start import TermStart, decode_term_start
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import SimPacket


class Numbering(NamedTuple):
    """A number that a member has given, as its state file records before the number is sent."""

    sequence: int
    term: int
    member: MemberHost
    at: float
    """True time."""


class GroupMessages(NumberedMessages):
    """A number is given once, by one member. It never has two contents, whichever hosts send it. Each content was
    pushed, or starts a term.

    :ivar given: numbers that were given, whether or not they were sent.
    :ivar last_given: last number of each term.
    :ivar starts: starts of terms, by the number of the marker.
    :ivar on_given: called with each number that is given.
    :ivar on_started: called with each start of a term and its leader, when it is first sent.
    """

    participants: Group

    sent_kinds = DELIVER_KINDS
    arrived_kinds = PUSH_KINDS

    def __init__(self, participants: Group) -> None:
        super().__init__(participants)
        self.given: dict[int, Numbering] = {}
        self.last_given: dict[int, int] = {}
        self.starts: dict[int, TermStart] = {}
        self.on_given: list[Callable[[Numbering], None]] = []
        self.on_started: list[Callable[[TermStart, MemberHost], None]] = []
        self._published: dict[Host, tuple[int, int]] = {}
        self._pushed: set[bytes] = set()
        self._others = RangeSet()
        """Markers, and numbers that later terms began without."""

    def is_deliverable(self, sequence: int) -> bool:
        """See :class:`~fyrehose_twisted.fyrehose.simulation.invariants.delivery.NumberedMessages`."""
        return sequence not in self._others

    def deliverable(self, first: int, last: int) -> Iterator[int]:
        """See :class:`~fyrehose_twisted.fyrehose.simulation.invariants.delivery.NumberedMessages`."""
        for start, end in self._others.gaps(first, last):
            yield from range(start, end + 1)

    def is_skipped(self, sequence: int) -> bool:
        """Return whether a later term began without this number."""
        return sequence in self._others and sequence not in self.starts

    def persisted(self, host: Host, state: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        member = self.participants.member_of(host)
        if member is None or not isinstance(state, MemberCheckpoint) or state.sequence is None:
            return
        boots, before = self._published.get(host, (0, 0))
        published, last = member.node.backbone.counters.published, state.sequence.last
        self._published[host] = host.boots, published
        for sequence in range(last - published + (before if boots == host.boots else 0) + 1, last + 1):
            self._number_given(Numbering(sequence, member.node.raft.term, member, self.network.now))

    def _number_given(self, new: Numbering) -> None:
        sequence, term, member, _ = new
        known = self.given.get(sequence)
        if known is not None:
            what = f"{sequence} was given in term {term}, but had been given in term {known.term}"
            self.violated(what, member.host, known.member.host)
        self.given[sequence] = new
        self.last_given[term] = max(self.last_given.get(term, 0), sequence)
        for observe in self.on_given:
            observe(new)

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        source, (sequence, data) = packet.source, parse_deliver(packet.data)
        known = self.truth.get(sequence)
        if known is not None and known != data:
            self.violated(f"DELIVER {sequence} was sent with {data!r} after {known!r}", source)
        if known is None:
            self._first_sent(source, sequence, data)

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if self.participants.is_backbone(host):
            try:
                push = decode(packet.data, truncated=packet.truncated)
            except MalformedPacket:
                return
            if isinstance(push, Push):
                self._pushed.add(push.data)

    def _first_sent(self, source: Host, sequence: int, data: bytes) -> None:
        given = self.given.get(sequence)
        if given is None or given.member.host is not source:
            by = "no member" if given is None else given.member.name
            self.violated(f"DELIVER {sequence} was sent with {data!r}, but {by} has recorded it as given", source)
        start = decode_term_start(sequence, data)
        if start is None and data not in self._pushed:
            self.violated(f"DELIVER {sequence} was sent with {data!r}, which no client pushed", source)
        self.truth[sequence] = data
        self.last = max(self.last, sequence)
        if start is not None:
            if start.term != given.term:
                self.violated(f"DELIVER {sequence} starts term {start.term} in term {given.term}", source)
            self.starts[sequence] = start
            for observe in self.on_started:
                observe(start, given.member)
            self._others.add(start.held_up_to + 1, sequence)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`. Messages that are held, but were not sent since."""
        for one in self.participants.clients:
            if not one.has_started:
                continue
            store = one.application.store
            for sequence, data in self.truth.items():
                held = store.get(sequence)
                if held is not None and held != data:
                    self.violated(f"{sequence} is held as {held!r}, but was sent as {data!r}", one.host)


class _GroupInvariant(ClientInvariant):
    """Base of the invariants that check each new number."""

    participants: Group

    def __init__(self, participants: Group, messages: GroupMessages) -> None:
        super().__init__(participants)
        self.messages = messages
        messages.on_given.append(self.number_given)

    def number_given(self, new: Numbering) -> None:
        """Check a number that is given."""


class OneMemberNumbers(_GroupInvariant):
    """Only a leader with a lease gives numbers, and none after a leader of a later term gave one."""

    name: ClassVar[str] = "one member numbers at a time"

    def __init__(self, participants: Group, messages: GroupMessages) -> None:
        super().__init__(participants, messages)
        self._latest: Numbering | None = None

    def number_given(self, new: Numbering) -> None:
        """See :class:`_GroupInvariant`."""
        member, host, latest = new.member, new.member.host, self._latest
        if not member.node.leads:
            self.violated(f"{new.sequence} was numbered in term {new.term} without leading", host)
        if host.now >= member.node.authority.lease_until:
            late = host.now - member.node.authority.lease_until
            self.violated(f"{new.sequence} was numbered {late:.6f} s after the lease had ended", host)
        if latest is not None and new.term < latest.term:
            what = f"{new.sequence} was numbered in term {new.term} after {latest.sequence} in term {latest.term}"
            self.violated(what, host, latest.member.host)
        if latest is not None and new.term == latest.term and latest.member is not member:
            self.violated(f"{new.sequence} was numbered in term {new.term}, which another member led", host)
        self._latest = new


class BoundsDurableFirst(_GroupInvariant):
    """A number does not exceed a bound that a majority made durable in its term, and is above all numbers of earlier
    terms."""

    name: ClassVar[str] = "bounds are durable first"

    def __init__(self, participants: Group, messages: GroupMessages) -> None:
        super().__init__(participants, messages)
        self._durable: defaultdict[MemberId, dict[int, int]] = defaultdict(dict)
        self._granted: dict[int, int] = {}
        self._ranges: dict[int, tuple[int, int]] = {}

    def persisted(self, host: Host, state: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(state, MemberCheckpoint) and state.member is not None:
            self._record(state.member)
            self._grant()

    def number_given(self, new: Numbering) -> None:
        """See :class:`_GroupInvariant`."""
        sequence, term, member, _ = new
        self._grant()
        granted = self._granted.get(term, 0)
        if sequence > granted:
            self.violated(f"{sequence} was numbered in term {term}, but only {granted} is durable", member.host)
        lowered = _latest_bound(member, term)
        if sequence > lowered:
            self.violated(f"{sequence} was numbered, although the bound had been lowered to {lowered}", member.host)
        for other, (first, last) in self._ranges.items():
            if other < term and sequence <= last:
                self.violated(f"{sequence} was numbered in term {term}, but term {other} ended at {last}", member.host)
            if other > term and sequence >= first:
                self.violated(f"{sequence} was numbered in term {term}, but term {other} began at {first}", member.host)
        first, last = self._ranges.get(term, (sequence, sequence))
        self._ranges[term] = min(first, sequence), max(last, sequence)

    def _record(self, state: MemberState) -> None:
        durable = self._durable[state.member]
        for entry in state.entries:
            if entry.kind is EntryKind.DATA:
                durable[entry.term] = max(durable.get(entry.term, 0), entry.content.bound)
        if state.snapshot.index:
            bound, term = decode_group(state.snapshot.data).bounds.bound, state.snapshot.term
            durable[term] = max(durable.get(term, 0), bound)

    def _grant(self) -> None:
        """Record up to which number the leaders may go."""
        for member in self.participants.members:
            if not member.host.up or not member.node.leads or member.node.raft.membership is None:
                continue
            term, voters = member.node.raft.term, [one for one, _ in member.node.raft.membership.members]
            bounds = sorted((self._durable[voter].get(term, 0) for voter in voters), reverse=True)
            self._granted[term] = max(self._granted.get(term, 0), bounds[len(voters) // 2])


def _latest_bound(member: MemberHost, term: int) -> int:
    """Return the bound of the latest entry of ``term`` in the log of a member."""
    log, state = member.node.raft.log, member.state
    latest = 0 if state is None or not state.snapshot.index else decode_group(state.snapshot.data).bounds.bound
    for entry in log.entries_from(log.snapshot_index + 1):
        if entry.kind is EntryKind.DATA and entry.term == term:
            latest = entry.content.bound
    return latest
