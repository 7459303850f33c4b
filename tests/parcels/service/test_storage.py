"""Durability order of a node's journal and state file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock

from fyrehose_twisted.consensus.messages import MemberId, Snapshot
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.journal.errors import JournalFull, JournalInUse
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.node.persistent_state import StateChange
from fyrehose_twisted.parcels.service.storage import STATE_FILE_NAME, Storage

CONFIG = NodeConfig("a")
MEMBER = MemberId("a", 7)


def change(state: Snapshot | None = None) -> StateChange:
    return StateChange(
        term=3, voted_for=MEMBER, cluster_id=5, commit_index=0, snapshot=state, first_index=0, entries=()
    )


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Storage]:
    opened = Storage(tmp_path)
    opened.open(CONFIG, Clock(), lambda error: None)
    assert opened.persistent_state is not None
    opened.persistent_state.record_start(MEMBER)
    yield opened
    close(opened)


def close(keeping: Storage) -> None:
    """Close the storage; it uses no thread that would have to be joined."""
    assert ensureDeferred(keeping.close()).called


@pytest.fixture
def done(keeping: Storage, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that records the operations in order."""
    noted: list[Any] = []
    journal, promises = keeping.history.journal, keeping.persistent_state  # type: ignore[union-attr]
    commit, keep = journal.commit, promises.persist  # type: ignore[union-attr]

    def noting_commit(sync: bool = True) -> None:
        noted.append(("journal", sync))
        commit(sync)

    def noting_keep(what: StateChange) -> None:
        noted.append("promises")
        keep(what)

    monkeypatch.setattr(journal, "commit", noting_commit)
    monkeypatch.setattr(promises, "persist", noting_keep)
    return noted


def put(keeping: Storage, number: int) -> None:
    assert keeping.history is not None
    keeping.history.put([SequencedRun(number, "someone", 1, number, [b"x"])])


def test_events_are_written_before_the_state(keeping: Storage, done: list[Any]) -> None:
    put(keeping, 1)
    keeping.persist(change())
    keeping.persist(change())
    assert done == [("journal", False), "promises", "promises"]


def test_events_are_durable_before_a_snapshot_drops_them_from_the_state(keeping: Storage, done: list[Any]) -> None:
    put(keeping, 1)
    keeping.save()
    keeping.persist(change(Snapshot(1, 1, b"state")))
    assert done == [("journal", False), ("journal", True), "promises"]


def test_state_is_not_persisted_if_the_journal_cannot_be_written(
    keeping: Storage, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(sync: bool = True) -> None:
        raise JournalFull("there is no room")

    assert keeping.history is not None
    put(keeping, 1)
    with monkeypatch.context() as patched:
        patched.setattr(keeping.history.journal, "commit", full)
        with pytest.raises(JournalFull):
            keeping.persist(change())
    assert done == []


def test_storage_restores_state_and_events(tmp_path: Path, keeping: Storage) -> None:
    put(keeping, 1)
    keeping.persist(change())
    close(keeping)
    again = Storage(tmp_path)
    again.open(CONFIG, Clock(), lambda error: None)
    assert again.persistent_state is not None
    assert again.history is not None
    assert (again.persistent_state.member, again.persistent_state.term, again.history.last) == (MEMBER, 3, 1)
    close(again)


def test_storage_directory_is_locked_by_one_node(tmp_path: Path, keeping: Storage) -> None:
    with pytest.raises(JournalInUse):
        Storage(tmp_path).check(CONFIG)
    with pytest.raises(JournalInUse):
        Storage(tmp_path).open(CONFIG, Clock(), lambda error: None)
    Storage(tmp_path / "elsewhere").check(CONFIG)


def test_damaged_state_file_releases_the_journal_lock(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE_NAME).write_bytes(b"something else")
    broken = Storage(tmp_path)
    with pytest.raises(StateFileError):
        broken.open(CONFIG, Clock(), lambda error: None)
    close(broken)
    Storage(tmp_path).check(CONFIG)
