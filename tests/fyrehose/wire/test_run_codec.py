from __future__ import annotations

from itertools import chain, groupby, permutations, product, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket, MessageTooLarge
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, PUSH_V1_HEADER, decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    CONFIRM,
    MAX_DATA,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Forward,
    Packet,
    PacketType,
    Push,
    Request,
)
from fyrehose_twisted.fyrehose.wire.run_codec import (
    NUMPY_MINIMUM,
    VECTOR_MINIMUM,
    count_leading_pushes,
    decode_ranges,
    encode_delivers,
    encode_pushes,
    encode_ranges,
    number_pushes,
    relay_pushes,
    split_delivers,
    split_types,
)

Vector = dict[str, Any]
Stretch = tuple[int, list[bytes]]

PEER: Address = ("192.0.2.7", 2323)
TYPE_BYTES = [0x01, 0x02, 0x82, 0x04, 0x08, 0x10, 0x20, 0x00, 0x03, 0x81, 0xFF]
DATA_TYPES = [PacketType.DELIVER, PacketType.PUSH, PacketType.PUSH | CONFIRM]
COUNTS = [1, 2, VECTOR_MINIMUM - 1, VECTOR_MINIMUM, VECTOR_MINIMUM + 1, 3 * VECTOR_MINIMUM]
TURNS = [0, 2**8, 2**16, 2**32, 2**40, 2**47, 2**48]
"""Numbers at which a byte carries over."""


def sequences(count: int) -> st.SearchStrategy[int]:
    """Draw the first of ``count`` numbers, mostly near a carry."""
    highest = MAX_SEQUENCE + 1 - count
    near = st.builds(lambda turn, by: min(max(0, turn + by), highest), st.sampled_from(TURNS), st.integers(-count, 2))
    return near | st.integers(0, highest)


@st.composite
def numbers(draw: st.DrawFn, count: int) -> list[int]:
    """Draw ``count`` rising numbers with gaps anywhere."""
    found: list[int] = []
    for end in sorted({*draw(st.sets(st.integers(1, count), max_size=3)), count}):
        more = end - len(found)
        first = draw(sequences(more) | st.sampled_from([found[-1] + 2, found[-1], found[0]] if found else [0]))
        found += [(first + ahead) % (MAX_SEQUENCE + 1) for ahead in range(more)]
    return found


@st.composite
def nearly_equal(draw: st.DrawFn) -> tuple[bytearray, DatagramRun]:
    """Draw a run of one kind of packet with a few damaged bytes, between unrelated bytes."""
    size = draw(st.sampled_from([0, 1, 3, 8, 9, 10, 13, 300]) | st.integers(0, 40))
    count = draw(st.sampled_from(COUNTS)) if size else 1
    kind = draw(st.sampled_from(DATA_TYPES) | st.sampled_from(TYPE_BYTES))
    header = draw(st.sampled_from([DATA_HEADER.size] * 6 + [PUSH_V1_HEADER.size, 0, 8, 10]))
    filling = draw(st.binary(min_size=5, max_size=5)) * 60
    length = max(0, size - header).to_bytes(2, "big")
    rows = [
        bytearray((bytes([kind]) + length + sequence.to_bytes(6, "big") + filling)[:size])
        for sequence in draw(numbers(count))
    ]
    if size:
        wrong = st.tuples(st.integers(0, count - 1), st.integers(0, min(size, 9) - 1), st.integers(0, 255))
        for row, position, byte in draw(st.just([]) | st.lists(wrong, max_size=3)):
            rows[row][position] = draw(st.sampled_from(TYPE_BYTES)) if position == 0 else byte
    before, after = draw(st.binary(max_size=30)), draw(st.binary(max_size=30))
    truncated = count == 1 and draw(st.integers(0, 9)) == 9
    buffer = bytearray(before + b"".join(rows) + after)
    return buffer, DatagramRun(len(before), len(before) + size * count, size, count, PEER, truncated)


