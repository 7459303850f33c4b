"""The log that members agree on: entries with indexes from 1 on, of which the oldest are dropped."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.parcels.wire.messages import Entry, View

ENTRY_OVERHEAD = 400
"""Bytes that an entry counts for next to its events."""
EVENT_OVERHEAD = 60
"""Bytes that an event counts for next to its data."""


def entry_size(entry: Entry) -> int:
    """Return how many bytes of memory an entry counts for."""
    return ENTRY_OVERHEAD + sum(sum(map(len, run.events)) + EVENT_OVERHEAD * len(run.events) for run in entry.runs)


class Log:
    """Entries after a place up to which everything is known only as state.

    :ivar base: index of the last entry that is no longer here, 0 if none is.
    :ivar base_term: its term.
    :ivar size: bytes of memory that the entries count for.
    """

    def __init__(self, base: int = 0, base_term: int = 0) -> None:
        self.base = base
        self.base_term = base_term
        self.size = 0
        self._entries: list[Entry] = []
        self._sizes: list[int] = []
        self._dropped = 0  # Of the lists' beginning; they are cut now and then, for a cut moves the rest.

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.base + len(self._entries) - self._dropped

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self._entries[-1].term if len(self._entries) > self._dropped else self.base_term

    def term(self, index: int) -> int | None:
        """Return the term of an entry, ``None`` if it is not known (any more)."""
        if index == self.base:
            return self.base_term
        if self.base < index <= self.last:
            return self._entries[index - self.base - 1 + self._dropped].term
        return None

    def entry(self, index: int) -> Entry:
        """Return an entry that is here."""
        return self._entries[index - self.base - 1 + self._dropped]

    def after(self, index: int, limit: int, most: int = 256) -> tuple[list[Entry], int]:
        """Return the entries after ``index``, as many as count for ``limit`` bytes together, but one at least; and for
        how many they do."""
        start = index - self.base + self._dropped
        stop, size = start, 0
        sizes = self._sizes
        end = min(len(sizes), start + most)
        while stop < end:
            if size + sizes[stop] > limit and stop > start:
                break
            size += sizes[stop]
            stop += 1
        return self._entries[start:stop], size

    def rest(self, index: int) -> list[Entry]:
        """Return all entries from ``index`` on."""
        return self._entries[index - self.base - 1 + self._dropped :]

    def append(self, entries: Sequence[Entry]) -> None:
        """Put entries behind the last one."""
        for entry in entries:
            size = entry_size(entry)
            self._entries.append(entry)
            self._sizes.append(size)
            self.size += size

    def cut(self, index: int) -> None:
        """Drop the entries from ``index`` on."""
        at = index - self.base - 1 + self._dropped
        self.size -= sum(self._sizes[at:])
        del self._entries[at:], self._sizes[at:]

    def drop(self, limit: int, up_to: int) -> None:
        """Drop the oldest entries, at most up to index ``up_to``, as long as all count for more than ``limit``."""
        dropped = self._dropped
        while self.size > limit and self.base < up_to:
            entry = self._entries[dropped]
            self.base, self.base_term = self.base + 1, entry.term
            self.size -= self._sizes[dropped]
            dropped += 1
        self._dropped = dropped
        if dropped > 1_024 and 2 * dropped > len(self._entries):
            del self._entries[:dropped], self._sizes[:dropped]
            self._dropped = 0

    def reset(self, base: int, base_term: int) -> None:
        """Forget all entries: what they came to is known as state."""
        self.__init__(base, base_term)  # type: ignore[misc]  # As new.

    def last_view(self, after: int) -> tuple[int, View] | None:
        """Return the index and the content of the last change of view behind index ``after``, if there is one."""
        for index in range(self.last, max(after, self.base), -1):
            entry = self.entry(index)
            if isinstance(entry.content, View):
                return index, entry.content
        return None
