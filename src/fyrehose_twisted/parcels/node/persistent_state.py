"""State that a node must not lose in a crash: term, vote and acknowledged entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.consensus.messages import LogEntry, MemberId, Snapshot


class StateChange(NamedTuple):
    """Change that must be durable before messages that depend on it are sent."""

    term: int
    voted_for: MemberId | None
    cluster_id: int
    commit_index: int
    """Commit index. It may lag behind, except for membership changes."""
    snapshot: Snapshot | None
    """Snapshot that replaces the whole log; :attr:`entries` follow it."""
    first_index: int
    """Index of the first of :attr:`entries`, which replace the log from here on. 0 leaves the log unchanged."""
    entries: Sequence[LogEntry]


@mypyc_attr(allow_interpreted_subclasses=True)
class PersistentState:
    """Persistent state of a node, held in memory. Subclasses make it durable.

    :ivar member: member that the state belongs to; ``None`` before the first start.
    :ivar starts: number of starts with this state.
    """

    def __init__(self) -> None:
        self.member: MemberId | None = None
        self.starts = 0
        self.term = 0
        self.voted_for: MemberId | None = None
        self.cluster_id = 0
        self.commit_index = 0
        self.snapshot: Snapshot | None = None
        self.entries: list[LogEntry] = []

    def record_start(self, member: MemberId) -> None:
        """Record that a node starts with this state."""
        self.member = member
        self.starts += 1

    def persist(self, change: StateChange) -> None:
        """Make a change durable.

        :raises PromisesBroken: if that fails; then nothing that depends on the change may be sent.
        """
        self.apply(change)

    def apply(self, change: StateChange) -> None:
        """Apply a change in memory."""
        self.term, self.voted_for, self.cluster_id = change.term, change.voted_for, change.cluster_id
        self.commit_index = change.commit_index
        if change.snapshot is not None:
            self.snapshot = change.snapshot
            self.entries.clear()
        if change.first_index:
            kept = change.first_index - self.snapshot_index - 1
            if not 0 <= kept <= len(self.entries):
                raise ValueError(
                    f"entry {change.first_index} does not follow the {len(self.entries)} after {self.snapshot_index}"
                )
            del self.entries[kept:]
            self.entries.extend(change.entries)

    @property
    def snapshot_index(self) -> int:
        """Index of the last entry that the snapshot covers; 0 without a snapshot."""
        return 0 if self.snapshot is None else self.snapshot.index
