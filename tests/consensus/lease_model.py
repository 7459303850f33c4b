"""Model of a group with leases whose clocks drift, and whose messages, processes and members come and go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any, NamedTuple

from fyrehose_twisted.consensus.lease import LeaderLease
from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember, RaftRole
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    LogEntry,
    MemberId,
    Membership,
    RequestVote,
    RequestVoteReply,
    Snapshot,
    StartElection,
)
from fyrehose_twisted.consensus.timers import RaftTimers

# Elections come as early, and leases are renewed as often, as is allowed: so broken promises show.
TIMERS = RaftTimers(
    heartbeat=0.2,
    election=(0.9, 0.95),
    fast_election=(0.005, 0.05),
    retry=(0.05, 0.2),
    check_quorum=0.9,
    stickiness=0.9,
    commit_notice=0.0005,
)
LEASE = 0.8
ROUND_INTERVAL = 0.05


class LeaseRound(NamedTuple):
    term: int
    number: int


class LeaseReply(NamedTuple):
    term: int
    number: int


class Host:
    """One member: its process, its disk, and its clock."""

    def __init__(self, me: MemberId, group: LeaseModel, rate: float, may_lead: bool) -> None:
        self.me = me
        self.group = group
        self.rate = rate
        self.may_lead = may_lead
        self.up = True
        self.paused_until = -inf
        self.links: set[MemberId] = set()
        self.stored: tuple[int, MemberId | None, int, list[LogEntry]] = 0, None, 1, []
        self.leases = 0
        self.start(-inf)

    @property
    def now(self) -> float:
        return self.group.real * self.rate

    def start(self, quiet_until: float) -> None:
        group, (term, voted_for, commit, entries) = self.group, self.stored
        log = RaftLog(lambda entry: 1)
        self.raft = raft = RaftMember(
            self.me,
            Random(group.rng.getrandbits(32)),
            self.now,
            log,
            lambda: Snapshot(0, 0, b""),
            term=term,
            timers=TIMERS,
            quiet_until=quiet_until,
            may_lead=self.may_lead,
        )
        raft.install_snapshot(1, 0, group.first_membership)
        log.append(entries)
        raft.voted_for = voted_for
        raft.restore(commit)
        self.lease = LeaderLease(LEASE)
        self.led_term = 0
        self.round_at = inf
        self.links.clear()

    @property
    def has_lease(self) -> bool:
        raft = self.raft
        return (
            self.up
            and raft.is_leader
            and raft.term == self.led_term
            and raft.membership is not None
            and self.now < self.lease.until(raft.membership, self.me)
        )

    def process(self, step: Callable[[], object]) -> None:
        """Carry out a step, make its consequences durable, and send what depends on it."""
        step()
        raft = self.raft
        if raft.is_leader and self.led_term != raft.term:
            self.led_term, self.round_at = raft.term, self.now
            self.lease.reset()
        if raft.is_leader and self.now >= self.round_at:
            number = self.lease.start_round(self.now)
            self.round_at = self.now + ROUND_INTERVAL
            for member in raft.peers:
                self.group.send(self, member, LeaseRound(raft.term, number))
        raft.flush(self.now)
        raft.committed.clear()
        self.stored = raft.term, raft.voted_for, raft.commit_index, raft.log.entries_from(2)
        for receiver, message in raft.outbox:
            self.group.send(self, receiver, message)
        raft.outbox.clear()
        self.group.tick_later(self)

    def tick(self) -> None:
        if self.raft.next_deadline() <= self.now:
            self.raft.tick(self.now)

    def receive(self, sender: MemberId, message: Any) -> None:
        raft, now = self.raft, self.now
        match message:
            case AppendEntries():
                raft.append_entries_received(message, sender, now)
            case AppendEntriesReply():
                raft.append_entries_reply_received(message, sender, now)
            case RequestVote() | ForcedRequestVote():
                raft.request_vote_received(message, sender, now)
            case RequestVoteReply():
                raft.request_vote_reply_received(message, sender, now)
            case StartElection():
                raft.start_election_received(message, sender, now)
            case LeaseRound(term, number):
                if raft.lease_round_received(term, sender, now):
                    self.group.send(self, sender, LeaseReply(term, number))
            case LeaseReply(term, number) if raft.is_leader and term == raft.term:
                self.round_answered(sender, number)

    def round_answered(self, sender: MemberId, number: int) -> None:
        self.lease.round_answered(sender, number)

    def transfer(self, target: MemberId) -> None:
        """Hand over, as a user has to: the lease first."""
        if self.raft.is_leader:
            self.give_up_lease()
            if self.raft.transfer(target, self.now):
                self.group.counts["transfers"] += 1

    def give_up_lease(self) -> None:
        self.lease.give_up()


class LeaseModel:
    """Group of hosts in real time.

    :param seed: seed of everything that happens.
    :param drift: ratio of the fastest clock's rate to the slowest one's.
    :ivar counts: how often things happened, so that a test can see that they did.
    """

    host_type: type[Host] = Host
    quiet = TIMERS.stickiness
    believes_silence = False

    def __init__(self, seed: int, drift: float = 1.099) -> None:
        self.rng = rng = Random(seed)
        self.real = 1000.0
        self.counts = dict.fromkeys(("leases", "transfers", "crashes", "changes", "leaders"), 0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        size = rng.choice((3, 3, 3, 5))
        members = [MemberId(name, 1) for name in "ABCDE"[:size]]
        self.first_membership = Membership(tuple((one, None) for one in members))
        self.loss = rng.choice((0.0, 0.02, 0.2))
        self.slow = rng.choice((0.0, 0.02, 0.1))
        self.faults = rng.choice((0.1, 1.0, 4.0))
        witness = rng.choice((None, members[-1]))
        rates = [1.0, drift, *(rng.uniform(1.0, drift) for _ in members[2:])]
        rng.shuffle(rates)
        self.hosts = {
            one: self.host_type(one, self, rate, one != witness) for one, rate in zip(members, rates, strict=True)
        }
        self.cut: set[tuple[MemberId, MemberId]] = set()
        self._leaders: dict[int, MemberId] = {}
        self._holder: MemberId | None = None
        for host in self.hosts.values():
            self._connect(host)
            self.tick_later(host)
        self._later(rng.expovariate(self.faults), self._fault)
        self._later(rng.uniform(2.0, 4.0), self._isolate_leader)

    # Time

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        heappush(self._events, (self.real + seconds, next(self._order), step))

    def run(self, seconds: float) -> None:
        """Let time pass, and check after each event that at most one member has a lease.

        Between events leases only end, so this suffices.
        """
        end = self.real + seconds
        while self._events[0][0] < end:
            self.real, _, step = heappop(self._events)
            step()
            self._check()

    def tick_later(self, host: Host) -> None:
        """Tick a host when it is due, or a bit later."""
        raft = host.raft
        due = min(raft.next_deadline(), host.round_at if raft.is_leader else inf)
        late = self.rng.choice((0.0, 0.0, 0.01, 0.1))
        self._later(max(0.0, (due - host.now) / host.rate) + 1e-6 + late, partial(self._tick, host, raft, due))

    def _tick(self, host: Host, raft: RaftMember, due: float) -> None:
        # An input since then has planned another tick.
        if host.up and host.raft is raft and min(raft.next_deadline(), host.round_at if raft.is_leader else inf) == due:
            self._process(host, host.tick)

    def _process(self, host: Host, step: Callable[[], object]) -> None:
        raft = host.raft
        if host.paused_until > self.real:
            self._later(host.paused_until - self.real, partial(self._process_if_same, host, raft, step))
        else:
            self._process_if_same(host, raft, step)

    def _process_if_same(self, host: Host, raft: RaftMember, step: Callable[[], object]) -> None:
        if host.up and host.raft is raft:
            host.process(step)

    # Messages

    def send(self, sender: Host, receiver: MemberId, message: Any) -> None:
        rng = self.rng
        if (sender.me, receiver) in self.cut or rng.random() < self.loss:
            return
        delay = rng.uniform(0.0, 2.0) if rng.random() < self.slow else rng.uniform(0.0002, 0.005)
        self._later(delay, partial(self._deliver, sender.me, self.hosts[receiver], message))

    def _deliver(self, sender: MemberId, host: Host, message: Any) -> None:
        if host.up:
            self._process(host, partial(host.receive, sender, message))

    def _connect(self, host: Host) -> None:
        for other in self.hosts.values():
            if other is not host:
                host.raft.replication.follower_connected(other.me)
                other.raft.replication.follower_connected(host.me)

    # Faults

    def _fault(self) -> None:
        rng = self.rng
        self._later(rng.expovariate(self.faults), self._fault)
        host = rng.choice(list(self.hosts.values()))
        if rng.random() < 0.6:
            host = next((one for one in self.hosts.values() if one.raft.is_leader), host)
        if host.up:
            rng.choice((self._crash, self._pause, self._partition, self._transfer, self._transfer, self._change))(host)

    def _isolate_leader(self) -> None:
        """Cut off a leader with a lease from one member after the other, while some restart."""
        rng = self.rng
        self._later(rng.uniform(2.0, 4.0), self._isolate_leader)
        for other in self.hosts.values():
            if self._holder not in (None, other.me):
                self._later(rng.uniform(0.0, 0.8), partial(self._cut, self.hosts[self._holder], other, 1.5))
                if rng.random() < 0.4:
                    self._later(rng.uniform(0.0, 1.0), partial(self._crash, other, 0.01))

    def _cut(self, host: Host, other: Host, seconds: float) -> None:
        for way in ((host.me, other.me), (other.me, host.me)):
            self.cut.add(way)
            self._later(seconds, partial(self.cut.discard, way))

    def _crash(self, host: Host, seconds: float | None = None) -> None:
        if not host.up:
            return
        host.up = False
        self.counts["crashes"] += 1
        self._later(seconds or self.rng.choice((0.01, 0.1, 0.5, 2.0)), partial(self._restart, host))
        for other in self.hosts.values():
            self._later(self.rng.uniform(0.0, 0.3), partial(self._notice, other, host))

    def _notice(self, other: Host, dead: Host) -> None:
        """Tell a member of a dead leader, as long as it is certainly dead."""
        is_dead = not dead.up or self.believes_silence
        if is_dead and other.up and other.paused_until <= self.real and other.raft.leader == dead.me:
            other.process(lambda: other.raft.leader_lost(other.now))

    def _restart(self, host: Host) -> None:
        host.up = True
        host.start(host.now + self.quiet)
        self._connect(host)
        self.tick_later(host)

    def _pause(self, host: Host) -> None:
        host.paused_until = self.real + self.rng.choice((0.1, 0.5, 1.0, 2.0))
        if self.believes_silence:
            for other in self.hosts.values():
                self._later(0.05, partial(self._notice, other, host))

    def _partition(self, host: Host) -> None:
        rng = self.rng
        seconds, likely = rng.choice((0.1, 0.5, 1.2, 3.0)), rng.choice((0.5, 1.0))
        for other in self.hosts:
            for way in ((host.me, other), (other, host.me)):
                if other != host.me and rng.random() < likely:
                    self.cut.add(way)
                    self._later(seconds, partial(self.cut.discard, way))

    def _transfer(self, host: Host) -> None:
        target = self.rng.choice([one for one in self.hosts if one != host.me])
        self._process(host, partial(host.transfer, target))

    def _change(self, host: Host) -> None:
        raft = host.raft
        if not raft.has_committed_in_term or raft.membership_change_pending or raft.membership is None:
            return
        other = self.rng.choice([one for one in self.hosts if one != host.me])
        if other in raft.members:
            members = tuple(pair for pair in raft.membership.members if pair[0] != other)
        else:
            members = (*raft.membership.members, (other, None))
        if len(members) > 1:
            self.counts["changes"] += 1
            self._process(host, partial(self._propose, host, Membership(members), other))

    def _propose(self, host: Host, membership: Membership, other: MemberId) -> None:
        raft = host.raft
        if raft.has_committed_in_term and not raft.membership_change_pending:
            raft.replication.add_followers([other], host.now)
            raft.propose_membership(membership)
            raft.propose(LogEntry(raft.term, EntryKind.DATA, None))

    # Invariants

    def _check(self) -> None:
        holders = [host for host in self.hosts.values() if host.has_lease]
        assert len(holders) < 2, f"{' and '.join(str(host.me) for host in holders)} have leases at {self.real}"
        for host in self.hosts.values():
            if host.raft.role is RaftRole.LEADER:
                assert self._leaders.setdefault(host.raft.term, host.me) == host.me, "two lead in one term"
        self.counts["leaders"] = len(self._leaders)
        holder = holders[0].me if holders else None
        self.counts["leases"] += holder not in (None, self._holder)
        self._holder = holder
