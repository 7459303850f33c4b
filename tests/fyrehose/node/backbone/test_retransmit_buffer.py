from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import (
    ANSWER_LIMIT,
    BYTE_BURST,
    BYTE_RATE,
    CHUNK_OVERHEAD,
    MAX_RANGES,
    MAX_RANGES_EACH,
    RetransmitBuffer,
    RetransmitScheduler,
)
from fyrehose_twisted.fyrehose.wire.codec import decode, encode_deliver
from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.packets import Deliver

ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)
START = 1_700_000_000.0


def put(buffer: RetransmitBuffer, count: int, length: int) -> None:
    """Add ``count`` messages of one length as one run."""
    first = buffer.end
    datagrams = [encode_deliver(n, b"%012d" % n + bytes(length)) for n in range(first, first + count)]
    buffer.append(first, b"".join(datagrams), len(datagrams[0]))


def sequences(sent: list[Datagram | Burst]) -> list[int]:
    found = []
    for item in sent:
        for datagram in item.iter_datagrams() if isinstance(item, Burst) else [item]:
            packet = decode(datagram)
            assert isinstance(packet, Deliver)
            assert packet.data.startswith(b"%012d" % packet.sequence)
            found.append(packet.sequence)
    return found


class TestBuffer:
    def test_an_empty_retransmit_buffer_begins_after_the_last_number(self) -> None:
        buffer = RetransmitBuffer(1_000, last=41)
        assert (buffer.first, buffer.end, buffer.size) == (42, 42, 0)

    @given(runs=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 300)), max_size=60), data=st.data())
    def test_the_latest_messages_are_kept_and_any_range_of_them_is_returned(
        self, runs: list[tuple[int, int]], data: st.DataObject
    ) -> None:
        buffer = RetransmitBuffer(5_000, last=9)
        for count, length in runs:
            put(buffer, count, length)
            assert buffer.size <= buffer.limit
        if buffer.first == buffer.end:
            return
        first = data.draw(st.integers(buffer.first, buffer.end - 1))
        last = data.draw(st.integers(first, buffer.end - 1))
        room = data.draw(st.floats(1, 6_000))
        sent, after, spent = buffer.read(first, last, room)
        numbers = sequences(sent)
        assert numbers == list(range(first, after))
        assert numbers
        assert spent == sum(len(item.data) if isinstance(item, Burst) else len(item) for item in sent)
        whole, end, _ = buffer.read(first, last, 1e9)
        assert (sequences(whole), end) == (list(range(first, last + 1)), last + 1)

    def test_the_age_of_a_message_is_the_share_of_newer_memory(self) -> None:
        buffer = RetransmitBuffer(10 * (CHUNK_OVERHEAD + 121))
        for _ in range(10):
            put(buffer, 1, 100)
        assert buffer.first == 1
        assert [round(buffer.age(sequence), 6) for sequence in (1, 6, 10)] == [1.0, 0.5, 0.1]

    def test_a_retransmit_buffer_without_memory_keeps_nothing(self) -> None:
        buffer = RetransmitBuffer(0)
        put(buffer, 5, 10)
        assert (buffer.first, buffer.end, buffer.size) == (6, 6, 0)

    def test_a_reduced_retransmit_buffer_shrinks_with_the_next_message(self) -> None:
        buffer = RetransmitBuffer(10_000)
        for _ in range(20):
            put(buffer, 1, 100)
        buffer.limit = 500
        put(buffer, 1, 100)
        assert buffer.size <= 500
        assert (buffer.first, buffer.end) == (20, 22)


