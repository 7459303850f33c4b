"""Publish queue of the frontend: order, limits and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from suite.frontend_bench import Frontend
from suite.sealing import ring
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from fyrehose_twisted.errors import MessageTooLarge, PublishTimeout
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.publish_queue import TURN_BYTES, BatchFailed, QueueFull
from fyrehose_twisted.fyrehose.frontend.publisher import publisher_config
from fyrehose_twisted.fyrehose.frontend.service import FrontendService
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.wire.packets import Holding
from fyrehose_twisted.sealing.key_file import create_key_ring
from fyrehose_twisted.sealing.key_source import KeySource
from fyrehose_twisted.sealing.payload import SEAL_OVERHEAD


def result(deferred: Deferred[Any]) -> Any:
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "it has not fired"
    return found[0]


def failure(deferred: Deferred[Any]) -> Any:
    return result(deferred).value


def test_a_published_batch_returns_its_numbers(frontend: Frontend) -> None:
    assert result(frontend.publish_queue.submit("a", [b"1", b"2"])) == [1, 2]
    assert result(frontend.publish_queue.submit("a", [b"3"])) == [3]
    assert (
        frontend.publish_queue.published,
        frontend.publish_queue.published_bytes,
        frontend.publish_queue.waiting_bytes,
    ) == (3, 3, 0)


def test_long_batches_are_published_in_order(frontend: Frontend) -> None:
    messages = [b"%d" % number for number in range(1_000)]
    assert result(frontend.publish_queue.submit("a", messages)) == list(range(1, 1_001))
    assert frontend.publisher.messages == messages
    assert frontend.publisher.runs == [256, 256, 256, 232]


def test_clients_take_turns_in_the_publish_queue(frontend: Frontend) -> None:
    frontend.publisher.full = True
    long = frontend.publish_queue.submit("a", [b"a"] * 1_000)
    short = frontend.publish_queue.submit("b", [b"b"])
    frontend.publisher.make_room()
    assert frontend.publisher.messages.index(b"b") == 256
    assert result(short) == [257]
    assert result(long) == [*range(1, 257), *range(258, 1_002)]


def test_a_batch_waits_for_room_in_the_publisher(frontend: Frontend) -> None:
    frontend.publisher.full = True
    waiting = [frontend.publish_queue.submit("a", [b"%d" % number]) for number in range(3)]
    assert frontend.publisher.messages == []
    assert len(frontend.publisher.rooms) == 1
    frontend.publisher.make_room()
    assert [result(one) for one in waiting] == [[1], [2], [3]]


def test_a_batch_waits_until_the_backbone_answers(frontend: Frontend) -> None:
    frontend.publish_queue.connection_changed(False)
    waiting = frontend.publish_queue.submit("a", [b"1"])
    assert frontend.publisher.messages == []
    frontend.publish_queue.connection_changed(True)
    assert result(waiting) == [1]


def test_a_waiting_batch_times_out(frontend: Frontend) -> None:
    frontend.publish_queue.connection_changed(False)
    waiting = frontend.publish_queue.submit("a", [b"1"])
    frontend.clock.advance(29)
    waiting_later = frontend.publish_queue.submit("a", [b"2"])
    frontend.clock.pump([1, 1])
    error = failure(waiting)
    assert (error.reason, error.unknown) == ("timeout", False)
    assert "the backbone does not answer" in str(error)
    frontend.publish_queue.connection_changed(True)
    assert result(waiting_later) == [1]
    assert frontend.publisher.messages == [b"2"]
    assert frontend.publish_queue.failed == {"timeout": 1}


def test_the_outcome_of_unacknowledged_messages_is_unknown(frontend: Frontend) -> None:
    frontend.publisher.held = []
    waiting = frontend.publish_queue.submit("a", [b"1"] * 300)
    frontend.publisher.answer(PublishTimeout("late"))
    error = failure(waiting)
    assert (error.reason, error.unknown) == ("timeout", True)
    assert frontend.publish_queue.failed == {"timeout": 300}
    assert frontend.publish_queue.waiting_bytes == 0


def test_the_publish_timeout_sweep_continues_after_an_exception(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend.publisher.full = True
    done = frontend.publish_queue.submit("a", [b"1"])

    def fail(*arguments: object) -> None:
        raise TypeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(frontend.publish_queue, "_fail", fail)
        with pytest.raises(TypeError, match="a bug"):
            frontend.clock.pump([1.0] * 60)
    frontend.clock.pump([1.0] * 2)
    assert failure(done).reason == "timeout"


def test_the_outcome_of_a_partly_sent_batch_is_unknown(frontend: Frontend) -> None:
    frontend.publisher.held = []
    original = frontend.publisher.publish_many

    def publish_many(messages: Any) -> Any:
        frontend.publisher.full = True
        return original(messages)

    frontend.publisher.publish_many = publish_many
    waiting = frontend.publish_queue.submit("a", [b"1"] * 300)
    frontend.clock.pump([1] * 31)
    assert failure(waiting).unknown
    frontend.publisher.answer()  # Too late for the caller, but counted.
    assert frontend.publish_queue.published == 256


def test_a_cancelled_batch_is_not_sent(frontend: Frontend) -> None:
    frontend.publisher.full = True
    gone, stays = frontend.publish_queue.submit("a", [b"1"]), frontend.publish_queue.submit("a", [b"2"])
    gone.cancel()
    assert isinstance(failure(gone), CancelledError)
    frontend.publisher.make_room()
    assert result(stays) == [1]
    assert frontend.publisher.messages == [b"2"]
    assert frontend.publish_queue.failed == {"abandoned": 1}


def test_a_full_queue_refuses_more_batches() -> None:
    frontend = Frontend(FrontendConfig(waiting_bytes=1_000, waiting_bytes_per_client=600))
    frontend.publisher.full = True
    kept = [frontend.publish_queue.submit("a", [b"x" * 200])]
    kept.append(frontend.publish_queue.submit("a", [b"x" * 200]))
    with pytest.raises(QueueFull) as caught:
        frontend.publish_queue.submit("a", [b"x" * 200])
    assert caught.value.is_client_limit
    kept.append(frontend.publish_queue.submit("b", [b"x" * 200]))
    with pytest.raises(QueueFull) as caught:
        frontend.publish_queue.submit("c", [b"x" * 200])
    assert not caught.value.is_client_limit
    frontend.publisher.make_room()
    assert [result(one) for one in kept] == [[1], [3], [2]]
    assert frontend.publish_queue.waiting_bytes == 0


def test_a_new_client_finds_room_beside_many_busy_ones() -> None:
    frontend = Frontend(FrontendConfig(waiting_bytes=1_000_000, waiting_bytes_per_client=1_000_000))
    frontend.publisher.full = True
    greedy = [f"greedy {number}" for number in range(9)]
    refused: dict[str, QueueFull] = {}
    while len(refused) < len(greedy):
        for client in greedy:
            try:
                frontend.publish_queue.submit(client, [b"x" * 1_000]).addErrback(lambda failure: None)
            except QueueFull as error:
                refused[client] = error
    assert not any(error.is_client_limit for error in refused.values())
    assert 850_000 < frontend.publish_queue.waiting_bytes <= 1_000_000
    frontend.publish_queue.submit("modest", [b"x" * 40_000]).addErrback(lambda failure: None)


def test_clients_take_turns_in_the_publish_queue_by_bytes() -> None:
    frontend = Frontend(FrontendConfig())
    frontend.publisher.full = True
    large, small = [b"x" * 60_000] * 100, [b"y"]
    frontend.publish_queue.submit("large", large)
    frontend.publish_queue.submit("small", small)
    frontend.publisher.make_room()
    assert frontend.publisher.messages.index(b"y") <= TURN_BYTES // 60_000
    assert len(frontend.publisher.messages) == 101


def test_the_publisher_queues_little_because_it_does_not_know_clients() -> None:
    config = publisher_config(FrontendConfig(), None)
    assert config.outbox.queue_bytes // 2 > TURN_BYTES
    assert config.outbox.queue_bytes < FrontendConfig().waiting_bytes // 8


def test_an_empty_queue_accepts_a_batch_of_any_size() -> None:
    frontend = Frontend(FrontendConfig(waiting_bytes=10, waiting_bytes_per_client=10))
    assert result(frontend.publish_queue.submit("a", [b"x" * 200])) == [1]


def test_the_publish_queue_refuses_a_message_larger_than_a_datagram(frontend: Frontend) -> None:
    with pytest.raises(MessageTooLarge):
        frontend.publish_queue.submit("a", [b"1", b"x" * (MAX_ENVELOPED + 1)])
    assert frontend.publisher.messages == []
    assert frontend.publish_queue.rate_limiter.wait_time("a") == 0
    assert result(frontend.publish_queue.submit("a", [b"x" * MAX_ENVELOPED])) == [1]


def test_sealed_messages_have_less_room(tmp_path: Path) -> None:
    create_key_ring(tmp_path / "keys", ring())
    service = FrontendService(
        "127.0.0.1:2323", http=None, lines=None, keys=KeySource(tmp_path / "keys"), reactor=Clock()
    )
    limit = MAX_ENVELOPED - SEAL_OVERHEAD
    assert service.publish_queue.max_message == service.publisher.max_message == limit
    with pytest.raises(MessageTooLarge) as raised:
        service.publish_queue.submit("a", [bytes(limit), bytes(limit + 1)])
    assert raised.value.limit == limit
    assert not len(service.publish_queue)


def test_queued_messages_per_client_are_rate_limited() -> None:
    frontend = Frontend(FrontendConfig(messages_per_client=10, bytes_per_client=1e6, burst=1))
    frontend.publish_queue.submit("a", [b"1"] * 10)
    assert frontend.publish_queue.rate_limiter.wait_time("a") == 0
    frontend.publish_queue.submit("a", [b"1"] * 10)
    assert frontend.publish_queue.rate_limiter.wait_time("a") == 1
    assert frontend.publish_queue.rate_limiter.wait_time("b") == 0
    frontend.clock.advance(0.5)
    assert frontend.publish_queue.rate_limiter.wait_time("a") == 0.5
    frontend.clock.advance(100)
    frontend.publish_queue.submit("a", [b"1"] * 20)
    assert frontend.publish_queue.rate_limiter.wait_time("a") == 1


def test_queued_bytes_per_client_are_rate_limited() -> None:
    frontend = Frontend(FrontendConfig(bytes_per_client=1_000, burst=1))
    frontend.publish_queue.submit("a", [b"x" * 2_936])
    assert frontend.publish_queue.rate_limiter.wait_time("a") == 2


def test_sending_pauses_while_journals_are_too_far_behind() -> None:
    frontend = Frontend(FrontendConfig(unsynced_bytes=500, min_rate=1))
    frontend.publish_queue.journals.holdings_received([Holding(1, 0)])
    waiting = [frontend.publish_queue.submit("a", [b"x" * 236]) for _ in range(4)]
    assert len(frontend.publisher.messages) == 2
    frontend.publish_queue.journals.holdings_received([Holding(1, 1)])
    assert len(frontend.publisher.messages) == 3
    frontend.publish_queue.journals.holdings_received([])
    frontend.clock.pump([1, 1])
    assert [result(one) for one in waiting] == [[1], [2], [3], [4]]


def test_sending_waits_for_as_many_journals_as_have_to_keep_a_message() -> None:
    frontend = Frontend(FrontendConfig(unsynced_bytes=500), kept=2)
    frontend.publish_queue.journals.holdings_received([Holding(1, 0), Holding(1, 9)])
    for _ in range(4):
        frontend.publish_queue.submit("a", [b"x" * 236])
    assert len(frontend.publisher.messages) == 2
    frontend.publish_queue.journals.holdings_received([Holding(1, 1), Holding(1, 9)])
    assert len(frontend.publisher.messages) == 3


def test_unacknowledged_bytes_count_as_unsynced() -> None:
    frontend = Frontend(FrontendConfig(unsynced_bytes=500))
    frontend.publish_queue.journals.holdings_received([Holding(1, 99)])
    frontend.publisher.held = []
    waiting = [frontend.publish_queue.submit("a", [b"x" * 236]) for _ in range(4)]
    assert len(frontend.publisher.messages) == 2
    lost, frontend.publisher.held = frontend.publisher.held, None
    for deferred, _ in lost:
        deferred.errback(PublishTimeout("late"))
    assert [failure(one).reason for one in waiting[:2]] == ["timeout"] * 2
    assert [result(one) for one in waiting[2:]] == [[3], [4]]


def test_the_queue_is_idle_only_without_waits_for_journals(frontend: Frontend) -> None:
    waiting = frontend.publish_queue.when_kept([7], 1)
    idle = frontend.publish_queue.when_idle()
    assert not idle.called
    frontend.publish_queue.journals.holdings_received([Holding(1, 7)])
    assert (result(idle), result(waiting)) == (None, [7])


def test_stopping_fails_all_pending_batches(frontend: Frontend) -> None:
    idle = frontend.publish_queue.when_idle()
    assert result(idle) is None
    frontend.publisher.full = True
    waiting = frontend.publish_queue.submit("a", [b"1"])
    idle = frontend.publish_queue.when_idle()
    frontend.publish_queue.stop()
    error = failure(waiting)
    assert (error.reason, error.unknown) == ("stopping", False)
    assert result(idle) is None
    assert frontend.clock.getDelayedCalls() == []


def test_batches_fail_after_the_publisher_has_stopped(frontend: Frontend) -> None:
    frontend.publisher.gone = True
    waiting = frontend.publish_queue.submit("a", [b"1"])
    frontend.clock.pump([1] * 31)
    assert isinstance(failure(waiting), BatchFailed)