def run_of(datagrams: list[bytes]) -> tuple[bytearray, DatagramRun]:
    batch = Batch.pack([(datagram, PEER) for datagram in datagrams])
    [run] = batch.runs
    return batch.buffer, run


def packets(buffer: bytearray, run: DatagramRun) -> list[Packet | None]:
    """Decode each datagram of a run, ``None`` for malformed ones."""

    def packet(datagram: memoryview) -> Packet | None:
        try:
            return decode(datagram, truncated=run.truncated)
        except MalformedPacket:
            return None

    return [packet(datagram) for datagram in Batch(buffer, [run]).datagrams(run)]


def leading_one_by_one(buffer: bytearray, run: DatagramRun) -> int:
    kinds = [
        (packet.dialect, packet.confirm, packet.again) if isinstance(packet, Push) else (None, False, False)
        for packet in packets(buffer, run)
    ]
    return len(list(takewhile(lambda kind: kind == kinds[0] and kind[0] is Dialect.V2, kinds)))


def delivered_one_by_one(buffer: bytearray, run: DatagramRun) -> list[Stretch] | None:
    stretches: list[Stretch] = []
    for packet in packets(buffer, run):
        if not isinstance(packet, Deliver):
            return None
        if stretches and packet.sequence == stretches[-1][0] + len(stretches[-1][1]):
            stretches[-1][1].append(packet.data)
        else:
            stretches.append((packet.sequence, [packet.data]))
    return stretches


def ranges_one_by_one(buffer: bytearray, run: DatagramRun) -> tuple[Address, list[tuple[int, int]]] | None:
    found = list(packets(buffer, run))
    if len({(type(packet), getattr(packet, "address", None)) for packet in found}) != 1:
        return None
    ranges = [(packet.first, packet.last) for packet in found if isinstance(packet, Request | Forward)]
    return (found[0].address, ranges) if isinstance(found[0], Request | Forward) else None


def parts_one_by_one(buffer: bytearray, run: DatagramRun) -> list[tuple[int, list[bytes]]]:
    datagrams = [bytes(buffer[at : at + run.size]) for at in range(run.start, run.stop, run.size or 1)]
    return [(kind, list(equal)) for kind, equal in groupby(datagrams, lambda datagram: datagram[0])]


def check(buffer: bytearray, run: DatagramRun) -> None:
    """Compare the run codec with ``decode``; the run must stay unchanged."""
    before = bytes(buffer)
    assert count_leading_pushes(buffer, run) == leading_one_by_one(buffer, run)
    assert split_delivers(buffer, run) == delivered_one_by_one(buffer, run)
    assert decode_ranges(buffer, run) == ranges_one_by_one(buffer, run)
    if run.size:
        parts = [(buffer[part.start], parts_one_by_one(buffer, part)) for part in split_types(buffer, run)]
        assert [more for _, part in parts for more in part] == parts_one_by_one(buffer, run)
        assert all(len(part) == 1 for _, part in parts)
    assert buffer == before


