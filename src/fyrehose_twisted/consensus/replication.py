"""Pipelined log replication from a leader to its followers (Raft, section 5.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RaftMessage,
    Snapshot,
)
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS, RaftTimers

MAX_IN_FLIGHT_BYTES = 2**20
"""Bytes of entries in flight to one follower."""
MAX_APPEND_BYTES = 57_344
"""Bytes of entries in one :class:`AppendEntries`."""
SNAPSHOT_CHUNK_BYTES = 49_152
"""Bytes of a snapshot in one :class:`InstallSnapshot`."""


class FollowerProgress:
    """Replication state of one follower, as the leader knows it.

    :ivar next_index: index of the next entry to send.
    :ivar match_index: index up to which its log matches the leader's.
    :ivar heard_at: time of its last reply.
    :ivar connected: whether requests can be sent to it.
    :ivar blocked: whether its connection is under backpressure.
    :ivar probing: whether the index at which the logs match is still unknown.
    :ivar sent_commit_index: commit index last sent to it.
    :ivar unacknowledged: last index and size of each batch in flight.
    :ivar snapshot: snapshot being sent, if any.
    """

    __slots__ = (
        "blocked",
        "connected",
        "heard_at",
        "in_flight_bytes",
        "match_index",
        "next_index",
        "probing",
        "sent_commit_index",
        "snapshot",
        "snapshot_offset",
        "unacknowledged",
    )

    def __init__(self, next_index: int, now: float) -> None:
        self.next_index = next_index
        self.match_index = 0
        self.heard_at = now
        self.connected = False
        self.blocked = False
        self.sent_commit_index = 0
        self.probing = True
        self.in_flight_bytes = 0
        self.unacknowledged: deque[tuple[int, int]] = deque()
        self.snapshot: Snapshot | None = None
        self.snapshot_offset = 0

    def restart_at(self, next_index: int) -> None:
        """Continue at ``next_index``, in probing mode."""
        self.next_index = next_index
        self.probing = True
        self.in_flight_bytes = 0
        self.sent_commit_index = 0
        self.unacknowledged.clear()
        self.snapshot = None


class LogReplication:
    """Sender side of log replication: the progress of each follower, and the messages to send next.

    The user reports connections. It calls :meth:`follower_connected` for each new connection on which messages can be
    sent, even if the loss of the previous one was not reported, and :meth:`follower_disconnected` for each lost one.
    Without the first call, a follower gets nothing. Each call resends what the previous connection may have lost.

    Messages may be lost, repeated and reordered. Entries are pipelined. A follower answers a heartbeat that does not
    match its log with the index to continue at, so an unnoticed loss is repaired within two heartbeats.

    :param log: the leader's log.
    :param outbox: list to which messages are appended, each with its receiver.
    :param snapshot: returns a snapshot of the applied state.
    :ivar term: the leader's term.
    :ivar commit_index: the leader's commit index.
    :ivar commit_notice_at: time at which an advanced commit index is sent; infinity if none is due.
    :ivar progress: followers, voting and non-voting.
    """

    def __init__(
        self,
        log: RaftLog,
        outbox: list[tuple[MemberId, RaftMessage]],
        snapshot: Callable[[], Snapshot],
        timers: RaftTimers = DEFAULT_TIMERS,
    ) -> None:
        self.term = 0
        self.commit_index = 0
        self.commit_notice_at = inf
        self.progress: dict[MemberId, FollowerProgress] = {}
        self._log = log
        self._outbox = outbox
        self._snapshot = snapshot
        self._commit_notice = timers.commit_notice
        self._last_append: tuple[tuple[int, int, int, int], AppendEntries] | None = None
        self._connected: set[MemberId] = set()
        self._blocked: set[MemberId] = set()

    def start(self, term: int, members: Iterable[MemberId], now: float) -> None:
        """Start replication in a new term. The first entry sent to ``members`` is the next one appended."""
        self.term = term
        self.progress = {member: self._new_progress(member, now) for member in members}

    def stop(self) -> None:
        """Stop replication: this node no longer leads."""
        self.progress = {}
        self.commit_notice_at = inf

    # Connections

    def follower_connected(self, member: MemberId) -> None:
        """Start sending to ``member``, whose connection is ready."""
        self._connected.add(member)
        self._blocked.discard(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.connected, progress.blocked = True, False
            progress.restart_at(progress.match_index + 1 if progress.match_index else self._log.last_index + 1)
            self._probe(member, progress)

    def follower_disconnected(self, member: MemberId) -> None:
        """Stop sending to ``member``, whose connection is lost."""
        self._connected.discard(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.connected = False

    def set_blocked(self, member: MemberId, blocked: bool) -> None:
        """Pause or resume entries to ``member``, as backpressure of its connection demands."""
        (self._blocked.add if blocked else self._blocked.discard)(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.blocked = blocked

    # Followers

    def add_followers(self, members: Iterable[MemberId], now: float) -> None:
        """Replicate to more followers."""
        for member in members:
            if member not in self.progress:
                progress = self.progress[member] = self._new_progress(member, now)
                self._probe(member, progress)

    def quorum_index(self, membership: Membership, me: MemberId) -> int:
        """Return the index up to which a quorum has the log of ``me``, the leader."""
        progress, last = self.progress, self._log.last_index
        indexes = sorted(
            last if member == me else progress[member].match_index if member in progress else 0
            for member, _ in membership.members
        )
        return indexes[len(indexes) - membership.quorum]

    def seconds_since_quorum(self, membership: Membership, me: MemberId, now: float) -> float:
        """Return the seconds since a quorum, of which ``me`` is one, was last heard."""
        if membership.quorum == 1:
            return 0.0
        progress = self.progress
        silences = sorted(
            now - progress[member].heard_at if member in progress else inf
            for member, _ in membership.members
            if member != me
        )
        return silences[membership.quorum - 2]

    def _new_progress(self, member: MemberId, now: float) -> FollowerProgress:
        progress = FollowerProgress(self._log.last_index + 1, now)
        progress.connected, progress.blocked = member in self._connected, member in self._blocked
        return progress

    # Replies

    def append_entries_reply_received(self, message: AppendEntriesReply, sender: MemberId, now: float) -> bool:
        """Process a reply; return whether the follower's match index advanced."""
        progress = self.progress.get(sender)
        if progress is None:
            return False
        progress.heard_at = now
        if not message.taken:
            if progress.probing or message.index >= progress.match_index:
                progress.restart_at(min(message.index, self._log.last_index) + 1)
            return False
        progress.probing = False
        in_flight = progress.unacknowledged
        while in_flight and in_flight[0][0] <= message.index:
            progress.in_flight_bytes -= in_flight.popleft()[1]
        if message.index <= progress.match_index:
            return False
        progress.match_index = message.index
        progress.next_index = max(progress.next_index, message.index + 1)
        return True

    def install_snapshot_reply_received(self, message: InstallSnapshotReply, sender: MemberId, now: float) -> None:
        """Process a reply to a snapshot chunk."""
        progress = self.progress.get(sender)
        if progress is None or progress.snapshot is None or message.index != progress.snapshot.index:
            return
        progress.heard_at = now
        if message.offset >= len(progress.snapshot.data):
            progress.match_index = max(progress.match_index, message.index)
            progress.restart_at(message.index + 1)
        elif message.offset != progress.snapshot_offset or not message.offset:
            progress.snapshot_offset = message.offset
            self._send_snapshot(sender, progress)

    # Sending

    def flush(self) -> None:
        """Send pending entries to all followers."""
        last = self._log.last_index
        for member, progress in self.progress.items():
            if progress.next_index <= last and progress.connected and not progress.blocked:
                self._send_entries(member, progress)

    def send_heartbeats(self) -> None:
        """Send a heartbeat to each follower; repeat the current chunk where a snapshot is being sent."""
        for member, progress in self.progress.items():
            if not progress.connected or progress.blocked:
                continue
            if progress.snapshot is not None:
                self._send_snapshot(member, progress)
                continue
            if progress.probing:
                progress.unacknowledged.clear()
                progress.in_flight_bytes = 0
            self._send_append(member, progress, [])

    def schedule_commit_notice(self, now: float) -> None:
        """Send the advanced commit index soon, unless entries carry it before."""
        if self.commit_notice_at == inf:
            self.commit_notice_at = now + self._commit_notice

    def tick(self, now: float) -> None:
        """Send the commit index if a notice is due."""
        if now >= self.commit_notice_at:
            self.commit_notice_at = inf
            self.broadcast_commit()

    def broadcast_commit(self) -> None:
        """Send the commit index to each follower that does not have it."""
        for member in self.progress:
            self.send_commit(member)

    def send_commit(self, member: MemberId) -> None:
        """Send the commit index to ``member`` now, unless it has it."""
        progress = self.progress.get(member)
        if (
            progress is not None
            and progress.connected
            and progress.sent_commit_index < min(self.commit_index, progress.match_index)
        ):
            self._send_append(member, progress, [])

    def _probe(self, member: MemberId, progress: FollowerProgress) -> None:
        """Send an empty :class:`AppendEntries` to find the match index, unless entries are about to be sent."""
        if progress.next_index > self._log.last_index and progress.connected and not progress.blocked:
            self._send_append(member, progress, [])

    def _send_entries(self, member: MemberId, progress: FollowerProgress) -> None:
        """Send entries up to the limit in flight."""
        log = self._log
        if progress.snapshot is not None:
            return
        if progress.next_index <= log.snapshot_index:
            progress.snapshot, progress.snapshot_offset = self._snapshot(), 0
            self._send_snapshot(member, progress)
            return
        if progress.probing and progress.unacknowledged:
            return
        while progress.next_index <= log.last_index and progress.in_flight_bytes < MAX_IN_FLIGHT_BYTES:
            entries, size = log.entries_after(progress.next_index - 1, MAX_APPEND_BYTES)
            self._send_append(member, progress, entries, size)
            if progress.probing:
                return

    def _send_append(
        self, member: MemberId, progress: FollowerProgress, entries: list[LogEntry], size: int = 0
    ) -> None:
        previous = progress.next_index - 1
        term = self._log.term_at(previous)
        if term is None:
            return
        # Followers usually get equal messages. Sharing one object lets the user encode it once.
        cached, key = self._last_append, (self.term, self.commit_index, previous, len(entries))
        if cached is None or cached[0] != key:
            cached = self._last_append = key, AppendEntries(self.term, previous, term, self.commit_index, entries)
        self._outbox.append((member, cached[1]))
        progress.sent_commit_index = min(self.commit_index, previous + len(entries))
        if entries:
            progress.next_index += len(entries)
            progress.in_flight_bytes += size
            progress.unacknowledged.append((progress.next_index - 1, size))

    def _send_snapshot(self, member: MemberId, progress: FollowerProgress) -> None:
        snapshot = progress.snapshot
        if snapshot is not None and progress.connected:
            chunk = snapshot.data[progress.snapshot_offset : progress.snapshot_offset + SNAPSHOT_CHUNK_BYTES]
            total = len(snapshot.data)
            self._outbox.append(
                (
                    member,
                    InstallSnapshot(self.term, snapshot.index, snapshot.term, progress.snapshot_offset, total, chunk),
                )
            )
