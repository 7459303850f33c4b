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
from fyrehose_twisted.fyrehose.wire.packets import Deliver

ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)
START = 1_700_000_000.0


def put(buffer: RetransmitBuffer, count: int, length: int) -> None:
    """Put ``count`` messages of one length as one run."""
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
    def test_an_empty_one_begins_after_the_last_number(self) -> None:
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

    def test_the_share_of_the_memory_that_is_newer_is_the_age(self) -> None:
        buffer = RetransmitBuffer(10 * (CHUNK_OVERHEAD + 121))
        for _ in range(10):
            put(buffer, 1, 100)
        assert buffer.first == 1
        assert [round(buffer.age(sequence), 6) for sequence in (1, 6, 10)] == [1.0, 0.5, 0.1]

    def test_without_memory_nothing_is_kept(self) -> None:
        buffer = RetransmitBuffer(0)
        put(buffer, 5, 10)
        assert (buffer.first, buffer.end, buffer.size) == (6, 6, 0)

    def test_memory_that_is_taken_away_is_given_up_with_the_next_message(self) -> None:
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

    def test_what_is_asked_for_is_sent_once_however_often_it_is_asked_for_meanwhile(self) -> None:
        resend = self.made(100)
        for _ in range(3):
            assert resend.enqueue(ALICE, 10, 12)
        assert resend.enqueue(ALICE, 11, 15)
        assert sequences(resend.take_due_for(ALICE, START)) == [10, 11, 12, 13, 14, 15]
        assert resend.take_due_for(ALICE, START) == []
        assert (resend.retransmitted, resend.next_deadline(START)) == (6, None)

    def test_one_request_is_answered_with_so_many_messages_at_most(self) -> None:
        resend = self.made(3_000, 0)
        resend.enqueue(ALICE, 1, 3_000)
        assert len(sequences(resend.take_due_for(ALICE, START))) == ANSWER_LIMIT

    def test_each_client_has_its_rate(self) -> None:
        resend = self.made(1_000, 1_000)
        resend.enqueue(ALICE, 1, 1_000)
        resend.enqueue(BOB, 1, 1)
        first = sequences(resend.take_due_for(ALICE, START))
        assert len(first) * 1_021 < BYTE_BURST + 1_021
        assert sequences(resend.take_due_for(BOB, START)) == [1]
        now, sent = START, first
        while (deadline := resend.next_deadline(now)) is not None:
            assert deadline > now
            now = deadline
            for requester, datagrams in resend.take_due(now):
                assert requester == ALICE
                sent += sequences(datagrams)
        assert sent == list(range(1, 1_001))
        assert now - START > (1_000 * 1_021 - BYTE_BURST) / BYTE_RATE * 0.9

    def test_what_is_dropped_while_it_waits_is_not_sent(self) -> None:
        resend = self.made(1_000, 1_000)
        resend.enqueue(ALICE, 1, 1_000)
        resend.take_due_for(ALICE, START)
        resend.buffer.limit = 1_000
        put(resend.buffer, 1, 10)
        assert resend.take_due(START + 10) == []
        assert resend.next_deadline(START + 10) is None

    def test_what_waits_has_a_limit(self) -> None:
        resend = RetransmitScheduler(2**26, 10, 0, START)
        put(resend.buffer, 2 * MAX_RANGES_EACH + 10, 0)
        wanted = range(1, 2 * MAX_RANGES_EACH + 2, 2)
        for number in range(MAX_RANGES // MAX_RANGES_EACH):
            answers = [resend.enqueue(("192.0.2.1", number), sequence, sequence) for sequence in wanted]
            assert answers == [True] * MAX_RANGES_EACH + [False]
        assert not resend.enqueue(ALICE, 1, 1)

    def test_a_client_that_is_gone_gets_nothing(self) -> None:
        resend = self.made(1_000, 1_000)
        resend.enqueue(ALICE, 1, 1_000)
        resend.forget(ALICE)
        assert resend.take_due(START) == []
