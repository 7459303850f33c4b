from __future__ import annotations

import pytest

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Snapshot
from fyrehose_twisted.parcels.node.persistent_state import PersistentState, StateChange
from fyrehose_twisted.parcels.wire.messages import PublisherRun

IVAN, BORIS = MemberId("Ivan", 1), MemberId("Boris", 2)


def entry(term: int) -> LogEntry:
    return LogEntry(term, EntryKind.DATA, (PublisherRun("p", 0, 1, [b"x"]),))


def change(
    first: int = 0, *entries: LogEntry, state: Snapshot | None = None, term: int = 1, commit: int = 0
) -> StateChange:
    return StateChange(term, BORIS, 7, commit, state, first, entries)


def test_recorded_starts_are_counted() -> None:
    promises = PersistentState()
    assert (promises.member, promises.starts) == (None, 0)
    promises.record_start(IVAN)
    promises.record_start(IVAN)
    assert (promises.member, promises.starts) == (IVAN, 2)


def test_persisted_changes_are_restored() -> None:
    promises = PersistentState()
    promises.persist(change(1, entry(1), entry(2), term=3, commit=1))
    assert (promises.term, promises.voted_for, promises.cluster_id, promises.commit_index) == (3, BORIS, 7, 1)
    assert promises.entries == [entry(1), entry(2)]
    promises.persist(StateChange(4, None, 7, 2, None, 0, ()))
    assert (promises.term, promises.voted_for, promises.commit_index) == (4, None, 2)
    assert promises.entries == [entry(1), entry(2)]


def test_persisted_entries_replace_the_existing_log_suffix() -> None:
    promises = PersistentState()
    promises.persist(change(1, entry(1), entry(2), entry(3)))
    promises.persist(change(2, entry(4)))
    assert promises.entries == [entry(1), entry(4)]
    promises.persist(change(3, entry(5), entry(6)))
    assert promises.entries == [entry(1), entry(4), entry(5), entry(6)]
    promises.persist(change(2))
    assert promises.entries == [entry(1)]


def test_persisted_snapshot_replaces_the_log() -> None:
    promises = PersistentState()
    promises.persist(change(1, entry(1)))
    state = Snapshot(10, 2, b"state")
    promises.persist(change(11, entry(3), state=state))
    assert (promises.snapshot_index, promises.snapshot, promises.entries) == (10, state, [entry(3)])
    promises.persist(change(12, entry(4)))
    promises.persist(change(11, entry(5)))
    assert promises.entries == [entry(5)]
    promises.persist(change(state=Snapshot(20, 3, b"")))
    assert (promises.snapshot_index, promises.entries) == (20, [])


@pytest.mark.parametrize("first", [1, 9, 10, 13])
def test_entries_that_leave_a_gap_are_refused(first: int) -> None:
    promises = PersistentState()
    promises.persist(change(11, entry(1), state=Snapshot(10, 2, b"")))
    with pytest.raises(ValueError, match=f"entry {first} "):
        promises.persist(change(first, entry(2)))
    assert promises.entries == [entry(1)]
