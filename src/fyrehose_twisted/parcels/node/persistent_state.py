"""What a node has promised to others and must still know after a crash: its term and vote, and what it acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted.parcels.wire.messages import Entry, Member


class State(NamedTuple):
    """What the log up to a place came to."""

    index: int  # type: ignore[assignment]  # A tuple has a method of that name, which nobody needs here.
    term: int
    data: bytes
    """See :meth:`~fyrehose_twisted.parcels.node.ordering.event_numbering.Replica.dump`."""


class Change(NamedTuple):
    """What has to be durable before anything that depends on it is sent."""

    term: int
    vote: Member | None
    founding: int
    commit: int
    """Up to where entries were known to be committed; this needs not be the latest, but for changes of view."""
    state: State | None
    """Replaces the whole log; what :attr:`entries` has comes behind it."""
    first: int
    """Index of the first of :attr:`entries`; what was there from here on is gone. 0: the log stays as it is."""
    entries: Sequence[Entry]


class Promises:
    """Keeps changes in memory: what a node finds again that starts with it.

    :ivar member: whose promises these are; ``None`` before the first start.
    :ivar starts: how often a node started with them.
    """

    def __init__(self) -> None:
        self.member: Member | None = None
        self.starts = 0
        self.term = 0
        self.vote: Member | None = None
        self.founding = 0
        self.commit = 0
        self.state: State | None = None
        self.entries: list[Entry] = []

    def begin(self, member: Member) -> None:
        """A node starts with these promises, for the first time or once more."""
        self.member = member
        self.starts += 1

    def keep(self, change: Change) -> None:
        """Make a change durable.

        :raises PromisesBroken: if that failed; then nothing that depends on it may be sent.
        """
        self.take(change)

    def take(self, change: Change) -> None:
        """Make a change here."""
        self.term, self.vote, self.founding = change.term, change.vote, change.founding
        self.commit = change.commit
        if change.state is not None:
            self.state = change.state
            self.entries.clear()
        if change.first:
            kept = change.first - self.base - 1
            if not 0 <= kept <= len(self.entries):
                raise ValueError(f"entry {change.first} does not follow the {len(self.entries)} after {self.base}")
            del self.entries[kept:]
            self.entries.extend(change.entries)

    @property
    def base(self) -> int:
        """Index of the last entry that is known only as state."""
        return 0 if self.state is None else self.state.index