class TestRetransmissions:
    def made(self, count: int, length: int = 100) -> RetransmitScheduler:
        made = RetransmitScheduler(2**26, 10, 0, START)
        put(made.buffer, count, length)
        return made

    def test_a_pending_retransmission_requested_repeatedly_is_sent_once(self) -> None:
        scheduler = self.made(100)
        for _ in range(3):
            assert scheduler.enqueue(ALICE, 10, 12)
        assert scheduler.enqueue(ALICE, 11, 15)
        assert sequences(scheduler.take_due_for(ALICE, START)) == [10, 11, 12, 13, 14, 15]
        assert scheduler.take_due_for(ALICE, START) == []
        assert (scheduler.retransmitted, scheduler.next_deadline(START)) == (6, None)

    def test_one_request_is_answered_with_a_limited_number_of_messages(self) -> None:
        scheduler = self.made(3_000, 0)
        scheduler.enqueue(ALICE, 1, 3_000)
        assert len(sequences(scheduler.take_due_for(ALICE, START))) == ANSWER_LIMIT

    def test_retransmissions_are_rate_limited_per_client(self) -> None:
        scheduler = self.made(1_000, 1_000)
        scheduler.enqueue(ALICE, 1, 1_000)
        scheduler.enqueue(BOB, 1, 1)
        first = sequences(scheduler.take_due_for(ALICE, START))
        assert len(first) * 1_021 < BYTE_BURST + 1_021
        assert sequences(scheduler.take_due_for(BOB, START)) == [1]
        now, sent = START, first
        while (deadline := scheduler.next_deadline(now)) is not None:
            assert deadline > now
            now = deadline
            for requester, datagrams in scheduler.take_due(now):
                assert requester == ALICE
                sent += sequences(datagrams)
        assert sent == list(range(1, 1_001))
        assert now - START > (1_000 * 1_021 - BYTE_BURST) / BYTE_RATE * 0.9

    def test_messages_evicted_while_queued_are_not_retransmitted(self) -> None:
        scheduler = self.made(1_000, 1_000)
        scheduler.enqueue(ALICE, 1, 1_000)
        scheduler.take_due_for(ALICE, START)
        scheduler.buffer.limit = 1_000
        put(scheduler.buffer, 1, 10)
        assert scheduler.take_due(START + 10) == []
        assert scheduler.next_deadline(START + 10) is None

    def test_queued_retransmission_ranges_are_limited_per_client_and_in_total(self) -> None:
        scheduler = RetransmitScheduler(2**26, 10, 0, START)
        put(scheduler.buffer, 2 * MAX_RANGES_EACH + 10, 0)
        wanted = range(1, 2 * MAX_RANGES_EACH + 2, 2)
        for number in range(MAX_RANGES // MAX_RANGES_EACH):
            answers = [scheduler.enqueue(("192.0.2.1", number), sequence, sequence) for sequence in wanted]
            assert answers == [True] * MAX_RANGES_EACH + [False]
        assert not scheduler.enqueue(ALICE, 1, 1)

    def test_retransmissions_to_a_forgotten_client_are_discarded(self) -> None:
        scheduler = self.made(1_000, 1_000)
        scheduler.enqueue(ALICE, 1, 1_000)
        scheduler.forget(ALICE)
        assert scheduler.take_due(START) == []


class TestSkippedNumbers:
    @given(
        parts=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=12),
        pair=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    )
    def test_reading_leaves_out_the_numbers_that_were_skipped(
        self, parts: list[tuple[bool, int]], pair: tuple[int, int]
    ) -> None:
        buffer, held = RetransmitBuffer(100_000), list[int]()
        for skipped, count in parts:
            if skipped:
                buffer.skip(buffer.end + count - 1)
            else:
                held += range(buffer.end, buffer.end + count)
                put(buffer, count, 3)
        first, last = min(pair), min(max(pair), buffer.end - 1)
        if first <= last:
            sent, after, _ = buffer.read(first, last, 1e9)
            assert sequences(sent) == [number for number in held if first <= number <= last]
            assert after == last + 1

    def test_the_index_of_envelopes_goes_on_after_skipped_numbers(self) -> None:
        buffer = RetransmitBuffer(100_000)
        data = [wrap(b"12345678", number, b"payload") for number in range(3)]
        buffer.append(1, encode_deliver(1, data[0]), len(encode_deliver(1, data[0])))
        buffer.skip(5)
        buffer.append(6, encode_deliver(6, data[1]), len(encode_deliver(6, data[1])))
        assert [buffer.find(one) for one in data] == [1, 6, None]

    def test_skipped_numbers_take_room_within_the_limit(self) -> None:
        buffer = RetransmitBuffer(3 * CHUNK_OVERHEAD)
        for number in range(10):
            buffer.skip(10 * number + 9)
            put(buffer, 1, 0)
        assert buffer.size <= buffer.limit
        nothing = RetransmitBuffer(0)
        nothing.skip(7)
        assert (nothing.first, nothing.end, nothing.size) == (8, 8, 0)

    def test_skipping_what_has_passed_changes_nothing(self) -> None:
        buffer = RetransmitBuffer(100_000)
        put(buffer, 4, 0)
        buffer.skip(3)
        assert (buffer.first, buffer.end) == (1, 5)
