"""How a leader brings its log to others: many entries at once, and without waiting for answers (Raft, section 5.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from fyrehose_twisted.parcels.node.persistent_state import Snapshot
from fyrehose_twisted.parcels.node.raft.log import RaftLog
from fyrehose_twisted.parcels.wire.messages import (
    AppendEntries,
    AppendEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Message,
)

MAX_IN_FLIGHT_BYTES = 2**20
"""Bytes of entries on their way to one follower."""
MAX_APPEND_BYTES = 57_344
"""Bytes of entries in one parcel."""
SNAPSHOT_CHUNK_BYTES = 49_152
"""Bytes of state in one parcel."""


class FollowerProgress:
    """How far one other node is, as the leader knows.

    :ivar next_index: index of the entry that it is sent next.
    :ivar match_index: up to where its log is the leader's.
    :ivar heard_at: when it answered last.
    :ivar connected: whether there is a connection to it.
    :ivar set_blocked: whether what is written to that waits.
    :ivar sent_commit_index: up to where it was told that entries are committed.
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
        """Send from there on, once it is known whether that fits."""
        self.next_index = next_index
        self.probing = True
        self.in_flight_bytes = 0
        self.sent_commit_index = 0
        self.unacknowledged.clear()
        self.snapshot = None


class LogReplication:
    """What a leader knows of the others, and sends them.

    :param log: the leader's.
    :param out: where messages are put, each with who is to get it.
    :param snapshot: returns what the log came to as far as it was applied.
    :ivar term: the leader's.
    :ivar commit_index: up to where entries are committed.
    :ivar progress: whom it leads, members and others.
    """

    def __init__(self, log: RaftLog, outbox: list[tuple[MemberId, Message]], snapshot: Callable[[], Snapshot]) -> None:
        self.term = 0
        self.commit_index = 0
        self.progress: dict[MemberId, FollowerProgress] = {}
        self._log = log
        self._outbox = outbox
        self._snapshot = snapshot
        self._last_append: tuple[tuple[int, int, int, int], AppendEntries] | None = None
        self._connected: set[MemberId] = set()
        self._blocked: set[MemberId] = set()

    def start(self, term: int, members: Iterable[MemberId], now: float) -> None:
        """A leader begins: what it puts into the log next is the first that ``members`` are sent."""
        self.term = term
        self.progress = {member: self._new_progress(member, now) for member in members}

    def stop(self) -> None:
        """It leads no more."""
        self.progress = {}

    # Connections

    def follower_connected(self, member: MemberId) -> None:
        """There is a connection on which requests can be sent to ``member``."""
        self._connected.add(member)
        self._blocked.discard(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.connected, progress.blocked = True, False
            progress.restart_at(progress.match_index + 1 if progress.match_index else self._log.last_index + 1)
            self._probe(member, progress)

    def follower_disconnected(self, member: MemberId) -> None:
        """That connection is gone."""
        self._connected.discard(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.connected = False

    def set_blocked(self, member: MemberId, blocked: bool) -> None:
        """What is written to ``member`` waits, or waits no more."""
        (self._blocked.add if blocked else self._blocked.discard)(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.blocked = blocked

    # Who is led

    def add_followers(self, members: Iterable[MemberId], now: float) -> None:
        """Lead these as well."""
        for member in members:
            if member not in self.progress:
                progress = self.progress[member] = self._new_progress(member, now)
                self._probe(member, progress)

    def match_index(self, member: MemberId) -> int:
        """Return up to where the log of ``member`` is known to be the leader's."""
        progress = self.progress.get(member)
        return 0 if progress is None else progress.match_index

    def _new_progress(self, member: MemberId, now: float) -> FollowerProgress:
        progress = FollowerProgress(self._log.last_index + 1, now)
        progress.connected, progress.blocked = member in self._connected, member in self._blocked
        return progress

    # Answers

    def append_entries_reply_received(self, message: AppendEntriesReply, sender: MemberId, now: float) -> bool:
        """A follower answers; returns whether it has more than before."""
        progress = self.progress.get(sender)
        if progress is None:
            return False
        progress.heard_at = now
        if not message.taken:
            if progress.probing or message.index >= progress.match_index:
                progress.restart_at(min(message.index, self._log.last_index) + 1)
            return False
        progress.probing = False
        flying = progress.unacknowledged
        while flying and flying[0][0] <= message.index:
            progress.in_flight_bytes -= flying.popleft()[1]
        if message.index <= progress.match_index:
            return False
        progress.match_index = message.index
        progress.next_index = max(progress.next_index, message.index + 1)
        return True

    def install_snapshot_reply_received(self, message: InstallSnapshotReply, sender: MemberId, now: float) -> None:
        """A follower has a part of the state."""
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
        """Send what there is to be sent."""
        last = self._log.last_index
        for member, progress in self.progress.items():
            if progress.next_index <= last and progress.connected and not progress.blocked:
                self._send_entries(member, progress)

    def send_heartbeats(self) -> None:
        """Tell everybody that the leader lives."""
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

    def broadcast_commit(self) -> None:
        """Tell everybody how far entries are committed who does not know."""
        for member in self.progress:
            self.send_commit(member)

    def send_commit(self, member: MemberId) -> None:
        """Tell ``member`` at once how far entries are committed."""
        progress = self.progress.get(member)
        if (
            progress is not None
            and progress.connected
            and progress.sent_commit_index < min(self.commit_index, progress.match_index)
        ):
            self._send_append(member, progress, [])

    def _probe(self, member: MemberId, progress: FollowerProgress) -> None:
        """Find out how far ``member`` is, if no entry is about to."""
        if progress.next_index > self._log.last_index and progress.connected and not progress.blocked:
            self._send_append(member, progress, [])

    def _send_entries(self, member: MemberId, progress: FollowerProgress) -> None:
        """Send entries, as many as may be on their way."""
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
        # Mostly all of them are sent the same: then it is one object, which is encoded once.
        sent, what = self._last_append, (self.term, self.commit_index, previous, len(entries))
        if sent is None or sent[0] != what:
            sent = self._last_append = what, AppendEntries(self.term, previous, term, self.commit_index, entries)
        self._outbox.append((member, sent[1]))
        progress.sent_commit_index = min(self.commit_index, previous + len(entries))
        if entries:
            progress.next_index += len(entries)
            progress.in_flight_bytes += size
            progress.unacknowledged.append((progress.next_index - 1, size))

    def _send_snapshot(self, member: MemberId, progress: FollowerProgress) -> None:
        state = progress.snapshot
        if state is not None and progress.connected:
            part = state.data[progress.snapshot_offset : progress.snapshot_offset + SNAPSHOT_CHUNK_BYTES]
            total = len(state.data)
            self._outbox.append(
                (member, InstallSnapshot(self.term, state.index, state.term, progress.snapshot_offset, total, part))
            )
