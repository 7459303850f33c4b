from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.node.ordering.publisher_queue import (
    MAX_RUN_BYTES,
    UNANSWERED,
    NumberedBatch,
    PublisherQueue,
    RejectedBatch,
)
from fyrehose_twisted.parcels.node.ordering.publisher_sessions import PublisherSessions, RunPlacement
from fyrehose_twisted.parcels.wire.messages import PublisherRun


def each(numbers: tuple[tuple[int, int], ...]) -> list[int]:
    return [start + at for start, count in numbers for at in range(count)]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 40)), max_size=60), st.integers(0, 10_000))
def test_each_batch_is_answered_once_and_in_order_despite_losses(steps: list[tuple[int, int]], seed: int) -> None:
    """Lose and resend runs and acknowledgements at random, among events of other publishers."""
    rng = Random(seed)
    outbox, sessions, sequence = PublisherQueue("me", 10**9), PublisherSessions(), 0
    wire: list[PublisherRun] = []
    answers: list[tuple[int, int, tuple[tuple[int, int], ...]]] = []
    published: list[tuple[int, list[bytes]]] = []
    done: list[NumberedBatch] = []
    order: dict[int, bytes] = {}

    def order_next(run: PublisherRun) -> None:
        nonlocal sequence
        sequence += rng.randrange(3)
        placed = sessions.place(run, sequence + 1)
        if not isinstance(placed, RunPlacement):
            return
        for at, number in enumerate(each(placed.sequences)):
            assert order.setdefault(number, run.events[at]) == run.events[at]
        sequence += placed.new_count
        answers.append((run.epoch, run.first, placed.sequences))

    def lose_connection() -> None:
        wire.clear()
        answers.clear()
        outbox.resend_all()

    for what, amount in steps:
        if what <= 1:
            token = len(published)
            events = [b"%d/%d" % (token, at) + bytes(rng.choice((0, 0, 3_000, 30_000))) for at in range(amount)]
            published.append((token, events))
            outbox.publish(events, token)
        elif what == 2:
            wire.extend(outbox.take_runs())
        elif what == 3:
            for run in wire[:amount]:
                order_next(run)
            del wire[:amount]
        elif what == 4:
            for answer in answers[:amount]:
                done.extend(outbox.acknowledge(*answer))
            del answers[:amount]
        elif what == 5:
            lose_connection()
        elif answers:
            # Deliver a duplicate acknowledgement, or one out of order.
            done.extend(outbox.acknowledge(*rng.choice(answers)))
        waiting = published[len(done) :]
        assert outbox.pending_bytes <= sum(len(data) + EVENT_OVERHEAD for _, events in waiting for data in events)
    lose_connection()
    for _ in range(500):
        runs = outbox.take_runs()
        if not runs:
            break
        for run in runs:
            order_next(run)
        for answer in answers:
            done.extend(outbox.acknowledge(*answer))
        answers.clear()
    assert [one.token for one in done] == [token for token, _ in published]
    for one, (_, events) in zip(done, published, strict=True):
        numbers = each(one.numbers)
        assert [order[number] for number in numbers] == events
        assert numbers == sorted(numbers)
    assert (outbox.pending_events, outbox.pending_bytes) == (0, 0)


def test_runs_are_bounded_in_bytes_and_events() -> None:
    outbox = PublisherQueue("me", 10**9)
    outbox.publish([bytes(MAX_RUN_BYTES + 500)] * 2 + [bytes(20_000)] * 5 + [b""] * 10_000, 1)
    runs = outbox.take_runs()
    assert [len(run.events) for run in runs] == [1, 1, 2, 2, 3_644, 446]
    assert [run.first for run in runs] == [1, 2, 3, 5, 7, 3_651]
    assert outbox.take_runs() == []
    numbers = 0
    for run in runs:
        numbers += len(run.events)
        assert list(outbox.acknowledge(1, run.first, ((run.first, len(run.events)),))) == []
    assert numbers == UNANSWERED
    (run,) = outbox.take_runs()
    assert (run.first, len(run.events)) == (UNANSWERED + 1, UNANSWERED)


def test_events_published_together_may_share_a_run() -> None:
    outbox = PublisherQueue("me", 10**6, 7)
    outbox.publish([b"a"], 1)
    outbox.publish([b"b", b"c"], 2)
    assert outbox.take_runs() == [PublisherRun("me", 7, 1, [b"a", b"b", b"c"])]
    assert list(outbox.acknowledge(7, 1, ((10, 2), (20, 1)))) == [
        NumberedBatch(1, ((10, 1),)),
        NumberedBatch(2, ((11, 1), (20, 1))),
    ]


