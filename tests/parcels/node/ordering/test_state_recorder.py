"""What followers may get before it is durable at their leader."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership, Snapshot
from fyrehose_twisted.parcels.node.ordering.state_recorder import StateRecorder

ME = MemberId(1, 1)


class Recorded:
    """A recorder with a log of one member that has recorded its vote."""

    def __init__(self) -> None:
        self.raft = RaftMember(ME, Random(1), 0.0, RaftLog(lambda entry: 1), lambda: Snapshot(1, 0, b""))
        self.raft.install_snapshot(1, 0, Membership(((ME, ("127.0.0.1", 1)),)))
        self.recorder = StateRecorder(durable=True)
        self.record()

    def record(self) -> bool:
        """Record one more entry, and return whether followers may get it first."""
        self.raft.log.append([LogEntry(1, EntryKind.NO_OP, None)])
        self.raft.first_unpersisted, self.raft.dirty = self.raft.log.last_index, True
        assert self.recorder.take_change(self.raft, 7) is not None
        return self.recorder.followers_may_go_first


def test_followers_may_get_entries_first() -> None:
    recorded = Recorded()
    assert recorded.record()
    assert recorded.record()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: setattr(one.raft, "term", 2),
        lambda one: setattr(one.raft, "voted_for", MemberId(2, 2)),
        lambda one: setattr(one.raft, "commit_index", one.raft.log.last_index + 1),
        lambda one: setattr(one.recorder, "dirty", True),
        lambda one: setattr(one.recorder, "snapshot", Snapshot(1, 0, b"")),
    ],
    ids=["term", "vote", "commit", "other state", "snapshot"],
)
def test_entries_wait_for_whatever_is_recorded_with_them(change: Callable[[Recorded], None]) -> None:
    recorded = Recorded()
    change(recorded)
    assert not recorded.record()
    assert recorded.record()
