"""The log that members agree on: entries with indexes from 1 on, of which the oldest are dropped."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.parcels.wire.messages import LogEntry, Membership

ENTRY_OVERHEAD = 400
"""Bytes that an entry counts for next to its events."""
EVENT_OVERHEAD = 60
"""Bytes that an event counts for next to its data."""


def entry_size(entry: LogEntry) -> int:
    """Return how many bytes of memory an entry counts for."""
    return ENTRY_OVERHEAD + sum(sum(map(len, run.events)) + EVENT_OVERHEAD * len(run.events) for run in entry.runs)


class RaftLog:
    """Entries after a place up to which everything is known only as state.

    :ivar snapshot_index: index of the last entry that is no longer here, 0 if none is.
    :ivar snapshot_term: its term.
    :ivar size: bytes of memory that the entries count for.
    """

    def __init__(self, snapshot_index: int = 0, snapshot_term: int = 0) -> None:
        self.snapshot_index = snapshot_index
        self.snapshot_term = snapshot_term
        self.size = 0
        self._entries: list[LogEntry] = []
        self._sizes: list[int] = []
        self._dropped = 0  # Of the lists' beginning; they are cut now and then, for a cut moves the rest.

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self.snapshot_index + len(self._entries) - self._dropped

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._entries[-1].term if len(self._entries) > self._dropped else self.snapshot_term

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, ``None`` if it is not known (any more)."""
        if index == self.snapshot_index:
            return self.snapshot_term
        if self.snapshot_index < index <= self.last_index:
            return self._entries[index - self.snapshot_index - 1 + self._dropped].term
        return None

    def entry_at(self, index: int) -> LogEntry:
        """Return an entry that is here."""
        return self._entries[index - self.snapshot_index - 1 + self._dropped]

    def entries_after(self, index: int, max_bytes: int, max_entries: int = 256) -> tuple[list[LogEntry], int]:
        """Return the entries after ``index``, as many as count for ``max_bytes`` bytes together, but one at least; and
        for how many they do."""
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

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Put entries behind the last one."""
        for entry in entries:
            size = entry_size(entry)
            self._entries.append(entry)
            self._sizes.append(size)
            self.size += size

    def truncate_from(self, index: int) -> None:
        """Drop the entries from ``index`` on."""
        at = index - self.snapshot_index - 1 + self._dropped
        self.size -= sum(self._sizes[at:])
        del self._entries[at:], self._sizes[at:]

    def compact(self, max_bytes: int, up_to: int) -> None:
        """Drop the oldest entries, at most up to index ``up_to``, as long as all count for more than ``max_bytes``."""
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
        """Forget all entries: what they came to is known as state."""
        self.__init__(snapshot_index, snapshot_term)  # type: ignore[misc]  # As new.

    def last_membership(self, after: int) -> tuple[int, Membership] | None:
        """Return the index and the content of the last change of view behind index ``after``, if there is one."""
        for index in range(self.last_index, max(after, self.snapshot_index), -1):
            entry = self.entry_at(index)
            if isinstance(entry.content, Membership):
                return index, entry.content
        return None
