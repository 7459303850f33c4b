from __future__ import annotations

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.parcels.node.log_entries import ENTRY_OVERHEAD, EVENT_OVERHEAD, entry_runs, entry_size
from fyrehose_twisted.parcels.wire.messages import PublisherRun

RUN = PublisherRun("p", 0, 1, (b"abc", b""))
EVENTS = LogEntry(1, EntryKind.DATA, (RUN,))
NO_OP = LogEntry(1, EntryKind.NO_OP, None)
CHANGE = LogEntry(1, EntryKind.MEMBERSHIP, Membership(((MemberId("Ivan", 1), ("10.0.0.1", 7_878)),)))


def test_entry_size_counts_the_overhead_of_the_entry_and_of_each_event() -> None:
    assert entry_size(NO_OP) == ENTRY_OVERHEAD
    assert entry_size(CHANGE) == ENTRY_OVERHEAD
    assert entry_size(EVENTS) == ENTRY_OVERHEAD + 3 + 2 * EVENT_OVERHEAD


def test_only_data_entries_have_runs() -> None:
    assert entry_runs(EVENTS) == (RUN,)
    assert entry_runs(NO_OP) == entry_runs(CHANGE) == ()
