from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.node.ordering.backfill import MAX_UNANSWERED, REPLY_TIMEOUT, EventBackfill
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.wire.messages import FetchEvents, FetchEventsReply

BACKWARDS = "what somebody said of an earlier number takes it back there, so that events come twice"

A, B, C = (MemberId(name, 1) for name in "ABC")


def row(first: int, count: int, publisher: str = "p", epoch: int = 0, number: int | None = None) -> FetchEventsReply:
    number = first if number is None else number
    return FetchEventsReply(first, [(publisher, epoch, number + at, b"%d" % (first + at)) for at in range(count)])


HOLDINGS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=0, max_size=4)


@given(HOLDINGS, st.integers(1, 30), st.integers(0, 40), st.integers(0, 10_000))
@example([(2, 0), (1, 2)], 1, 2, 0)
def test_backfill_fetches_every_event_that_any_node_holds(
    holdings: list[tuple[int, int]], first: int, more: int, seed: int
) -> None:
    rng, last = Random(seed), first + more
    members = [MemberId(f"m{at}", 1) for at in range(len(holdings))]
    held = dict(zip(members, holdings, strict=True))
    silent = set(rng.sample(members, rng.randrange(len(members) + 1))) if rng.random() < 0.4 else set()
    backfill, now, came, skipped = EventBackfill(first, last), 0.0, [], []
    for _ in range(1_000):
        if backfill.next_sequence > last:
            break
        question = backfill.next_request(members, now)
        if question is None:
            reached = backfill.skip_unavailable(members)
            if reached is not None:
                skipped.extend(range(first + len(came) + len(skipped), reached + 1))
            now = max(now, backfill.deadline)
            continue
        who, fetch = question
        assert (fetch.first, fetch.last) == (backfill.next_sequence, last)
        if who in silent:
            now = backfill.deadline
            continue
        begin, count = held[who]
        oldest, end = begin, begin + count - 1
        start, stop = max(fetch.first, oldest), min(fetch.last, end)
        size = max(0, min(stop - start + 1, rng.randrange(1, 20)))
        # A reply of another node is ignored.
        assert backfill.reply_received(row(backfill.next_sequence, 1), MemberId("stranger", 1)) == []
        for stretch in backfill.reply_received(row(start, size), who):
            assert stretch.first == first + len(came) + len(skipped)
            came.extend(range(stretch.first, stretch.end))
            assert list(stretch.data) == [b"%d" % number for number in range(stretch.first, stretch.end)]
    else:
        raise AssertionError("it never ends")
    everything = {
        number
        for member, (begin, count) in held.items()
        if member not in silent
        for number in range(max(begin, first), min(begin + count - 1, last) + 1)
    }
    assert sorted(came + skipped) == list(range(first, last + 1))
    assert set(came) == everything


def test_backfill_never_goes_back() -> None:
    backfill = EventBackfill(1, 20)
    backfill.next_request([A, B], 0.0)
    backfill.reply_received(row(8, 5), A)  # A holds nothing before 8.
    backfill.next_request([A, B], 0.0)
    backfill.reply_received(row(1, 10), B)
    assert backfill.next_sequence == 11
    backfill.next_request([A, B], 0.0)
    backfill.reply_received(FetchEventsReply(11, []), B)  # B holds nothing more.
    # A holds 11 and 12, but was not asked for them.
    assert backfill.skip_unavailable([A, B]) in (None, 10)
    assert backfill.next_sequence == 11


def test_fetched_events_are_grouped_into_runs_per_publisher() -> None:
    backfill = EventBackfill(5, 20)
    assert backfill.next_request([A], 0.0) == (A, FetchEvents(5, 20))
    events = [("p", 0, 1, b"5"), ("p", 0, 2, b"6"), ("q", 0, 3, b"7"), ("q", 1, 4, b"8"), ("q", 1, 7, b"9")]
    assert backfill.reply_received(FetchEventsReply(5, events), A) == [
        SequencedRun(5, "p", 0, 1, [b"5", b"6"]),
        SequencedRun(7, "q", 0, 3, [b"7"]),
        SequencedRun(8, "q", 1, 4, [b"8"]),
        SequencedRun(9, "q", 1, 7, [b"9"]),
    ]
    assert backfill.next_sequence == 10


