from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.parcels.node.ordering import publisher_sessions as module
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import (
    MAX_WEIGHT,
    REMEMBERED,
    ConditionFailed,
    PublisherSession,
    PublisherSessions,
    RunPlacement,
    event_digest,
)
from fyrehose_twisted.parcels.wire.messages import PublisherRun, RefusalReason


def run(publisher: str, epoch: int, first: int, count: int) -> PublisherRun:
    return PublisherRun(publisher, epoch, first, [b"x"] * count)


def each(numbers: tuple[tuple[int, int], ...]) -> list[int]:
    return [start + at for start, count in numbers for at in range(count)]


class UnboundedModel:
    """Reference model without limits."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.numbers: dict[str, list[int]] = {}

    def place(self, run: PublisherRun, sequence: int) -> tuple[int, list[int]] | RefusalReason:
        publisher, epoch, first, events, _ = run
        known = self.epochs.get(publisher)
        if known is None and first != 1:
            return RefusalReason.FORGOTTEN
        if known is not None and epoch < known:
            return RefusalReason.OUT_OF_ORDER
        if known is None or epoch > known:
            if first != 1:
                return RefusalReason.OUT_OF_ORDER
            self.epochs[publisher], self.numbers[publisher] = epoch, []
        given = self.numbers[publisher]
        if first > len(given) + 1:
            return RefusalReason.OUT_OF_ORDER
        new = max(0, first + len(events) - 1 - len(given))
        given.extend(range(sequence, sequence + new))
        return new, given[first - 1 : first - 1 + len(events)]


RUNS = st.lists(
    st.builds(run, st.sampled_from(("a", "b", "c")), st.integers(0, 2), st.integers(1, 12), st.integers(1, 6)),
    max_size=60,
)


@given(RUNS, st.booleans())
def test_runs_are_placed_as_by_an_unbounded_model(runs: list[PublisherRun], reloads: bool) -> None:
    sessions, model, sequence = PublisherSessions(), UnboundedModel(), 0
    for one in runs:
        placed, expected = sessions.place(one, sequence + 1), model.place(one, sequence + 1)
        if isinstance(expected, RefusalReason):
            assert placed is expected
        else:
            assert isinstance(placed, RunPlacement)
            assert (placed.new_count, each(placed.sequences)) == expected
            assert all(count > 0 for _, count in placed.sequences)
            sequence += placed.new_count
        if reloads:
            sessions = PublisherSessions.load(sessions.dump())
        weight = sum(1 + len(rows) for _, _, _, rows, _ in sessions.dump())
        assert sessions.weight == weight


@given(RUNS)
def test_sessions_restored_from_a_dump_place_runs_identically(runs: list[PublisherRun]) -> None:
    one, other, sequence = PublisherSessions(), PublisherSessions(), 0
    for each_run in runs:
        placed = one.place(each_run, sequence + 1)
        other = PublisherSessions.load(other.dump())
        assert other.place(each_run, sequence + 1) == placed
        assert other.dump() == one.dump()
        sequence += placed.new_count if isinstance(placed, RunPlacement) else 0


def test_an_unknown_publisher_starts_at_1() -> None:
    sessions = PublisherSessions()
    assert sessions.place(run("a", 7, 2, 1), 1) is RefusalReason.FORGOTTEN
    assert sessions.place(run("a", 7, 0, 1), 1) is RefusalReason.FORGOTTEN
    assert len(sessions) == 0
    assert sessions.place(run("a", 7, 1, 1), 1) == RunPlacement(1, ((1, 1),))


def test_run_that_starts_at_event_0_is_never_placed() -> None:
    sessions = PublisherSessions()
    sessions.place(run("a", 1, 1, 3), 1)
    assert sessions.place(run("a", 1, 0, 1), 4) is RefusalReason.FORGOTTEN
    assert sessions.place(run("a", 1, 0, 9), 4) is RefusalReason.FORGOTTEN
    assert sessions.place(run("a", 2, 0, 9), 4) is RefusalReason.OUT_OF_ORDER
    assert sessions.place(run("a", 1, 4, 1), 4) == RunPlacement(1, ((4, 1),))


def test_new_publisher_epoch_ends_the_previous_one() -> None:
    sessions = PublisherSessions()
    sessions.place(run("a", 1, 1, 3), 1)
    assert sessions.place(run("a", 2, 2, 1), 4) is RefusalReason.OUT_OF_ORDER
    assert sessions.place(run("a", 2, 1, 1), 4) == RunPlacement(1, ((4, 1),))
    assert sessions.place(run("a", 1, 4, 1), 5) is RefusalReason.OUT_OF_ORDER
    assert sessions.place(run("a", 1, 1, 1), 5) is RefusalReason.OUT_OF_ORDER
    assert sessions.weight == 2


def test_events_beyond_the_horizon_are_forgotten() -> None:
    sessions, sequence = PublisherSessions(), 0
    # An event of another publisher in between makes each event a row of its own.
    for number in range(1, REMEMBERED + 12):
        sessions.place(run("a", 0, number, 1), sequence + 1)
        sessions.place(run("b", 0, number, 1), sequence + 2)
        sequence += 2
    last = REMEMBERED + 11
    kept = last - REMEMBERED + 1
    assert sessions.place(run("a", 0, kept - 1, 1), 1) is RefusalReason.FORGOTTEN
    assert sessions.place(run("a", 0, kept - 1, 2), 1) is RefusalReason.FORGOTTEN
    assert sessions.place(run("a", 0, kept, 1), 1) == RunPlacement(0, ((2 * kept - 1, 1),))
    assert sessions.weight == 2 * (1 + REMEMBERED)


def test_the_least_recently_active_publisher_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WEIGHT", 6)
    sessions = PublisherSessions()
    for sequence, publisher in enumerate(("a", "b", "c"), 1):
        sessions.place(run(publisher, 0, 1, 1), sequence)
    assert sessions.weight == 6
    sessions.place(run("a", 0, 1, 1), 4)  # A repeat, which makes "a" the most recently active publisher.
    sessions.place(run("d", 0, 1, 1), 4)
    assert sessions.weight == 6
    assert sessions.place(run("b", 0, 2, 1), 5) is RefusalReason.FORGOTTEN
    assert sessions.place(run("a", 0, 1, 1), 5) == RunPlacement(0, ((1, 1),))
    assert sessions.place(run("d", 0, 1, 1), 5) == RunPlacement(0, ((4, 1),))


def test_the_active_publisher_is_not_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WEIGHT", 2)
    sessions = PublisherSessions()
    for number in range(1, 6):
        sessions.place(run("a", 0, number, 1), 2 * number)
    assert len(sessions) == 1
    assert sessions.place(run("a", 0, 1, 5), 20) == RunPlacement(0, ((2, 1), (4, 1), (6, 1), (8, 1), (10, 1)))


def test_empty_runs_do_not_grow_the_sessions_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WEIGHT", 50)
    sessions = PublisherSessions()
    for number in range(100):
        sessions.place(run(f"publisher {number}", 0, 1, 0), 1)
    assert sessions.weight <= 50


def test_consecutive_rows_of_a_session_are_merged() -> None:
    session = PublisherSession(0, b"")
    sessions = PublisherSessions()
    sessions.place(run("a", 0, 1, 2), 10)
    sessions.place(run("a", 0, 3, 2), 12)
    sessions.place(run("a", 0, 4, 3), 20)
    digest = event_digest(run("a", 0, 1, 1).events[0])
    assert sessions.dump() == [["a", 0, 6, [[1, 10, 4], [5, 20, 2]], digest]]
    assert session.find_sequences(1, 1) is None
    assert sessions.place(run("a", 0, 2, 4), 30) == RunPlacement(0, ((11, 3), (20, 1)))


def test_repeated_key_with_another_body_is_refused() -> None:
    sessions = PublisherSessions()
    assert sessions.place(PublisherRun("key", 1, 1, [b"pay 10"]), 1) == RunPlacement(1, ((1, 1),))
    for known in (sessions, PublisherSessions.load(sessions.dump())):
        assert known.place(PublisherRun("key", 1, 1, [b"pay 10"]), 2) == RunPlacement(0, ((1, 1),))
        assert known.place(PublisherRun("key", 1, 1, [b"pay 99"]), 2) is RefusalReason.OTHER_BODY
        assert known.weight == 2


def test_session_without_a_digest_accepts_any_body_as_a_repeat() -> None:
    sessions = PublisherSessions.load([("key", 1, 1, [(1, 5, 1)], b"")])
    assert sessions.place(PublisherRun("key", 1, 1, [b"whatever"]), 9) == RunPlacement(0, ((5, 1),))


def test_limits_of_publisher_sessions_match_the_documentation() -> None:
    assert (REMEMBERED, MAX_WEIGHT) == (8_192, 131_072)


def conditional(expect: int, publisher: str = "p", epoch: int = 1, data: bytes = b"x") -> PublisherRun:
    return PublisherRun(publisher, epoch, 1, [data], expect)


def test_run_is_placed_only_behind_the_event_that_it_expects() -> None:
    sessions = PublisherSessions()
    assert sessions.place(conditional(0), 1) == RunPlacement(1, ((1, 1),))
    assert sessions.place(conditional(0, "q"), 2) == ConditionFailed(1)
    assert sessions.place(conditional(1, "q"), 2) == RunPlacement(1, ((2, 1),))


def test_repeated_run_gets_its_number_although_its_condition_fails_by_now() -> None:
    sessions = PublisherSessions()
    sessions.place(conditional(0), 1)
    assert sessions.place(conditional(0), 8) == RunPlacement(0, ((1, 1),))
    assert sessions.place(conditional(0, data=b"y"), 8) is RefusalReason.OTHER_BODY


def test_run_refused_for_an_event_of_the_past_leaves_its_key_free() -> None:
    sessions = PublisherSessions()
    assert sessions.place(conditional(3), 8) == ConditionFailed(7)
    assert len(sessions) == sessions.weight == 0
    assert sessions.place(conditional(7, data=b"y"), 8) == RunPlacement(1, ((8, 1),))


@pytest.mark.parametrize("earlier", [False, True])
def test_run_refused_for_an_event_of_the_future_is_never_placed(earlier: bool) -> None:
    sessions = PublisherSessions()
    if earlier:
        sessions.place(run("p", 0, 1, 2), 1)
    assert sessions.place(conditional(8), 8) == ConditionFailed(7)
    assert sessions.weight == len(sessions) == 1
    assert sessions.place(conditional(8), 9) is RefusalReason.OUT_OF_ORDER
    reloaded = PublisherSessions.load([tuple(row) for row in sessions.dump()])
    assert reloaded.place(conditional(8), 9) is RefusalReason.OUT_OF_ORDER
    assert reloaded.place(conditional(8, epoch=2), 9) == RunPlacement(1, ((9, 1),))


def test_later_epoch_outlasts_the_refusal_of_an_earlier_one() -> None:
    sessions = PublisherSessions()
    sessions.place(run("p", 5, 1, 2), 1)
    assert sessions.place(conditional(8), 3) == ConditionFailed(2)
    assert sessions.place(run("p", 5, 3, 1), 3) == RunPlacement(1, ((3, 1),))
    assert sessions.weight == 2


def test_only_the_first_run_of_an_epoch_has_a_condition() -> None:
    sessions = PublisherSessions()
    sessions.place(run("p", 1, 1, 1), 1)
    assert sessions.place(PublisherRun("p", 1, 2, [b"x"], 1), 2) is RefusalReason.OUT_OF_ORDER
