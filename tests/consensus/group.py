"""Raft members with controlled connections and a controlled clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import combinations
from random import Random

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember, RaftRole
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RaftMessage,
    RequestVote,
    RequestVoteReply,
    Snapshot,
    StartElection,
)

A, B, C, D, E = (MemberId(name, number) for number, name in enumerate("ABCDE", 1))
HERE = ("10.0.0.1", 7_878)


def view_of(*members: MemberId) -> Membership:
    return Membership(tuple((one, HERE) for one in sorted(members)))


def entry(term: int, data: bytes = b"x") -> LogEntry:
    return LogEntry(term, EntryKind.DATA, data)


def entry_size(entry: LogEntry) -> int:
    return 460 + (len(entry.content) if entry.kind is EntryKind.DATA else 0)


class Group:
    """Raft members with controlled connections."""

    def __init__(
        self,
        *members: MemberId,
        votes: tuple[MemberId, ...] | None = None,
        witness: MemberId | None = None,
        seed: int = 1,
    ) -> None:
        self.now = 100.0
        self.view = view_of(*(members if votes is None else votes))
        self.orders: dict[MemberId, RaftMember] = {}
        self.applied: dict[MemberId, list[tuple[int, LogEntry]]] = {one: [] for one in members}
        self.state: dict[MemberId, bytearray] = {one: bytearray() for one in members}
        self.dump = b"s" * 100_000
        self.cut: set[frozenset[MemberId]] = set()
        self.lines: dict[tuple[MemberId, MemberId], deque[RaftMessage]] = {}
        self.leaders: dict[int, MemberId] = {}
        self.sent: list[tuple[MemberId, MemberId, RaftMessage]] = []
        self.deaf: set[MemberId] = set()
        for number, one in enumerate(members):
            order = RaftMember(
                one,
                Random(seed + number),
                self.now,
                RaftLog(entry_size),
                self.snapshot_of(one),
                may_lead=one != witness,
            )
            order.install_snapshot(1, 0, self.view)
            self.orders[one] = order
        for one, other in combinations(members, 2):
            self.open(one, other)

    def snapshot_of(self, one: MemberId) -> Callable[[], Snapshot]:
        def snapshot() -> Snapshot:
            order = self.orders[one]
            return Snapshot(order.commit_index, order.log.term_at(order.commit_index) or 0, self.dump)

        return snapshot

    def __getitem__(self, one: MemberId) -> RaftMember:
        return self.orders[one]

    def open(self, one: MemberId, other: MemberId) -> None:
        """Connect two members."""
        self.cut.discard(frozenset((one, other)))
        for sender, receiver in ((one, other), (other, one)):
            self.lines[sender, receiver] = deque()
            self.orders[sender].replication.follower_connected(receiver)

    def close(self, one: MemberId, *others: MemberId) -> None:
        """Disconnect two members, losing messages in flight."""
        for other in others:
            self.cut.add(frozenset((one, other)))
            for sender, receiver in ((one, other), (other, one)):
                self.lines[sender, receiver].clear()
                self.orders[sender].replication.follower_disconnected(receiver)

    def collect(self) -> None:
        """Send outgoing messages and apply committed entries."""
        for one, order in self.orders.items():
            order.flush(self.now)
            self.applied[one].extend(order.committed)
            order.committed.clear()
            out = list(order.outbox)
            order.outbox.clear()
            for receiver, message in out:
                self.sent.append((one, receiver, message))
                if frozenset((one, receiver)) not in self.cut and receiver in self.orders:
                    self.lines[one, receiver].append(message)
            if order.role is RaftRole.LEADER:
                assert self.leaders.setdefault(order.term, one) == one, f"two lead in term {order.term}"

    def deliver(self, sender: MemberId, receiver: MemberId) -> None:
        """Deliver the next message of a connection."""
        message = self.lines[sender, receiver].popleft()
        order = self.orders[receiver]
        if isinstance(message, AppendEntries):
            order.append_entries_received(message, sender, self.now)
        elif isinstance(message, AppendEntriesReply):
            order.append_entries_reply_received(message, sender, self.now)
        elif isinstance(message, RequestVote | ForcedRequestVote):
            order.request_vote_received(message, sender, self.now)
        elif isinstance(message, RequestVoteReply):
            order.request_vote_reply_received(message, sender, self.now)
        elif isinstance(message, StartElection):
            order.start_election_received(message, sender, self.now)
        elif isinstance(message, InstallSnapshot):
            if order.install_snapshot_received(message.term, sender, self.now):
                self.take_state(message, sender, receiver)
        elif isinstance(message, InstallSnapshotReply):
            order.install_snapshot_reply_received(message, sender, self.now)
        self.check()

    def take_state(self, message: InstallSnapshot, sender: MemberId, receiver: MemberId) -> None:
        order, data = self.orders[receiver], self.state[receiver]
        if message.offset == 0:
            data.clear()
        if message.offset == len(data):
            data += message.data
        taken = len(data)
        if taken >= message.total:
            assert bytes(data) == self.dump
            if message.index > order.commit_index:
                order.install_snapshot(message.index, message.index_term, self.orders[sender].membership)
                self.applied[receiver] = list(self.applied[sender][: message.index - 1])
            data.clear()
        order.outbox.append((sender, InstallSnapshotReply(order.term, message.index, taken)))

    def pump(self) -> None:
        """Deliver all messages in flight."""
        for _ in range(10_000):
            self.collect()
            waiting = [line for line, messages in self.lines.items() if messages]
            if not waiting:
                return
            for line in waiting:
                while self.lines[line]:
                    self.deliver(*line)
        raise AssertionError("they never stop")

    def pass_time(self, seconds: float, *only: MemberId) -> None:
        """Advance the clock and tick some members, by default all."""
        end = self.now + seconds
        members = [one for one in only or self.orders if one not in self.deaf]
        while True:
            at = min(self.orders[one].next_deadline() for one in members)
            if at > end:
                self.now = end
                return
            self.now = max(self.now, at)
            for one in members:
                if self.orders[one].next_deadline() <= self.now:
                    self.orders[one].tick(self.now)
            self.pump()

    def elect(self, one: MemberId) -> None:
        """Let a member start an election before the others."""
        order = self.orders[one]
        for other in self.orders.values():
            other.leader_lost(self.now)
        self.now += 0.2
        order.tick(self.now)
        self.pump()
        assert order.is_leader

    def log(self, one: MemberId) -> list[LogEntry]:
        log = self.orders[one].log
        return log.entries_from(log.snapshot_index + 1)

    def check(self) -> None:
        """Check Raft's safety: committed entries agree everywhere, and every new leader has them."""
        longest: list[tuple[int, LogEntry]] = max(self.applied.values(), key=len)
        for one, applied in self.applied.items():
            assert applied == longest[: len(applied)], f"{one} has something else committed"
        for one, other in combinations(self.orders, 2):
            a, b = self.orders[one].log, self.orders[other].log
            for index in range(min(a.last_index, b.last_index), max(a.snapshot_index, b.snapshot_index), -1):
                if a.term_at(index) == b.term_at(index):
                    low = max(a.snapshot_index, b.snapshot_index) + 1
                    assert [a.entry_at(at) for at in range(low, index)] == [b.entry_at(at) for at in range(low, index)]
                    break


def events(group: Group, one: MemberId) -> list[bytes]:
    return [entry.content for _, entry in group.applied[one] if entry.kind is EntryKind.DATA]
