"""State of a Raft member that does not depend on its role."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    LogEntry,
    MemberId,
    Membership,
)


class RaftState:
    """Term, vote, log, commit index and membership of one member.

    :param me: this incarnation of the node.
    :param log: its replicated log.
    :ivar voted_for: the member that it voted for in :attr:`term`.
    :ivar commit_index: index of the last entry that it knows to be committed.
    :ivar committed: committed entries to apply, each with its index.
    :ivar members: voters, as committed.
    :ivar dirty: whether term, vote, membership or log changed since they were made durable.
    :ivar first_unpersisted: index of the first entry that is not durable; 0 if all are.
    """

    def __init__(self, me: MemberId, log: RaftLog, term: int) -> None:
        self.me = me
        self.log = log
        self.term = term
        self.voted_for: MemberId | None = None
        self._membership: Membership | None = None
        self.members: frozenset[MemberId] = frozenset()
        self.commit_index = log.snapshot_index
        self.committed: list[tuple[int, LogEntry]] = []
        self.dirty = False
        self.first_unpersisted = 0
        self._membership_index = 0

    @property
    def membership(self) -> Membership | None:
        """Committed membership; ``None`` before it is known."""
        return self._membership

    @membership.setter
    def membership(self, membership: Membership) -> None:
        self._membership = membership
        self.members = frozenset(member for member, _ in membership.members)

    @property
    def is_voter(self) -> bool:
        """Whether this node is a voter."""
        return self.me in self.members

    @property
    def membership_change_pending(self) -> bool:
        """Whether a membership change is not committed yet."""
        return self._membership_index > self.commit_index

    @property
    def peers(self) -> list[MemberId]:
        """The other voters."""
        return [] if self.membership is None else [member for member, _ in self.membership.members if member != self.me]

    def install_snapshot(self, index: int, term: int, membership: Membership | None) -> None:
        """Replace the log up to ``index`` by a snapshot that the user has applied."""
        self.log.reset(index, term)
        self.commit_index = index
        self.committed.clear()
        self.first_unpersisted = 0
        if membership is not None:
            self.membership = membership

    def restore(self, commit_index: int) -> None:
        """Commit entries that were committed before a restart, up to ``commit_index``."""
        self._commit_up_to(min(commit_index, self.log.last_index))

    def _take_entries(self, message: AppendEntries) -> AppendEntriesReply:
        """Append a leader's entries and commit what it committed; return the reply."""
        log, previous, entries = self.log, message.previous, message.entries
        if previous < log.snapshot_index:
            # Entries covered by the snapshot were committed, so they are equal.
            skip = log.snapshot_index - previous
            if len(entries) < skip:
                return AppendEntriesReply(self.term, True, previous + len(entries))
            entries = entries[skip:]
            previous = log.snapshot_index
        elif log.term_at(previous) != message.previous_term:
            hint = log.last_possible_match(previous, message.previous_term, self.commit_index)
            return AppendEntriesReply(self.term, False, hint)
        last = previous + len(entries)
        known = log.matching_entries(previous, entries)
        if known < len(entries):
            index = previous + 1 + known
            if index <= log.last_index:
                log.truncate_from(index)
                self._mark_unpersisted(index)
            self._append_to_log(entries[known:])
        self._commit_up_to(min(message.commit, last))
        return AppendEntriesReply(self.term, True, last)

    def _append_to_log(self, entries: Iterable[LogEntry]) -> None:
        entries = list(entries)
        self._mark_unpersisted(self.log.last_index + 1)
        self.log.append(entries)
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                self._membership_index = self.log.last_index

    def _mark_unpersisted(self, index: int) -> None:
        self.dirty = True
        self.first_unpersisted = index if not self.first_unpersisted else min(self.first_unpersisted, index)

    def _commit_up_to(self, index: int) -> None:
        for position in range(self.commit_index + 1, index + 1):
            entry = self.log.entry_at(position)
            if entry.kind is EntryKind.MEMBERSHIP:
                self.membership = entry.content
                self.dirty = True
            self.committed.append((position, entry))
        self.commit_index = max(self.commit_index, index)

    def _enter_term(self, term: int) -> None:
        self.term = term
        self.voted_for = None
        self.dirty = True
