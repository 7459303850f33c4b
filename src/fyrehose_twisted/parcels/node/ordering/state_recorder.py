"""Collection of state changes to persist, and reassembly of received snapshots."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import InstallSnapshot, MemberId, Membership, Snapshot
from fyrehose_twisted.parcels.node.log_entries import entry_size
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering
from fyrehose_twisted.parcels.node.persistent_state import StateChange

COMPACTION_BYTES = 16 * 2**20
"""Bytes of recorded entries after which they are replaced by a snapshot."""
MAX_SNAPSHOT_BYTES = 64 * 2**20
"""Maximum size in bytes of a received snapshot."""


class StateRecorder:
    """Changes since the state was last persisted.

    :param durable: whether the node persists its state at all.
    :ivar snapshot: snapshot to persist, which replaces all entries before it.
    :ivar dirty: whether state outside of Raft changed.
    :ivar followers_may_go_first: whether the latest change has nothing but new entries of a leader, so that followers
        may get them before they are durable here. Nobody but the leader counts its copy, which happens afterwards.
    """

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable
        self.snapshot: Snapshot | None = None
        self.dirty = False
        self.followers_may_go_first = False
        self._recorded_bytes = 0
        self._recorded_vote: tuple[int, MemberId | None] | None = None

    def compact(self, raft: RaftMember, snapshot: Snapshot) -> None:
        """Replace the persisted entries by a snapshot."""
        self.snapshot = snapshot
        raft.first_unpersisted = snapshot.index + 1
        self._recorded_bytes = 0

    @property
    def needs_compaction(self) -> bool:
        """Whether enough entries were recorded to replace them by a snapshot."""
        return self.durable and self._recorded_bytes > COMPACTION_BYTES

    def take_change(self, raft: RaftMember, cluster_id: int) -> StateChange | None:
        """Return the change to persist now, or ``None``."""
        if not self.durable or not (raft.dirty or self.dirty or self.snapshot is not None):
            return None
        state, first = self.snapshot, raft.first_unpersisted
        if first and state is not None:
            first = max(first, state.index + 1)
        entries = raft.log.entries_from(first) if first else []
        self._recorded_bytes += sum(map(entry_size, entries))
        vote = raft.term, raft.voted_for
        # A commit index that comes with the entries says that a majority has what it covers on disk.
        self.followers_may_go_first = (
            first > raft.commit_index and vote == self._recorded_vote and state is None and not self.dirty
        )
        self._recorded_vote = vote
        raft.dirty, raft.first_unpersisted, self.dirty, self.snapshot = False, 0, False, None
        return StateChange(raft.term, raft.voted_for, cluster_id, raft.commit_index, state, first, entries)


class ReceivedSnapshot(NamedTuple):
    """A complete snapshot received from the leader."""

    snapshot: Snapshot
    numbering: EventNumbering
    membership: Membership


class SnapshotReceiver:
    """Reassembly of a snapshot from chunks."""

    def __init__(self) -> None:
        self._sender: MemberId | None = None
        self._index = 0
        self._data = bytearray()

    def reset(self) -> None:
        """Discard the chunks received so far."""
        self._sender = None
        self._data = bytearray()

    def add_chunk(self, chunk: InstallSnapshot, sender: MemberId) -> tuple[int, ReceivedSnapshot | None]:
        """Add a chunk; return the number of bytes received, and the snapshot once it is complete.

        :raises InvalidSnapshot: if the snapshot is malformed.
        """
        if (sender, chunk.index) != (self._sender, self._index):
            self._sender, self._index, self._data = sender, chunk.index, bytearray()
        data = self._data
        if chunk.total > MAX_SNAPSHOT_BYTES or chunk.offset + len(chunk.data) > chunk.total:
            return len(data), None
        if chunk.offset == len(data):
            data += chunk.data
        size = len(data)
        if size < chunk.total:
            return size, None
        self.reset()
        numbering = EventNumbering()
        membership = numbering.load(bytes(data))
        return size, ReceivedSnapshot(Snapshot(chunk.index, chunk.index_term, bytes(data)), numbering, membership)
