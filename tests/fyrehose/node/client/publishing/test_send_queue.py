from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.fyrehose.config import OutboxConfig, WindowConfig
from fyrehose_twisted.fyrehose.node.client.publishing import send_queue as outbox_module
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import DATAGRAM_OVERHEAD, SendQueue
from fyrehose_twisted.fyrehose.wire.envelope import COUNTER_WINDOW, ENVELOPE_SIZE, unwrap

WIDE = WindowConfig(initial=10**6, maximum=10**6)


def outbox(**options: Any) -> SendQueue:
    return SendQueue(OutboxConfig(**options), b"someones")


def acknowledge(box: SendQueue, data: bytes, now: float) -> int | None:
    envelope = unwrap(data)
    if envelope is None or envelope.publisher != box.publisher:
        return None
    return next(iter(box.acknowledge(range(envelope.counter, envelope.counter + 1), now)), None)


def test_counters_in_flight_span_less_than_the_deduplication_window_of_subscribers() -> None:
    box = outbox(window=WIDE, queue_messages=200_000, queue_bytes=2**40)
    for _ in range(COUNTER_WINDOW):
        box.add([b""], 0.0)
    sent = box.take_due(0.0)
    assert len(sent) == COUNTER_WINDOW // 2
    for data in sent[1:]:
        acknowledge(box, data, 0.1)
    assert box.take_due(0.1) == []  # The first one is still in flight.
    acknowledge(box, sent[0], 0.1)
    assert len(box.take_due(0.1)) == COUNTER_WINDOW // 2


def test_the_fill_ratio_is_the_larger_of_messages_and_bytes() -> None:
    box = outbox(queue_messages=10, queue_bytes=1_000)
    box.add([b""], 0.0)
    assert box.fill_ratio == pytest.approx(0.1)
    box.add([bytes(460)], 0.0)
    assert box.fill_ratio == pytest.approx(0.5)
    with pytest.raises(PublishQueueFull, match=r"2 messages of 500 bytes"):
        box.add([bytes(600)], 0.0)


def test_an_ack_for_an_unsent_message_is_ignored() -> None:
    box = outbox(window=WindowConfig(initial=1))
    box.add([b"one"], 0.0)
    box.add([b"two"], 0.0)
    (first,) = box.take_due(0.0)
    assert acknowledge(box, first[:-3] + b"two", 0.1) == 0  # Acks are matched by envelope, not by payload.
    assert acknowledge(box, first[:-4] + b"\x01two", 0.1) is None


def test_equal_raw_payloads_are_acknowledged_in_order() -> None:
    box = outbox(raw=True)
    assert [*box.add([b"same"], 0.0), *box.add([b"same"], 0.0)] == [0, 1]
    box.take_due(0.0)
    assert [box.acknowledge_raw(b"same", 0.1) for _ in range(3)] == [0, 1, None]


def test_the_send_queue_keeps_no_state_after_all_acks() -> None:
    box = outbox()
    for number in range(50):
        box.add([b"%d" % number], 0.0)
    sent = box.take_due(0.0)
    box.detect_timeouts(5.0)
    again = box.take_due(5.0)
    assert box.retransmissions == len(again) > 0
    for data in [*sent, *again]:
        acknowledge(box, data, 6.0)
    assert (len(box), box.fill_ratio, box.next_timeout()) == (0, 0.0, None)
    assert box.take_expired(60.0) == []
    assert box.next_expiry() is None
    assert box.take_due(60.0) == []


def test_an_expired_message_is_not_retransmitted() -> None:
    box = outbox(timeout=1.5)
    box.add([b"one"], 0.0)
    box.take_due(0.0)
    box.detect_timeouts(1.2)
    assert box.take_expired(1.5) == [0]
    assert box.take_due(1.6) == []
    assert box.take_expired(9.0) == []


def test_messages_that_expire_unsent_leave_no_state() -> None:
    outbox = SendQueue(OutboxConfig(timeout=1.0), bytes(8))
    for round_number in range(5):
        for _ in range(100):
            outbox.add([bytes(100)], 10.0 * round_number)
        assert len(outbox.take_expired(10.0 * round_number + 1)) == 100
    assert (len(outbox), outbox._size, len(outbox._in_flight._batches)) == (0, 0, 0)


