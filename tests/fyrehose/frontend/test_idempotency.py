"""Idempotency keys of the frontend."""

from __future__ import annotations

from typing import Any

import pytest
from suite.frontend_bench import Frontend
from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.errors import PublishTimeout
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.idempotency import (
    ENTRY_BYTES,
    NUMBER_BYTES,
    IdempotencyKeyReused,
    IdempotencyKeys,
    OutcomeUnknown,
)
from fyrehose_twisted.fyrehose.frontend.publish_queue import BatchFailed, QueueFull

ONE = ENTRY_BYTES + NUMBER_BYTES
"""Size of a request with one message in bytes."""


def fired(deferred: Deferred[Any]) -> list[Any]:
    found: list[Any] = []
    deferred.addBoth(lambda result: found.append(list(result) if not hasattr(result, "value") else result.value))
    return found


def test_a_repeated_request_gets_the_same_numbers_and_publishes_nothing(frontend: Frontend) -> None:
    keys = IdempotencyKeys(frontend.publish_queue)
    for _ in range(2):
        assert fired(keys.publish("ann", "k", b"d", [b"1", b"2"])) == [[1, 2]]
    assert fired(keys.publish("bob", "k", b"d", [b"3"])) == [[3]]
    assert fired(keys.publish("ann", "l", b"d", [b"4"])) == [[4]]
    assert frontend.publisher.messages == [b"1", b"2", b"3", b"4"]


def test_a_repeated_request_waits_for_the_pending_messages(frontend: Frontend) -> None:
    keys, frontend.publisher.held = IdempotencyKeys(frontend.publish_queue), []
    waiting = [keys.publish("ann", "k", b"d", [b"1"]) for _ in range(3)]
    gone = fired(waiting[0])
    waiting[0].cancel()
    assert isinstance(gone[0], CancelledError)
    others = list(map(fired, waiting[1:]))
    frontend.publisher.answer()
    assert others == [[[1]], [[1]]]
    assert frontend.publisher.messages == [b"1"]


def test_a_request_continues_after_its_client_has_disconnected(frontend: Frontend) -> None:
    keys, frontend.publisher.full = IdempotencyKeys(frontend.publish_queue), True
    keys.publish("ann", "k", b"d", [b"1"]).addErrback(lambda failure: failure.trap(CancelledError)).cancel()
    frontend.publisher.make_room()
    assert fired(keys.publish("ann", "k", b"d", [b"1"])) == [[1]]
    assert frontend.publisher.messages == [b"1"]


def test_a_key_with_another_body_is_refused(frontend: Frontend) -> None:
    keys = IdempotencyKeys(frontend.publish_queue)
    keys.publish("ann", "k", b"d", [b"1"])
    with pytest.raises(IdempotencyKeyReused):
        keys.publish("ann", "k", b"e", [b"2"])
    assert frontend.publisher.messages == [b"1"]


def test_messages_with_unknown_outcome_are_not_published_again(frontend: Frontend) -> None:
    keys, frontend.publisher.held = IdempotencyKeys(frontend.publish_queue), []
    first = fired(keys.publish("ann", "k", b"d", [b"1"]))
    frontend.publisher.answer(PublishTimeout("late"))
    assert (type(first[0]), first[0].unknown) == (BatchFailed, True)
    with pytest.raises(OutcomeUnknown):
        keys.publish("ann", "k", b"d", [b"1"])
    assert frontend.publisher.messages == [b"1"]


def test_a_repeated_request_publishes_messages_that_certainly_failed(frontend: Frontend) -> None:
    keys = IdempotencyKeys(frontend.publish_queue)
    frontend.publish_queue.connection_changed(False)
    first = fired(keys.publish("ann", "k", b"d", [b"1"]))
    frontend.clock.pump([1] * 31)
    assert first[0].unknown is False
    assert (len(keys), keys.size) == (0, 0)
    frontend.publish_queue.connection_changed(True)
    assert fired(keys.publish("ann", "k", b"d", [b"1"])) == [[1]]


def test_a_refused_request_is_not_remembered() -> None:
    frontend = Frontend(FrontendConfig(waiting_bytes=100))
    frontend.publisher.full = True
    keys = IdempotencyKeys(frontend.publish_queue)
    keys.publish("ann", "k", b"d", [b"x" * 80])
    with pytest.raises(QueueFull):
        keys.publish("bob", "k", b"d", [b"x" * 80])
    assert (len(keys), keys.size) == (1, ONE)


def test_the_oldest_request_of_a_client_is_discarded_first() -> None:
    frontend = Frontend(FrontendConfig(remembered_bytes=8 * ONE))
    keys = IdempotencyKeys(frontend.publish_queue)
    for number in range(10):
        keys.publish("ann", str(number), b"d", [b"x"])
    assert (len(keys), keys.size) == (4, 4 * ONE)  # The new client may use the remaining memory.
    for number in range(10):
        keys.publish("bob", str(number), b"d", [b"x"])
    assert len(keys) == 6
    count = len(frontend.publisher.messages)
    for client, number in (("ann", 6), ("ann", 9), ("bob", 9)):
        keys.publish(client, str(number), b"d", [b"x"])
    assert len(frontend.publisher.messages) == count
    keys.publish("ann", "0", b"d", [b"x"])
    assert len(frontend.publisher.messages) == count + 1


def test_a_new_client_finds_room_among_many_clients() -> None:
    frontend = Frontend(FrontendConfig(remembered_bytes=4 * ONE))
    keys = IdempotencyKeys(frontend.publish_queue)
    for client in range(20):
        assert fired(keys.publish(str(client), "k", b"d", [b"x"])) == [[client + 1]]
    assert keys.size <= 4 * ONE
    keys.publish("19", "k", b"d", [b"x"])
    assert len(frontend.publisher.messages) == 20


def test_a_pending_request_is_not_discarded() -> None:
    frontend = Frontend(FrontendConfig(remembered_bytes=2 * ONE))
    keys, frontend.publisher.held = IdempotencyKeys(frontend.publish_queue), []
    keys.publish("ann", "1", b"d", [b"x"])
    with pytest.raises(QueueFull) as refused:
        keys.publish("ann", "2", b"d", [b"x"])
    assert refused.value.is_client_limit
    keys.publish("bob", "1", b"d", [b"x"])
    with pytest.raises(QueueFull) as refused:
        keys.publish("eve", "1", b"d", [b"x"])
    assert not refused.value.is_client_limit
    assert len(frontend.publisher.messages) == 2
