"""Which promises a node makes, so that they can be made durable before anybody relies on them."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import InstallSnapshot, MemberId, Membership, Snapshot
from fyrehose_twisted.parcels.node.log_entries import entry_size
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering
from fyrehose_twisted.parcels.node.persistent_state import StateChange

COMPACTION_BYTES = 16 * 2**20
"""Bytes of promises after which they are written anew, as state."""
MAX_SNAPSHOT_BYTES = 64 * 2**20
"""Bytes of state that a node takes from another one."""


class StateRecorder:
    """Collects what has changed since it was made durable.

    :param durable: whether anything is.
    :ivar snapshot: a state that replaces everything before it.
    :ivar dirty: whether something changed that the order does not know of.
    """

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable
        self.snapshot: Snapshot | None = None
        self.dirty = False
        self._recorded_bytes = 0

    def compact(self, raft: RaftMember, snapshot: Snapshot) -> None:
        """Let what was promised be kept as the state that it came to."""
        self.snapshot = snapshot
        raft.first_unpersisted = snapshot.index + 1
        self._recorded_bytes = 0

    @property
    def needs_compaction(self) -> bool:
        """Whether so much was promised that it should be kept as state."""
        return self.durable and self._recorded_bytes > COMPACTION_BYTES

    def take_change(self, raft: RaftMember, cluster_id: int) -> StateChange | None:
        """Return what is to be made durable now."""
        if not self.durable or not (raft.dirty or self.dirty or self.snapshot is not None):
            return None
        state, first = self.snapshot, raft.first_unpersisted
        if first and state is not None:
            first = max(first, state.index + 1)
        entries = raft.log.entries_from(first) if first else []
        self._recorded_bytes += sum(map(entry_size, entries))
        raft.dirty, raft.first_unpersisted, self.dirty, self.snapshot = False, 0, False, None
        return StateChange(raft.term, raft.voted_for, cluster_id, raft.commit_index, state, first, entries)


class ReceivedSnapshot(NamedTuple):
    """A state that came in parts."""

    snapshot: Snapshot
    numbering: EventNumbering
    membership: Membership


class SnapshotReceiver:
    """Puts the parts of a state together."""

    def __init__(self) -> None:
        self._sender: MemberId | None = None
        self._index = 0
        self._data = bytearray()

    def reset(self) -> None:
        """Begin anew."""
        self._sender = None
        self._data = bytearray()

    def add_chunk(self, chunk: InstallSnapshot, sender: MemberId) -> tuple[int, ReceivedSnapshot | None]:
        """Take a part; return how many bytes are there, and the state if that is all.

        :raises BadState: if it is none.
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
        replica = EventNumbering()
        view = replica.load(bytes(data))
        return size, ReceivedSnapshot(Snapshot(chunk.index, chunk.index_term, bytes(data)), replica, view)
