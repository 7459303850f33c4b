from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering, InvalidSnapshot, RunResult
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import RunPlacement
from fyrehose_twisted.parcels.wire.messages import PublisherRun, RefusalReason

VIEW = Membership(((MemberId("Boris", 2), ("10.0.0.2", 1)), (MemberId("Ivan", 2**63 - 1), ("::1", 65_535))))


def entry(*runs: PublisherRun) -> LogEntry:
    return LogEntry(1, EntryKind.DATA, runs)


def test_applied_entry_numbers_its_events_consecutively() -> None:
    replica = EventNumbering()
    one, other = PublisherRun("a", 0, 1, [b"1", b"2"]), PublisherRun("b", 0, 1, [b"3"])
    assert replica.apply(entry(one, other)) == (
        [RunResult(one, RunPlacement(2, ((1, 2),))), RunResult(other, RunPlacement(1, ((3, 1),)))],
        [SequencedRun(1, "a", 0, 1, [b"1", b"2"]), SequencedRun(3, "b", 0, 1, [b"3"])],
    )
    assert replica.sequence == 3


def test_repeated_events_are_not_numbered_again() -> None:
    replica = EventNumbering()
    replica.apply(entry(PublisherRun("a", 3, 1, [b"1", b"2"])))
    again = PublisherRun("a", 3, 2, (b"2", b"3"))
    assert (
        replica.apply(entry(again, again))
        == (
            [RunResult(again, RunPlacement(1, ((2, 2),))), RunResult(again, RunPlacement(0, ((2, 2),)))],
            [SequencedRun(3, "a", 3, 3, (b"3",))],
        )
        or replica.sequence == 3
    )
    assert replica.repeats == 3
    assert replica.sequence == 3


def test_a_run_without_placement_gets_no_number() -> None:
    replica = EventNumbering()
    run = PublisherRun("a", 0, 5, [b"x"])
    assert replica.apply(entry(run, PublisherRun("b", 0, 1, [b"y"])))[0][0] == RunResult(run, RefusalReason.FORGOTTEN)
    assert replica.sequence == 1


def test_no_op_and_membership_entries_number_no_events() -> None:
    replica = EventNumbering()
    assert replica.apply(LogEntry(1, EntryKind.NO_OP, None)) == ([], [])
    assert replica.apply(LogEntry(1, EntryKind.MEMBERSHIP, VIEW)) == ([], [])
    assert replica.sequence == 0


RUNS = st.lists(
    st.builds(
        PublisherRun,
        st.sampled_from(("a", "ä")),
        st.integers(0, 2**63 - 1).map(lambda epoch: epoch % 3),
        st.integers(1, 6),
        st.lists(st.binary(max_size=3), min_size=1, max_size=4),
    ),
    max_size=20,
)


@given(RUNS, RUNS, st.integers(0, 2**63 - 1))
def test_a_restored_numbering_continues_like_the_original(
    before: list[PublisherRun], after: list[PublisherRun], cluster_id: int
) -> None:
    one, other = EventNumbering(), EventNumbering()
    one.cluster_id = cluster_id
    for run in before:
        one.apply(entry(run))
    assert other.load(one.dump(VIEW)) == VIEW
    assert (other.sequence, other.cluster_id) == (one.sequence, cluster_id)
    for run in after:
        assert other.apply(entry(run)) == one.apply(entry(run))
    assert other.dump(VIEW) == one.dump(VIEW)


GOOD = [3, 7, [["Ivan", 1, "10.0.0.1", 7_878]], [["a", 0, 3, [[1, 1, 3]]]]]


def changed(*path: int, to: object) -> bytes:
    value = cbor2.loads(cbor2.dumps(GOOD))
    place = value
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return cbor2.dumps(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x00",
        cbor2.dumps(GOOD)[:-1],
        cbor2.dumps(GOOD[:3]),
        cbor2.dumps([*GOOD, 1]),
        cbor2.dumps({"a": 1}),
        changed(0, to="3"),
        changed(0, to=-1),
        changed(0, to=True),
        changed(0, to=1.0),
        changed(1, to=None),
        changed(2, to=5),
        changed(2, 0, to=["Ivan", 1, "10.0.0.1"]),
        changed(2, 0, 0, to=b"Ivan"),
        changed(2, 0, 1, to="1"),
        changed(2, 0, 2, to=5),
        changed(2, 0, 3, to="x"),
        changed(3, to=7),
        changed(3, 0, 0, to=1),
        changed(3, 0, 1, to=-1),
        changed(3, 0, 2, to="x"),
        changed(3, 0, 3, to=1),
        changed(3, 0, 3, 0, to=[1, 1]),
        changed(3, 0, 3, 0, 2, to=-1),
        b"\x81" * 50 + b"\x00",
    ],
)
def test_malformed_snapshot_leaves_the_numbering_unchanged(data: bytes) -> None:
    replica = EventNumbering()
    replica.cluster_id = 9
    replica.apply(entry(PublisherRun("p", 0, 1, [b"x"])))
    before = replica.dump(VIEW)
    with pytest.raises(InvalidSnapshot):
        replica.load(data)
    assert replica.dump(VIEW) == before