class TestEquivalenceToDecode:
    @given(nearly_equal())
    def test_the_run_codec_equals_decode_for_each_datagram(self, found: tuple[bytearray, DatagramRun]) -> None:
        check(*found)

    @pytest.mark.parametrize("count", [1, VECTOR_MINIMUM])
    def test_the_run_codec_equals_decode_for_every_golden_vector(self, count: int, vectors: dict[str, Vector]) -> None:
        for vector in vectors.values():
            datagram = vector["datagram"]
            if datagram or count == 1:
                check(*run_of([datagram] * count))

    @given(
        st.sampled_from([Request, Forward]),
        st.lists(st.tuples(sequences(1), sequences(1)).map(sorted), min_size=1, max_size=20),
        st.lists(st.tuples(st.integers(0, 19), st.integers(0, 18), st.integers(0, 255)), max_size=2),
    )
    def test_the_run_codec_equals_decode_for_ranges(
        self, kind: type[Request | Forward], ranges: list[list[int]], wrong: list[tuple[int, int, int]]
    ) -> None:
        datagrams = [encode(kind(PEER, first, last)) for first, last in ranges]
        burst = encode_ranges(PacketType(datagrams[0][0]), PEER, [(first, last) for first, last in ranges])
        assert list(map(bytes, burst.iter_datagrams())) == datagrams
        buffer, run = run_of(datagrams)
        assert decode_ranges(buffer, run) == (PEER, [(first, last) for first, last in ranges])
        for row, position, byte in wrong:
            buffer[row % run.rows * run.size + position] = byte
        check(buffer, run)

    @pytest.mark.parametrize("kind", DATA_TYPES)
    @pytest.mark.parametrize("header", [PUSH_V1_HEADER.size, DATA_HEADER.size])
    @pytest.mark.parametrize("length", [255, 256, 257, MAX_DATA, MAX_DATA + 1, 65_535])
    def test_the_run_codec_equals_decode_for_long_data(self, kind: int, header: int, length: int) -> None:
        check(*run_of([bytes([kind]) + length.to_bytes(2, "big") + bytes(header - 3 + length)] * 2))

    @pytest.mark.parametrize("count", COUNTS)
    def test_count_leading_pushes_stops_at_the_first_damaged_header(self, count: int) -> None:
        pushes = [encode(Push(b"abc", confirm=True))] * count
        buffer, run = run_of(pushes)
        assert count_leading_pushes(buffer, run) == count
        for wrong in range(count):
            for position in (0, 1, 2):
                spoilt = bytearray(buffer)
                spoilt[wrong * run.size + position] ^= 0x20
                assert count_leading_pushes(spoilt, run) == wrong

    @pytest.mark.parametrize("count", COUNTS[1:])
    def test_count_leading_pushes_stops_at_the_first_of_two_damages(self, count: int) -> None:
        packets: list[Packet] = [Push(b"abc"), Deliver(5, b"abc")]
        for packet in packets:
            buffer, run = run_of([encode(packet)] * count)
            for wrong, (early, late) in product(range(count - 1), permutations((0, 1, 2), 2)):
                spoilt = bytearray(buffer)
                spoilt[wrong * run.size + early] ^= 0x20
                spoilt[-run.size + late] ^= 0x20
                assert count_leading_pushes(spoilt, run) == (wrong if isinstance(packet, Push) else 0)
                assert split_delivers(spoilt, run) is None

    @pytest.mark.parametrize("count", COUNTS[1:])
    def test_count_leading_pushes_stops_where_confirm_changes(self, count: int) -> None:
        for first in (False, True):
            pushes = [encode(Push(b"abc", confirm=first))] * (count - 1) + [encode(Push(b"abc", confirm=not first))]
            assert count_leading_pushes(*run_of(pushes)) == count - 1

    @pytest.mark.parametrize("packet", [Deliver(7, b"abc"), Push(b"abc")])
    def test_a_truncated_run_has_no_pushes_and_no_delivers(self, packet: Packet) -> None:
        buffer, run = run_of([encode(packet)])
        cut = run._replace(truncated=True)
        assert (count_leading_pushes(buffer, cut), split_delivers(buffer, cut)) == (0, None)