def test_preferred_source_is_asked_until_it_replies_or_times_out() -> None:
    backfill = EventBackfill(1, 9)
    assert backfill.next_request([B, A], 10.0) == (B, FetchEvents(1, 9))
    assert backfill.next_request([B, A], 10.0) is None
    assert backfill.deadline == 10.0 + REPLY_TIMEOUT
    assert backfill.next_request([B, A], 10.0 + REPLY_TIMEOUT - 0.01) is None
    # After a timeout, or if a source disconnects, another one is asked.
    assert backfill.next_request([B, A], 10.0 + REPLY_TIMEOUT) == (A, FetchEvents(1, 9))
    assert backfill.next_request([B, C], 12.1) == (C, FetchEvents(1, 9))
    # Late replies are ignored.
    assert backfill.reply_received(row(1, 3), B) == []
    assert backfill.next_sequence == 1
    assert len(backfill.reply_received(row(1, 3), C)) == 1
    assert backfill.next_request([A], 13.0) == (A, FetchEvents(4, 9))


def test_backfill_skips_events_that_no_node_holds() -> None:
    backfill = EventBackfill(1, 9)
    backfill.next_request([A, B], 0.0)
    assert backfill.skip_unavailable([A, B]) is None
    backfill.reply_received(FetchEventsReply(7, []), A)
    assert backfill.skip_unavailable([A, B]) is None
    backfill.next_request([A, B], 0.0)
    backfill.reply_received(row(4, 3), B)
    assert backfill.skip_unavailable([A, B, C]) is None
    assert backfill.skip_unavailable([A, B]) == 3
    assert backfill.next_sequence == 4
    assert backfill.next_request([A, B], 0.0) == (A, FetchEvents(4, 9))


def test_backfill_without_other_members_skips_all_events() -> None:
    backfill = EventBackfill(1, 9)
    assert backfill.next_request([], 0.0) is None
    assert backfill.skip_unavailable([]) == 9


def test_backfill_waits_for_members_that_cannot_be_asked_yet() -> None:
    backfill = EventBackfill(1, 9)
    assert backfill.next_request([], 0.0) is None
    assert backfill.skip_unavailable([A, B]) is None
    assert backfill.next_request([A], backfill.deadline) == (A, FetchEvents(1, 9))
    backfill.reply_received(FetchEventsReply(1, []), A)
    assert backfill.next_request([A], 2.5) is None
    assert backfill.skip_unavailable([A, B]) is None
    assert backfill.next_request([A, B], 3.0) == (B, FetchEvents(1, 9))
    assert len(backfill.reply_received(row(1, 9), B)) == 1


def test_slow_member_is_asked_again() -> None:
    backfill, asked = EventBackfill(1, 9), []
    while backfill.skip_unavailable([A, B]) is None:
        question = backfill.next_request([A, B], backfill.deadline)
        asked += [] if question is None else [question[0]]
    assert asked == [A, B] * MAX_UNANSWERED
    # A reply begins the count anew.
    backfill = EventBackfill(1, 9)
    for _ in range(MAX_UNANSWERED - 1):
        backfill.next_request([A], backfill.deadline)
    backfill.next_request([A], backfill.deadline)
    assert len(backfill.reply_received(row(1, 3), A)) == 1
    for _ in range(MAX_UNANSWERED):
        assert backfill.next_request([A], backfill.deadline) == (A, FetchEvents(4, 9))
    assert backfill.next_request([A], backfill.deadline) is None


def test_reply_that_starts_before_the_requested_event_is_ignored() -> None:
    backfill = EventBackfill(5, 9)
    backfill.next_request([A], 0.0)
    assert backfill.reply_received(row(4, 3), A) == []
    assert backfill.next_sequence == 5
    assert backfill.skip_unavailable([A]) == 9