def test_an_ack_after_a_detected_loss_frees_window_space_only_once() -> None:
    box = outbox(window=WindowConfig(initial=4, minimum=4, maximum=4))
    for _ in range(20):
        box.add([b""], 0.0)
    sent = box.take_due(0.0)
    box.detect_timeouts(5.0)
    for data in sent:
        acknowledge(box, data, 5.0)
    assert len(sent) == len(box.take_due(5.0)) == 4


def send_twice(box: SendQueue) -> bytes:
    box.add([b""], 0.0)
    box.take_due(0.0)
    box.detect_timeouts(5.0)
    (data,) = box.take_due(5.0)
    return data


def test_a_spurious_retransmission_widens_the_reordering_window_once() -> None:
    box = outbox(window=WIDE)
    data = send_twice(box)
    reordering_windows = []
    for _ in range(4):
        acknowledge(box, data, 5.1)
        reordering_windows.append(box.window.reordering_window)
    assert reordering_windows[0] < reordering_windows[1] == reordering_windows[2] == reordering_windows[3]


def test_the_memory_of_retransmitted_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "REMEMBERED_RETRANSMISSIONS", 2)
    box = outbox(window=WIDE)
    sent = [send_twice(box) for _ in range(3)]
    for data in sent:
        acknowledge(box, data, 5.1)
    before = box.window.reordering_window
    acknowledge(box, sent[0], 5.1)
    assert box.window.reordering_window == before
    acknowledge(box, sent[1], 5.1)
    assert box.window.reordering_window > before


def test_an_acknowledged_retransmission_counts_as_acked() -> None:
    box = outbox(window=WIDE)
    acknowledge(box, send_twice(box), 5.1)
    assert (box.window._lost, box.window._acked) == (1, 1)


@pytest.mark.parametrize("size", [10, 1_000, 60_000])
def test_bytes_in_flight_are_limited_by_the_receive_buffer(size: int) -> None:
    room = 212_992
    box = SendQueue(OutboxConfig(window=WIDE, queue_bytes=2**30), b"someones", receive_buffer=room)
    box.add([bytes(size)] * 1_000, 0.0)
    in_flight = box.take_due(0.0)
    cost = size + ENVELOPE_SIZE + DATAGRAM_OVERHEAD
    assert room - cost < len(in_flight) * cost < room + cost
    assert box.take_due(0.0) == []
    acknowledge(box, in_flight[0], 0.1)
    assert len(box.take_due(0.1)) == 1


def test_a_message_larger_than_the_receive_buffer_is_sent_alone() -> None:
    box = SendQueue(OutboxConfig(), b"someones", receive_buffer=1_000)
    box.add([bytes(60_000)] * 2, 0.0)
    assert len(box.take_due(0.0)) == 1


def complete(box: SendQueue, data: bytes, now: float) -> None:
    """Acknowledge a message up to which the stream is complete."""
    ticket = acknowledge(box, data, now)
    assert ticket is not None
    box.stream_completed(ticket)
    box.detect_losses(now)


def test_a_message_of_the_same_burst_is_lost_a_reordering_window_after_a_later_one() -> None:
    box = outbox(window=WIDE)
    box.add([b""] * 10, 0.0)
    sent = box.take_due(0.0)
    complete(box, sent[3], 0.01)
    due = box.next_timeout()
    assert due == pytest.approx(0.01 + box.window.reordering_window)
    box.detect_timeouts(due - 1e-6)
    assert box.take_due(due) == []
    complete(box, sent[5], due - 1e-6)
    box.detect_timeouts(due)
    assert box.take_due(due) == sent[:3]
    box.detect_timeouts(due + box.window.reordering_window)
    assert box.take_due(due) == sent[4:5]


def test_a_lost_retransmission_is_retransmitted_before_the_timeout() -> None:
    box = outbox(window=WIDE)
    box.add([b""] * 3, 0.0)
    first, second, _ = box.take_due(0.0)
    complete(box, second, 0.001)
    box.detect_timeouts(0.02)
    assert box.take_due(0.02) == [first]
    box.add([b""], 0.05)
    later = box.take_due(0.05)[-1]
    complete(box, later, 0.06)
    assert box.take_due(0.06)[0] == first