class TestSplitDelivers:
    @pytest.mark.parametrize("count", [*COUNTS, NUMPY_MINIMUM])
    def test_a_deliver_run_is_split_at_each_gap_in_its_numbers(self, count: int) -> None:
        for turn in TURNS[1:]:
            first = turn - 1 - count // 2 if turn <= MAX_SEQUENCE else turn - count - 10
            for row in range(count):
                found = [*range(first, first + row), *range(first + row + 1, first + count + 1)]
                buffer, run = run_of([encode(Deliver(sequence, b"%6d" % (sequence % 10**6))) for sequence in found])
                assert split_delivers(buffer, run) == delivered_one_by_one(buffer, run)

    @pytest.mark.parametrize("count", [*COUNTS[1:], NUMPY_MINIMUM])
    def test_a_deliver_run_is_split_where_any_byte_of_a_number_differs(self, count: int) -> None:
        first = 0x0102_0304_0506
        for row, position in product(range(count), range(6)):
            buffer, run = run_of([encode(Deliver(first + at, b"x")) for at in range(count)])
            buffer[row * run.size + 3 + position] ^= 0x80
            assert split_delivers(buffer, run) == delivered_one_by_one(buffer, run)

    @pytest.mark.parametrize("count", [2, VECTOR_MINIMUM])
    def test_a_deliver_run_is_split_at_the_maximum_sequence_number(self, count: int) -> None:
        found = [*range(MAX_SEQUENCE - count + 2, MAX_SEQUENCE + 1), 0]
        buffer, run = run_of([encode(Deliver(sequence, b"")) for sequence in found])
        assert split_delivers(buffer, run) == [(found[0], [b""] * (count - 1)), (0, [b""])]

    @pytest.mark.parametrize("count", [1, VECTOR_MINIMUM])
    def test_split_delivers_copies_data_out_of_the_buffer(self, count: int) -> None:
        buffer, run = run_of([encode(Deliver(5 + row, b"abc")) for row in range(count)])
        stretches = split_delivers(buffer, run)
        buffer[:] = bytes(len(buffer))
        assert stretches == [(5, [b"abc"] * count)]
        assert all(type(data) is bytes for _, stretch in stretches for data in stretch)


class TestNumberPushes:
    @given(st.data(), st.binary(max_size=20), st.booleans(), st.sampled_from(COUNTS) | st.integers(1, 300))
    def test_number_pushes_equals_encoding_each_deliver_and_changes_no_other_bytes(
        self, data: st.DataObject, filling: bytes, confirm: bool, count: int
    ) -> None:
        before, after = data.draw(st.binary(max_size=30)), data.draw(st.binary(max_size=30))
        first = data.draw(sequences(count))
        payloads = [(bytes([row % 256]) + filling)[: len(filling)] for row in range(count)]
        pushes = b"".join(encode(Push(payload, confirm=confirm)) for payload in payloads)
        buffer = bytearray(before + pushes + after)
        number_pushes(buffer, len(before), len(before) + len(pushes), DATA_HEADER.size + len(filling), first)
        delivers = b"".join(encode(Deliver(first + row, payload)) for row, payload in enumerate(payloads))
        assert buffer == before + delivers + after

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize("turn", TURNS[1:])
    def test_number_pushes_carries_over_all_bytes_of_the_number(self, count: int, turn: int) -> None:
        pushes = [encode(Push(b"x"))] * count
        for first in range(turn - count, (turn if turn <= MAX_SEQUENCE else turn - count) + 1):
            if first < 0:
                continue
            buffer, run = run_of(pushes)
            number_pushes(buffer, run.start, run.stop, run.size, first)
            assert buffer == b"".join(encode(Deliver(first + row, b"x")) for row in range(count))

    @pytest.mark.parametrize("stop", [1, VECTOR_MINIMUM, VECTOR_MINIMUM + 1])
    def test_number_pushes_leaves_the_rest_of_a_run_unchanged(self, stop: int) -> None:
        pushes = [encode(Push(b"abc"))] * (2 * VECTOR_MINIMUM)
        buffer, run = run_of(pushes)
        number_pushes(buffer, run.size, (1 + stop) * run.size, run.size, 9)
        delivers = [encode(Deliver(9 + row, b"abc")) for row in range(stop)]
        assert buffer == b"".join([pushes[0], *delivers, *pushes[1 + stop :]])

    def test_numbered_pushes_are_split_as_delivers(self) -> None:
        for count in COUNTS:
            buffer, run = run_of([encode(Push(b"%3d" % row)) for row in range(count)])
            number_pushes(buffer, run.start, run.stop, run.size, 2**32 - 3)
            assert split_delivers(buffer, run) == [(2**32 - 3, [b"%3d" % row for row in range(count)])]


