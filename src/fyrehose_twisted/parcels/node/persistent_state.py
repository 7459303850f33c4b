"""What a node has promised to others and must still know after a crash: its term and vote, and what it acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted.consensus.messages import LogEntry, MemberId, Snapshot


class StateChange(NamedTuple):
    """What has to be durable before anything that depends on it is sent."""

    term: int
    voted_for: MemberId | None
    cluster_id: int
    commit_index: int
    """Up to where entries were known to be committed; this needs not be the latest, but for changes of view."""
    snapshot: Snapshot | None
    """Replaces the whole log; what :attr:`entries` has comes behind it."""
    first_index: int
    """Index of the first of :attr:`entries`; what was there from here on is gone. 0: the log stays as it is."""
    entries: Sequence[LogEntry]


class PersistentState:
    """Keeps changes in memory: what a node finds again that starts with it.

    :ivar member: whose promises these are; ``None`` before the first start.
    :ivar starts: how often a node started with them.
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
        """A node starts with these promises, for the first time or once more."""
        self.member = member
        self.starts += 1

    def persist(self, change: StateChange) -> None:
        """Make a change durable.

        :raises PromisesBroken: if that failed; then nothing that depends on it may be sent.
        """
        self.apply(change)

    def apply(self, change: StateChange) -> None:
        """Make a change here."""
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
        """Index of the last entry that is known only as state."""
        return 0 if self.snapshot is None else self.snapshot.index
