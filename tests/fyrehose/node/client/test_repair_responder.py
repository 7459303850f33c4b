from __future__ import annotations

import pytest

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.repair_responder import QUEUE_BYTES, QUEUE_LIMIT, REQUESTERS, RepairResponder

OTHER: Address = ("10.0.0.8", 4000)


@pytest.fixture
def history() -> MemoryStore:
    history = MemoryStore()
    for sequence in range(1, 2_001):
        history.put(sequence, [bytes(100)])
    return history


def test_nothing_is_sent_before_there_is_credit_again(history: MemoryStore) -> None:
    answers = RepairResponder(history, rate=1_000.0, burst=1_000.0)
    answers.enqueue(OTHER, 1, 50)
    assert answers.sent == 0
    assert len(answers.take_due(0.0)[0].datagrams) == 10
    assert answers.take_due(0.0) == []
    again = answers.next_deadline(0.0)
    assert again is not None
    assert again > 0.5
    assert len(answers.take_due(again)[0].datagrams) >= 1


def test_requesters_have_each_their_own_budget(history: MemoryStore) -> None:
    answers = RepairResponder(history, rate=1_000.0, burst=1_000.0)
    for port in (1, 2):
        answers.enqueue(("10.0.0.8", port), 1, 50)
    assert [(len(send.datagrams), send.peers) for send in answers.take_due(0.0)] == [
        (10, (("10.0.0.8", 1),)),
        (10, (("10.0.0.8", 2),)),
    ]


def test_queues_and_requesters_have_limits(history: MemoryStore) -> None:
    answers = RepairResponder(history)
    assert [answers.enqueue(OTHER, 1, 2_000) for _ in range(5)] == [None] * 4 + ["forward_queue"]
    assert len(answers._queues[OTHER]) == QUEUE_LIMIT
    for port in range(REQUESTERS - 1):
        assert answers.enqueue(("10.0.0.9", port), 1, 1) is None
    assert answers.enqueue(("10.0.0.10", 1), 1, 1) == "forward_requesters"


def test_a_queue_is_limited_in_bytes_too() -> None:
    history = MemoryStore()
    for sequence in range(1, 301):
        history.put(sequence, [bytes(60_000)])
    answers = RepairResponder(history)
    assert answers.enqueue(OTHER, 1, 300) == "forward_queue"
    waiting = len(answers._queues[OTHER])
    assert QUEUE_BYTES - 60_000 < waiting * 60_000 <= QUEUE_BYTES
    answers.take_due(0.0)
    assert len(answers._queues[OTHER]) < waiting
    assert answers.enqueue(OTHER, 1, 1) is None


def test_what_is_no_longer_held_is_skipped() -> None:
    history = MemoryStore(600)
    answers = RepairResponder(history, rate=1.0, burst=1.0)
    history.put(1, [bytes(100)])
    history.put(2, [bytes(100)])
    answers.enqueue(OTHER, 1, 2)
    assert len(answers.take_due(0.0)) == 1
    for sequence in range(3, 9):
        history.put(sequence, [bytes(100)])
    assert answers.take_due(1_000.0) == []
    assert answers.next_deadline(1_000.0) is None


def test_empty_messages_cost_their_headers() -> None:
    history = MemoryStore()
    for sequence in range(1, 1_025):
        history.put(sequence, [b""])
    answers = RepairResponder(history, rate=9.0, burst=900.0)
    answers.enqueue(OTHER, 1, 1_024)
    assert len(answers.take_due(0.0)[0].datagrams) == 100


def test_it_wants_to_go_on_for_whoever_has_credit_first(history: MemoryStore) -> None:
    answers = RepairResponder(history, rate=100_000.0, burst=100_000.0)
    for port, last in ((1, 1_024), (2, 930)):
        answers.enqueue(("10.0.0.8", port), 1, last)
    answers.take_due(0.0)
    answers.enqueue(("10.0.0.8", 3), 1, 1)
    assert answers.next_deadline(0.0) == 0.0


def test_a_requester_cannot_renew_its_budget_by_having_many_others_ask(history: MemoryStore) -> None:
    answers = RepairResponder(history, rate=1.0, burst=1_000.0)
    for _ in range(3):
        for port in range(REQUESTERS):
            answers.enqueue(("10.0.0.8", port), 1, 10)
        answers.take_due(0.0)
    assert answers.sent == 10 * REQUESTERS
