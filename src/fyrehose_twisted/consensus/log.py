"""Replicated log whose oldest entries are compacted into a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, Membership


class RaftLog:
    """Log of one member: the entries after its snapshot. Indexes start at 1.

    :param entry_size: returns the bytes of memory that an entry counts for.
    :ivar snapshot_index: index of the last compacted entry, 0 if there is none.
    :ivar snapshot_term: term of that entry.
    :ivar size: bytes of memory that all entries count for.
    """

    def __init__(self, entry_size: Callable[[LogEntry], int], snapshot_index: int = 0, snapshot_term: int = 0) -> None:
        self.snapshot_index = snapshot_index
        self.snapshot_term = snapshot_term
        self.size = 0
        self._entry_size = entry_size
        self._entries: list[LogEntry] = []
        self._sizes: list[int] = []
        # Compacted items at the head of both lists. They are deleted in bulk, because a deletion moves the rest.
        self._dropped = 0

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self.snapshot_index + len(self._entries) - self._dropped

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._entries[-1].term if len(self._entries) > self._dropped else self.snapshot_term

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; ``None`` if the entry is compacted or does not exist."""
        if index == self.snapshot_index:
            return self.snapshot_term
        if self.snapshot_index < index <= self.last_index:
            return self._entries[index - self.snapshot_index - 1 + self._dropped].term
        return None

    def entry_at(self, index: int) -> LogEntry:
        """Return the entry at ``index``, which must be in the log."""
        return self._entries[index - self.snapshot_index - 1 + self._dropped]

    def entries_after(self, index: int, max_bytes: int, max_entries: int = 256) -> tuple[list[LogEntry], int]:
        """Return the entries after ``index`` and their total size: at least one, then as many as fit ``max_bytes``."""
        start = index - self.snapshot_index + self._dropped
        stop, size = start, 0
        sizes = self._sizes
        end = min(len(sizes), start + max_entries)
        while stop < end:
            if size + sizes[stop] > max_bytes and stop > start:
                break
            size += sizes[stop]
            stop += 1
        return self._entries[start:stop], size

    def entries_from(self, index: int) -> list[LogEntry]:
        """Return all entries from ``index`` on."""
        return self._entries[index - self.snapshot_index - 1 + self._dropped :]

    def matching_entries(self, previous: int, entries: Sequence[LogEntry]) -> int:
        """Return how many of ``entries``, which follow index ``previous``, are in the log."""
        index = previous
        for entry in entries:
            index += 1
            if self.term_at(index) != entry.term:
                return index - previous - 1
        return index - previous

    def last_possible_match(self, previous: int, previous_term: int, committed: int) -> int:
        """Return the last index before ``previous`` at which the log may equal that of a leader whose entry at
        ``previous`` has ``previous_term``."""
        index = min(self.last_index, previous - 1)
        while index > committed and self.term_at(index) != previous_term:
            index -= 1
        return max(index, committed)

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Append entries."""
        for entry in entries:
            size = self._entry_size(entry)
            self._entries.append(entry)
            self._sizes.append(size)
            self.size += size

    def truncate_from(self, index: int) -> None:
        """Delete the entries from ``index`` on."""
        position = index - self.snapshot_index - 1 + self._dropped
        self.size -= sum(self._sizes[position:])
        del self._entries[position:], self._sizes[position:]

    def compact(self, max_bytes: int, up_to: int) -> None:
        """Drop the oldest entries, at most up to index ``up_to``, until the log fits ``max_bytes``."""
        dropped = self._dropped
        while self.size > max_bytes and self.snapshot_index < up_to:
            entry = self._entries[dropped]
            self.snapshot_index, self.snapshot_term = self.snapshot_index + 1, entry.term
            self.size -= self._sizes[dropped]
            dropped += 1
        self._dropped = dropped
        if dropped > 1_024 and 2 * dropped > len(self._entries):
            del self._entries[:dropped], self._sizes[:dropped]
            self._dropped = 0

    def reset(self, snapshot_index: int, snapshot_term: int) -> None:
        """Delete all entries and continue after a snapshot."""
        self.__init__(self._entry_size, snapshot_index, snapshot_term)  # type: ignore[misc]  # Start over.

    def last_membership(self, after: int) -> tuple[int, Membership] | None:
        """Return index and content of the last membership change after index ``after``, or ``None``."""
        for index in range(self.last_index, max(after, self.snapshot_index), -1):
            entry = self.entry_at(index)
            if entry.kind is EntryKind.MEMBERSHIP:
                return index, entry.content
        return None
