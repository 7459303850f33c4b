from __future__ import annotations

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.parcels.node.ordering.event_numbering import BadState, Replica, Result
from fyrehose_twisted.parcels.node.ordering.history import Stretch
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import Placed
from fyrehose_twisted.parcels.wire.messages import Entry, EntryKind, Member, Refusal, Run, View

VIEW = View(((Member("Boris", 2), ("10.0.0.2", 1)), (Member("Ivan", 2**63 - 1), ("::1", 65_535))))


def entry(*runs: Run) -> Entry:
    return Entry(1, EntryKind.EVENTS, runs)


def test_entries_give_events_their_numbers() -> None:
    replica = Replica()
    one, other = Run("a", 0, 1, [b"1", b"2"]), Run("b", 0, 1, [b"3"])
    assert replica.take(entry(one, other)) == (
        [Result(one, Placed(2, ((1, 2),))), Result(other, Placed(1, ((3, 1),)))],
        [Stretch(1, "a", 0, 1, [b"1", b"2"]), Stretch(3, "b", 0, 1, [b"3"])],
    )
    assert replica.sequence == 3


def test_repeats_are_left_out() -> None:
    replica = Replica()
    replica.take(entry(Run("a", 3, 1, [b"1", b"2"])))
    again = Run("a", 3, 2, (b"2", b"3"))
    assert (
        replica.take(entry(again, again))
        == (
            [Result(again, Placed(1, ((2, 2),))), Result(again, Placed(0, ((2, 2),)))],
            [Stretch(3, "a", 3, 3, (b"3",))],
        )
        or replica.sequence == 3
    )
    assert replica.repeats == 3
    assert replica.sequence == 3


def test_what_has_no_place_gets_no_number() -> None:
    replica = Replica()
    run = Run("a", 0, 5, [b"x"])
    assert replica.take(entry(run, Run("b", 0, 1, [b"y"])))[0][0] == Result(run, Refusal.FORGOTTEN)
    assert replica.sequence == 1


def test_other_entries_have_no_events() -> None:
    replica = Replica()
    assert replica.take(Entry(1, EntryKind.NOTHING, None)) == ([], [])
    assert replica.take(Entry(1, EntryKind.VIEW, VIEW)) == ([], [])
    assert replica.sequence == 0


RUNS = st.lists(
    st.builds(
        Run,
        st.sampled_from(("a", "ä")),
        st.integers(0, 2**63 - 1).map(lambda epoch: epoch % 3),
        st.integers(1, 6),
        st.lists(st.binary(max_size=3), min_size=1, max_size=4),
    ),
    max_size=20,
)


@given(RUNS, RUNS, st.integers(0, 2**63 - 1))
def test_one_who_takes_the_state_goes_on_alike(before: list[Run], after: list[Run], founding: int) -> None:
    one, other = Replica(), Replica()
    one.founding = founding
    for run in before:
        one.take(entry(run))
    assert other.load(one.dump(VIEW)) == VIEW
    assert (other.sequence, other.founding) == (one.sequence, founding)
    for run in after:
        assert other.take(entry(run)) == one.take(entry(run))
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
def test_what_is_no_state_changes_nothing(data: bytes) -> None:
    replica = Replica()
    replica.founding = 9
    replica.take(entry(Run("p", 0, 1, [b"x"])))
    before = replica.dump(VIEW)
    with pytest.raises(BadState):
        replica.load(data)
    assert replica.dump(VIEW) == before
