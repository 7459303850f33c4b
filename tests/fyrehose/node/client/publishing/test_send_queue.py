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


def bring_back(box: SendQueue, data: bytes, now: float) -> int | None:
    envelope = unwrap(data)
    if envelope is None or envelope.publisher != box.publisher:
        return None
    return next(iter(box.acknowledge(range(envelope.counter, envelope.counter + 1), now)), None)


def test_counters_in_flight_span_less_than_subscribers_remember() -> None:
    box = outbox(window=WIDE, queue_messages=200_000, queue_bytes=2**40)
    for _ in range(COUNTER_WINDOW):
        box.add([b""], 0.0)
    sent = box.take_due(0.0)
    assert len(sent) == COUNTER_WINDOW // 2
    for data in sent[1:]:
        bring_back(box, data, 0.1)
    assert box.take_due(0.1) == []  # The very first one is still under way.
    bring_back(box, sent[0], 0.1)
    assert len(box.take_due(0.1)) == COUNTER_WINDOW // 2


def test_fill_is_the_fuller_of_messages_and_bytes() -> None:
    box = outbox(queue_messages=10, queue_bytes=1_000)
    box.add([b""], 0.0)
    assert box.fill_ratio == pytest.approx(0.1)
    box.add([bytes(460)], 0.0)
    assert box.fill_ratio == pytest.approx(0.5)
    with pytest.raises(PublishQueueFull, match=r"2 messages of 500 bytes"):
        box.add([bytes(600)], 0.0)


def test_what_was_never_sent_cannot_come_back() -> None:
    box = outbox(window=WindowConfig(initial=1))
    box.add([b"one"], 0.0)
    box.add([b"two"], 0.0)
    (first,) = box.take_due(0.0)
    assert bring_back(box, first[:-3] + b"two", 0.1) == 0  # The envelope counts, not what is in it.
    assert bring_back(box, first[:-4] + b"\x01two", 0.1) is None


def test_equal_raw_payloads_come_back_in_turn() -> None:
    box = outbox(raw=True)
    assert [*box.add([b"same"], 0.0), *box.add([b"same"], 0.0)] == [0, 1]
    box.take_due(0.0)
    assert [box.acknowledge_raw(b"same", 0.1) for _ in range(3)] == [0, 1, None]


def test_everything_is_forgotten_when_everything_came_back() -> None:
    box = outbox()
    for number in range(50):
        box.add([b"%d" % number], 0.0)
    sent = box.take_due(0.0)
    box.detect_timeouts(5.0)
    again = box.take_due(5.0)
    assert box.retransmissions == len(again) > 0
    for data in [*sent, *again]:
        bring_back(box, data, 6.0)
    assert (len(box), box.fill_ratio, box.next_timeout()) == (0, 0.0, None)
    assert box.take_expired(60.0) == []
    assert box.next_expiry() is None
    assert box.take_due(60.0) == []


def test_what_expired_is_not_sent_again() -> None:
    box = outbox(timeout=1.5)
    box.add([b"one"], 0.0)
    box.take_due(0.0)
    box.detect_timeouts(1.2)
    assert box.take_expired(1.5) == [0]
    assert box.take_due(1.6) == []
    assert box.take_expired(9.0) == []


def test_what_is_given_up_before_it_was_ever_sent_is_let_go() -> None:
    outbox = SendQueue(OutboxConfig(timeout=1.0), bytes(8))
    for round_number in range(5):
        for _ in range(100):
            outbox.add([bytes(100)], 10.0 * round_number)
        assert len(outbox.take_expired(10.0 * round_number + 1)) == 100
    assert (len(outbox), outbox._size, len(outbox._in_flight._batches)) == (0, 0, 0)


def test_what_comes_back_after_it_was_counted_as_lost_makes_no_room_twice() -> None:
    box = outbox(window=WindowConfig(initial=4, minimum=4, maximum=4))
    for _ in range(20):
        box.add([b""], 0.0)
    sent = box.take_due(0.0)
    box.detect_timeouts(5.0)
    for data in sent:
        bring_back(box, data, 5.0)
    assert len(sent) == len(box.take_due(5.0)) == 4


def sent_again(box: SendQueue) -> bytes:
    box.add([b""], 0.0)
    box.take_due(0.0)
    box.detect_timeouts(5.0)
    (data,) = box.take_due(5.0)
    return data


def test_patience_grows_once_for_each_needless_repeat() -> None:
    box = outbox(window=WIDE)
    data = sent_again(box)
    patience = []
    for _ in range(4):
        bring_back(box, data, 5.1)
        patience.append(box.window.reordering_window)
    assert patience[0] < patience[1] == patience[2] == patience[3]


def test_only_so_many_messages_are_remembered_that_may_come_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "REMEMBERED_RETRANSMISSIONS", 2)
    box = outbox(window=WIDE)
    sent = [sent_again(box) for _ in range(3)]
    for data in sent:
        bring_back(box, data, 5.1)
    before = box.window.reordering_window
    bring_back(box, sent[0], 5.1)
    assert box.window.reordering_window == before
    bring_back(box, sent[1], 5.1)
    assert box.window.reordering_window > before


def test_a_repeat_that_comes_back_counts_among_what_came_back() -> None:
    box = outbox(window=WIDE)
    bring_back(box, sent_again(box), 5.1)
    assert (box.window._lost, box.window._acked) == (1, 1)


@pytest.mark.parametrize("size", [10, 1_000, 60_000])
def test_no_more_is_under_way_than_a_receive_buffer_holds(size: int) -> None:
    room = 212_992
    box = SendQueue(OutboxConfig(window=WIDE, queue_bytes=2**30), b"someones", receive_buffer=room)
    box.add([bytes(size)] * 1_000, 0.0)
    under_way = box.take_due(0.0)
    cost = size + ENVELOPE_SIZE + DATAGRAM_OVERHEAD
    assert room - cost < len(under_way) * cost < room + cost
    assert box.take_due(0.0) == []
    bring_back(box, under_way[0], 0.1)
    assert len(box.take_due(0.1)) == 1


def test_one_message_may_always_be_under_way() -> None:
    box = SendQueue(OutboxConfig(), b"someones", receive_buffer=1_000)
    box.add([bytes(60_000)] * 2, 0.0)
    assert len(box.take_due(0.0)) == 1
