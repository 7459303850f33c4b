from __future__ import annotations

import pytest

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.client.memory_store import MemoryStore
from fyrehose_twisted.fyrehose.node.client.publishing.linger import LingerState
from fyrehose_twisted.fyrehose.node.client.repair_responder import (
    BYTE_BURST,
    BYTE_RATE,
    QUEUE_BYTES,
    QUEUE_LIMIT,
    REQUESTERS,
    RepairResponder,
)
from fyrehose_twisted.fyrehose.node.drop_log import DropLog

OTHER: Address = ("10.0.0.8", 4000)


def make_responder(store: MemoryStore, rate: float = BYTE_RATE, burst: float = BYTE_BURST) -> RepairResponder:
    return RepairResponder(store, DropLog(), LingerState(), rate=rate, burst=burst)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    for sequence in range(1, 2_001):
        store.put(sequence, [bytes(100)])
    return store


def test_a_responder_sends_nothing_until_the_budget_is_refilled(store: MemoryStore) -> None:
    responder = make_responder(store, rate=1_000.0, burst=1_000.0)
    responder.enqueue(OTHER, 1, 50)
    assert responder.sent == 0
    assert len(responder.take_due(0.0)[0].datagrams) == 10
    assert responder.take_due(0.0) == []
    again = responder.next_deadline(0.0)
    assert again is not None
    assert again > 0.5
    assert len(responder.take_due(again)[0].datagrams) >= 1


def test_each_requester_has_its_own_repair_budget(store: MemoryStore) -> None:
    responder = make_responder(store, rate=1_000.0, burst=1_000.0)
    for port in (1, 2):
        responder.enqueue(("10.0.0.8", port), 1, 50)
    assert [(len(send.datagrams), send.peers) for send in responder.take_due(0.0)] == [
        (10, (("10.0.0.8", 1),)),
        (10, (("10.0.0.8", 2),)),
    ]


def test_repair_queues_and_requesters_are_limited_in_number(store: MemoryStore) -> None:
    responder = make_responder(store)
    assert [responder.enqueue(OTHER, 1, 2_000) for _ in range(5)] == [None] * 4 + ["forward_queue"]
    assert len(responder._queues[OTHER]) == QUEUE_LIMIT
    for port in range(REQUESTERS - 1):
        assert responder.enqueue(("10.0.0.9", port), 1, 1) is None
    assert responder.enqueue(("10.0.0.10", 1), 1, 1) == "forward_requesters"


def test_a_repair_queue_is_limited_in_bytes() -> None:
    store = MemoryStore()
    for sequence in range(1, 301):
        store.put(sequence, [bytes(60_000)])
    responder = make_responder(store)
    assert responder.enqueue(OTHER, 1, 300) == "forward_queue"
    waiting = len(responder._queues[OTHER])
    assert QUEUE_BYTES - 60_000 < waiting * 60_000 <= QUEUE_BYTES
    responder.take_due(0.0)
    assert len(responder._queues[OTHER]) < waiting
    assert responder.enqueue(OTHER, 1, 1) is None


def test_queued_messages_that_were_evicted_are_skipped() -> None:
    store = MemoryStore(600)
    responder = make_responder(store, rate=1.0, burst=1.0)
    store.put(1, [bytes(100)])
    store.put(2, [bytes(100)])
    responder.enqueue(OTHER, 1, 2)
    assert len(responder.take_due(0.0)) == 1
    for sequence in range(3, 9):
        store.put(sequence, [bytes(100)])
    assert responder.take_due(1_000.0) == []
    assert responder.next_deadline(1_000.0) is None


def test_empty_messages_are_charged_their_header_size() -> None:
    store = MemoryStore()
    for sequence in range(1, 1_025):
        store.put(sequence, [b""])
    responder = make_responder(store, rate=9.0, burst=900.0)
    responder.enqueue(OTHER, 1, 1_024)
    assert len(responder.take_due(0.0)[0].datagrams) == 100


def test_the_deadline_is_that_of_the_requester_with_budget_left(store: MemoryStore) -> None:
    responder = make_responder(store, rate=100_000.0, burst=100_000.0)
    for port, last in ((1, 1_024), (2, 930)):
        responder.enqueue(("10.0.0.8", port), 1, last)
    responder.take_due(0.0)
    responder.enqueue(("10.0.0.8", 3), 1, 1)
    assert responder.next_deadline(0.0) == 0.0


def test_a_requester_cannot_renew_its_budget_by_way_of_many_other_requesters(store: MemoryStore) -> None:
    responder = make_responder(store, rate=1.0, burst=1_000.0)
    for _ in range(3):
        for port in range(REQUESTERS):
            responder.enqueue(("10.0.0.8", port), 1, 10)
        responder.take_due(0.0)
    assert responder.sent == 10 * REQUESTERS
