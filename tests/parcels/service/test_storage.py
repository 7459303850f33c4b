"""What outlives a node's process, and in which order it becomes durable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.journal.errors import JournalFull, JournalInUse
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.ordering.history import Stretch
from fyrehose_twisted.parcels.node.persistent_state import Change, State
from fyrehose_twisted.parcels.service.storage import PROMISES, Keeping
from fyrehose_twisted.parcels.wire.messages import Member

CONFIG = NodeConfig("a")
MEMBER = Member("a", 7)


def change(state: State | None = None) -> Change:
    return Change(term=3, vote=MEMBER, founding=5, commit=0, state=state, first=0, entries=())


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    opened = Keeping(tmp_path)
    opened.open(CONFIG, Clock(), lambda error: None)
    assert opened.promises is not None
    opened.promises.begin(MEMBER)
    yield opened
    close(opened)


def close(keeping: Keeping) -> None:
    """Close it; no thread is at work here that would have to be waited for."""
    assert ensureDeferred(keeping.close()).called


@pytest.fixture
def done(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done, in order."""
    noted: list[Any] = []
    journal, promises = keeping.history.journal, keeping.promises  # type: ignore[union-attr]
    commit, keep = journal.commit, promises.keep  # type: ignore[union-attr]

    def noting_commit(sync: bool = True) -> None:
        noted.append(("journal", sync))
        commit(sync)

    def noting_keep(what: Change) -> None:
        noted.append("promises")
        keep(what)

    monkeypatch.setattr(journal, "commit", noting_commit)
    monkeypatch.setattr(promises, "keep", noting_keep)
    return noted


def put(keeping: Keeping, number: int) -> None:
    assert keeping.history is not None
    keeping.history.put([Stretch(number, "someone", 1, number, [b"x"])])


def test_events_are_written_before_promises(keeping: Keeping, done: list[Any]) -> None:
    put(keeping, 1)
    keeping.keep(change())
    keeping.keep(change())
    assert done == [("journal", False), "promises", "promises"]


def test_events_are_durable_before_promises_no_longer_have_them(keeping: Keeping, done: list[Any]) -> None:
    put(keeping, 1)
    keeping.save()
    keeping.keep(change(State(1, 1, b"state")))
    assert done == [("journal", False), ("journal", True), "promises"]


def test_what_cannot_be_written_is_not_promised(
    keeping: Keeping, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(sync: bool = True) -> None:
        raise JournalFull("there is no room")

    assert keeping.history is not None
    put(keeping, 1)
    with monkeypatch.context() as patched:
        patched.setattr(keeping.history.journal, "commit", full)
        with pytest.raises(JournalFull):
            keeping.keep(change())
    assert done == []


def test_it_finds_again_what_it_kept(tmp_path: Path, keeping: Keeping) -> None:
    put(keeping, 1)
    keeping.keep(change())
    close(keeping)
    again = Keeping(tmp_path)
    again.open(CONFIG, Clock(), lambda error: None)
    assert again.promises is not None
    assert again.history is not None
    assert (again.promises.member, again.promises.term, again.history.last) == (MEMBER, 3, 1)
    close(again)


def test_a_directory_is_for_one_node(tmp_path: Path, keeping: Keeping) -> None:
    with pytest.raises(JournalInUse):
        Keeping(tmp_path).check(CONFIG)
    with pytest.raises(JournalInUse):
        Keeping(tmp_path).open(CONFIG, Clock(), lambda error: None)
    Keeping(tmp_path / "elsewhere").check(CONFIG)


def test_promises_that_are_damaged_let_go_of_the_journal(tmp_path: Path) -> None:
    (tmp_path / PROMISES).write_bytes(b"something else")
    broken = Keeping(tmp_path)
    with pytest.raises(StateFileError):
        broken.open(CONFIG, Clock(), lambda error: None)
    close(broken)
    Keeping(tmp_path).check(CONFIG)