def test_acknowledgement_that_matches_no_run_is_ignored() -> None:
    outbox = PublisherQueue("me", 10**6)
    for data in (b"a", b"b"):
        outbox.publish([data, data], data)
        outbox.take_runs()
    for epoch, first, numbers in (
        (2, 1, ((1, 2),)),
        (1, 3, ((1, 2),)),
        (1, 2, ((1, 2),)),
        (1, 1, ((1, 1),)),
        (1, 1, ()),
    ):
        assert list(outbox.acknowledge(epoch, first, numbers)) == []
    assert list(outbox.acknowledge(1, 1, ((5, 2),))) == [NumberedBatch(b"a", ((5, 2),))]
    assert list(outbox.acknowledge(1, 1, ((5, 2),))) == []
    assert outbox.pending_events == 2


def test_resend_all_repeats_unacknowledged_runs_before_new_ones() -> None:
    outbox = PublisherQueue("me", 10**6)
    outbox.publish([b"a"], 1)
    first = outbox.take_runs()
    outbox.publish([b"b"], 2)
    second = outbox.take_runs()
    outbox.resend_all()
    outbox.publish([b"c"], 3)
    # An acknowledgement of the first transmission may still arrive.
    assert [one.token for one in outbox.acknowledge(1, 1, ((1, 1),))] == [1]
    third = outbox.take_runs()
    assert third == [*second, PublisherRun("me", 1, 3, [b"c"])]
    assert first == [PublisherRun("me", 1, 1, [b"a"])]
    assert outbox.take_runs() == []


def test_publisher_queue_is_bounded_in_bytes() -> None:
    outbox = PublisherQueue("me", 1_000)
    outbox.publish([bytes(2_000)], 1)  # A single batch is always accepted.
    with pytest.raises(PublishQueueFull):
        outbox.publish([b""], 2)
    outbox.take_runs()
    assert [one.token for one in outbox.acknowledge(1, 1, ((1, 1),))] == [1]
    outbox.publish([bytes(300)], 3)
    outbox.publish([bytes(300)], 4)
    with pytest.raises(PublishQueueFull):
        outbox.publish([bytes(300)], 5)
    assert (outbox.pending_events, outbox.pending_bytes) == (2, 2 * (300 + EVENT_OVERHEAD))


def test_abandon_all_rejects_every_batch_with_its_known_numbers() -> None:
    outbox = PublisherQueue("me", 10**6, 3)
    outbox.publish([bytes(30_000), bytes(30_000)], 1)
    outbox.take_runs()
    assert list(outbox.acknowledge(3, 1, ((5, 1),))) == []
    outbox.publish([b"x"], 2)
    assert outbox.abandon_all() == [RejectedBatch(1, ((5, 1),), True), RejectedBatch(2, (), False)]
    assert (outbox.pending_events, outbox.pending_bytes, outbox.take_runs()) == (0, 0, [])
    assert list(outbox.acknowledge(3, 2, ((6, 1),))) == []
    outbox.publish([b"y"], 3)
    # No late acknowledgement of the old epoch can match in the new one.
    assert outbox.take_runs() == [PublisherRun("me", 4, 1, [b"y"])]
    assert outbox.abandon_all() == [RejectedBatch(3, (), True)]
    assert outbox.epoch == 5
    assert outbox.abandon_all() == []
    assert outbox.epoch == 5


def test_cancelled_batch_in_flight_is_uncertain() -> None:
    outbox = PublisherQueue("me", 10**6)
    one, two = object(), object()
    outbox.publish([b"a"], one)
    outbox.take_runs()
    outbox.publish([b"b"], two)
    assert outbox.cancel(one) == RejectedBatch(one, (), True)
    assert outbox.cancel(object()) is None
    assert list(outbox.acknowledge(1, 1, ((1, 1),))) == [NumberedBatch(None, ((1, 1),))]
    assert outbox.take_runs() == [PublisherRun("me", 1, 2, [b"b"])]


def test_batch_cancelled_before_sending_is_not_sent() -> None:
    outbox = PublisherQueue("me", 10**6)
    token = object()
    outbox.publish([b"a"], token)
    assert outbox.cancel(token) == RejectedBatch(token, (), False)
    assert (outbox.take_runs(), outbox.pending_events, outbox.pending_bytes) == ([], 0, 0)
