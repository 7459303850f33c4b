from __future__ import annotations

import pytest

from fyrehose_twisted.parcels.node.persistent_state import Change, Promises, State
from fyrehose_twisted.parcels.wire.messages import Entry, EntryKind, Member, Run

IVAN, BORIS = Member("Ivan", 1), Member("Boris", 2)


def entry(term: int) -> Entry:
    return Entry(term, EntryKind.EVENTS, (Run("p", 0, 1, [b"x"]),))


def change(first: int = 0, *entries: Entry, state: State | None = None, term: int = 1, commit: int = 0) -> Change:
    return Change(term, BORIS, 7, commit, state, first, entries)


def test_starts_are_counted() -> None:
    promises = Promises()
    assert (promises.member, promises.starts) == (None, 0)
    promises.begin(IVAN)
    promises.begin(IVAN)
    assert (promises.member, promises.starts) == (IVAN, 2)


def test_what_is_kept_is_found_again() -> None:
    promises = Promises()
    promises.keep(change(1, entry(1), entry(2), term=3, commit=1))
    assert (promises.term, promises.vote, promises.founding, promises.commit) == (3, BORIS, 7, 1)
    assert promises.entries == [entry(1), entry(2)]
    promises.keep(Change(4, None, 7, 2, None, 0, ()))
    assert (promises.term, promises.vote, promises.commit) == (4, None, 2)
    assert promises.entries == [entry(1), entry(2)]


def test_entries_replace_what_was_there() -> None:
    promises = Promises()
    promises.keep(change(1, entry(1), entry(2), entry(3)))
    promises.keep(change(2, entry(4)))
    assert promises.entries == [entry(1), entry(4)]
    promises.keep(change(3, entry(5), entry(6)))
    assert promises.entries == [entry(1), entry(4), entry(5), entry(6)]
    promises.keep(change(2))
    assert promises.entries == [entry(1)]


def test_state_replaces_the_log() -> None:
    promises = Promises()
    promises.keep(change(1, entry(1)))
    state = State(10, 2, b"state")
    promises.keep(change(11, entry(3), state=state))
    assert (promises.base, promises.state, promises.entries) == (10, state, [entry(3)])
    promises.keep(change(12, entry(4)))
    promises.keep(change(11, entry(5)))
    assert promises.entries == [entry(5)]
    promises.keep(change(state=State(20, 3, b"")))
    assert (promises.base, promises.entries) == (20, [])


@pytest.mark.parametrize("first", [1, 9, 10, 13])
def test_entries_have_to_follow(first: int) -> None:
    promises = Promises()
    promises.keep(change(11, entry(1), state=State(10, 2, b"")))
    with pytest.raises(ValueError, match=f"entry {first} "):
        promises.keep(change(first, entry(2)))
    assert promises.entries == [entry(1)]