class TestEncodePushes:
    @given(
        st.lists(st.binary(max_size=4), max_size=20).map(
            lambda few: list(chain.from_iterable([one] * 3 for one in few))
        ),
        st.sampled_from(Dialect),
        st.booleans(),
    )
    def test_encode_pushes_equals_encoding_each_push(
        self, messages: list[bytes], dialect: Dialect, confirm: bool
    ) -> None:
        bursts = encode_pushes(messages, dialect, confirm)
        pushes = [encode(Push(message, dialect, confirm)) for message in messages]
        assert [datagram for burst in bursts for datagram in burst.iter_datagrams()] == pushes
        assert len(bursts) == len(list(groupby(messages, len)))
        assert all(len(datagram) == burst.size for burst in bursts for datagram in burst.iter_datagrams())

    def test_encode_pushes_of_no_messages_returns_no_bursts(self) -> None:
        assert encode_pushes([], Dialect.V2, False) == []

    @pytest.mark.parametrize("dialect", Dialect)
    def test_encode_pushes_refuses_a_message_larger_than_a_datagram(self, dialect: Dialect) -> None:
        assert len(encode_pushes([bytes(MAX_DATA)], dialect, False)) == 1
        with pytest.raises(MessageTooLarge):
            encode_pushes([b"", bytes(MAX_DATA + 1)], dialect, False)


@given(first=st.integers(0, 2**48 - 60), messages=st.lists(st.binary(max_size=3), min_size=1, max_size=50))
def test_encode_delivers_equals_encode_for_each_message(first: int, messages: list[bytes]) -> None:
    datagrams = [bytes(one) for burst in encode_delivers(first, messages) for one in burst.iter_datagrams()]
    assert datagrams == [encode(Deliver(number, data)) for number, data in enumerate(messages, first)]


@given(
    data=st.lists(st.binary(min_size=4, max_size=4), min_size=1, max_size=30),
    confirm=st.booleans(),
    again=st.booleans(),
    hops=st.integers(0, 254),
    count=st.integers(1, 30),
)
def test_relay_pushes_equals_decode_and_encode_for_each_push(
    data: list[bytes], confirm: bool, again: bool, hops: int, count: int
) -> None:
    batch = Batch.pack([(encode(Push(one, Dialect.V2, confirm, again, hops)), PEER) for one in data])
    count = min(count, len(data))
    relayed = relay_pushes(batch, batch.runs[0], count)
    assert relayed is not None
    pushes, before = relayed
    assert before == hops
    size = batch.runs[0].size
    assert [decode(pushes[at : at + size]) for at in range(0, len(pushes), size)] == [
        Push(one, Dialect.V2, False, again, hops + 1) for one in data[:count]
    ]


@pytest.mark.parametrize("hops", [(0, 1), (3, 3, 3, 4), (255, 255)])
def test_relay_pushes_leaves_unequal_and_endless_hops_to_its_caller(hops: tuple[int, ...]) -> None:
    batch = Batch.pack([(encode(Push(b"data", hops=one)), PEER) for one in hops])
    assert relay_pushes(batch, batch.runs[0], len(hops)) is None


def test_relay_pushes_overwrites_what_clients_leave_in_the_unused_bytes() -> None:
    batch = Batch.pack([(b"\x02\x00\x01RELAX\x07x", PEER)] * 2)
    relayed = relay_pushes(batch, batch.runs[0], 2)
    assert relayed is not None
    assert relayed[1] == 0
    assert decode(relayed[0][:10]) == Push(b"x", hops=1)
