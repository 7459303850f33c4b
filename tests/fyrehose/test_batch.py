from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.batch import MALFORMED, VECTOR_MINIMUM, number, scan
from fyrehose_twisted.fyrehose.codec import decode, encode
from fyrehose_twisted.fyrehose.messages import (
    CONFIRM,
    MAX_DATA,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Forward,
    Keepalive,
    KeepaliveAck,
    PacketType,
    Push,
    Request,
)
from fyrehose_twisted.net.batch import Batch

Vector = dict[str, Any]
Row = tuple[int, bool, int, int, int]
"""Kind, CONFIRM, where DATA starts, LENGTH and SEQUENCE, as :class:`Columns` has them."""

PEER: Address = ("192.0.2.7", 2323)
TYPE_BYTES = [0x01, 0x02, 0x82, 0x04, 0x08, 0x10, 0x20, 0x00, 0x03, 0x81, 0xFF]
MALFORMED_ROW: Row = (MALFORMED, False, 0, 0, 0)


@st.composite
def nearly_valid(draw: st.DrawFn) -> bytes:
    """A datagram whose type, size and LENGTH agree often, and otherwise just miss."""
    size = draw(st.sampled_from([1, 2, 3, 7, 9, 17, 19, 29]) | st.integers(0, 40))
    # One byte over and over gives ranges with FROM equal to TO.
    body = draw(st.binary(min_size=40, max_size=40) | st.binary(min_size=1, max_size=1).map(lambda byte: byte * 40))
    datagram = bytes([draw(st.sampled_from(TYPE_BYTES))]) + body
    length = size - draw(st.sampled_from([0, 2, 3, 4, 8, 9, 10]))
    if length >= 0 and draw(st.booleans()):
        datagram = datagram[:1] + length.to_bytes(2, "big") + datagram[3:]
    return datagram[:size]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Datagrams with bytes between them that belong to none, as in a buffer that was used before."""
    buffer = bytearray(draw(st.binary(max_size=30)))
    offsets, sizes, truncated = [], [], []
    for row, datagram in enumerate(draw(st.lists(nearly_valid(), max_size=8))):
        offsets.append(len(buffer))
        sizes.append(len(datagram))
        buffer += datagram + draw(st.binary(max_size=30))
        if draw(st.integers(0, 9)) == 9:
            truncated.append(row)
    return Batch(buffer, offsets, sizes, [PEER] * len(offsets), truncated)


def pack(*datagrams: bytes, truncated: tuple[int, ...] = ()) -> Batch:
    return Batch.pack([(datagram, PEER) for datagram in datagrams], truncated=truncated)


def scanned(batch: Batch) -> list[Row]:
    """What ``scan`` says of each datagram."""
    return list(zip(*(column.tolist() for column in scan(batch)), strict=True))


def decoded(batch: Batch) -> list[Row]:
    """What ``decode`` says of each datagram."""
    rows = zip(batch.offsets, batch, strict=True)
    return [decoded_row(offset, datagram, cut) for offset, (datagram, _, cut) in rows]


def decoded_row(offset: int, datagram: memoryview, truncated: bool) -> Row:
    try:
        packet = decode(datagram, truncated=truncated)
    except MalformedPacket:
        return MALFORMED_ROW
    start = offset + len(datagram)
    match packet:
        case Deliver(sequence, data):
            return PacketType.DELIVER, False, start - len(data), len(data), sequence
        case Push(data, _, confirm):
            return PacketType.PUSH, confirm, start - len(data), len(data), 0
        case _:
            return datagram[0], False, 0, 0, 0


class TestScan:
    @given(batches())
    def test_it_says_of_each_datagram_what_decode_says(self, batch: Batch) -> None:
        assert scanned(batch) == decoded(batch)

    def test_it_agrees_with_decode_on_every_vector(self, vectors: dict[str, Vector]) -> None:
        batch = pack(*(vector["datagram"] for vector in vectors.values()))
        for name, ours, theirs in zip(vectors, scanned(batch), decoded(batch), strict=True):
            assert ours == theirs, name

    def test_it_agrees_with_decode_on_a_vector_alone_in_its_buffer(self, vectors: dict[str, Vector]) -> None:
        for name, vector in vectors.items():
            batch = pack(vector["datagram"])
            assert scanned(batch) == decoded(batch), name

    def test_it_reads_the_columns_of_each_packet_type(self) -> None:
        batch = pack(
            encode(Deliver(2**47 + 1, b"abc")),
            encode(Push(b"abcd", Dialect.V2)),
            encode(Push(b"abcde", Dialect.V1, confirm=True)),
            encode(Request(PEER, 1, 2)),
            encode(Forward(PEER, MAX_SEQUENCE, MAX_SEQUENCE)),
            encode(Keepalive(PEER)),
            encode(Keepalive(PEER, dialect=Dialect.V1)),
            encode(KeepaliveAck(bytes(16))),
            encode(KeepaliveAck(b"")),
        )
        assert scanned(batch) == [
            (PacketType.DELIVER, False, 9, 3, 2**47 + 1),
            (PacketType.PUSH, False, 12 + 9, 4, 0),
            (PacketType.PUSH, True, 25 + 3, 5, 0),
            (PacketType.REQUEST, False, 0, 0, 0),
            (PacketType.FORWARD, False, 0, 0, 0),
            (PacketType.KEEPALIVE, False, 0, 0, 0),
            (PacketType.KEEPALIVE, False, 0, 0, 0),
            (PacketType.KEEPALIVE_ACK, False, 0, 0, 0),
            (PacketType.KEEPALIVE_ACK, False, 0, 0, 0),
        ]

    @pytest.mark.parametrize("kind", [PacketType.DELIVER, PacketType.PUSH, PacketType.PUSH | CONFIRM])
    @pytest.mark.parametrize("header", [3, 9])
    @pytest.mark.parametrize("length", [MAX_DATA, MAX_DATA + 1, 65_535])
    def test_it_agrees_with_decode_about_the_longest_data(self, kind: int, header: int, length: int) -> None:
        batch = pack(bytes([kind]) + length.to_bytes(2, "big") + bytes(header - 3 + length))
        assert scanned(batch) == decoded(batch)

    @pytest.mark.parametrize("kind", [PacketType.REQUEST, PacketType.FORWARD])
    @pytest.mark.parametrize(
        ("first", "last"), [(7, 7), (8, 7), (2**32, 2**32 - 1), (MAX_SEQUENCE, 0), (0, MAX_SEQUENCE)]
    )
    def test_it_takes_a_range_only_if_it_is_not_empty(self, kind: PacketType, first: int, last: int) -> None:
        batch = pack(bytes([kind]) + bytes(6) + first.to_bytes(6, "big") + last.to_bytes(6, "big"))
        assert scanned(batch) == [(kind if first <= last else MALFORMED, False, 0, 0, 0)]

    def test_an_empty_batch_has_empty_columns(self) -> None:
        assert scanned(pack()) == []

    @pytest.mark.parametrize("count", [1, 2, 40])
    def test_datagrams_of_no_bytes_are_malformed_when_there_is_nothing_else(self, count: int) -> None:
        assert scanned(pack(*[b""] * count)) == [MALFORMED_ROW] * count

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_a_datagram_of_no_bytes_is_malformed_wherever_it_lies(self, position: int) -> None:
        # A scan that overlooked the size would take the neighbour's type byte for its own.
        datagrams = [b"\x20", b"\x20"]
        datagrams.insert(position, b"")
        rows: list[Row] = [(PacketType.KEEPALIVE_ACK, False, 0, 0, 0)] * 2
        rows.insert(position, MALFORMED_ROW)
        assert scanned(pack(*datagrams)) == rows

    def test_what_the_receive_call_cut_is_malformed_however_whole_it_looks(self) -> None:
        whole = [encode(Push(b"abc")), encode(Request(PEER, 1, 2)), encode(Deliver(1, b"")), b"\x20"]
        assert scanned(pack(*whole, truncated=(0, 1, 3))) == [
            MALFORMED_ROW,
            MALFORMED_ROW,
            (PacketType.DELIVER, False, len(whole[0]) + len(whole[1]) + 9, 0, 1),
            MALFORMED_ROW,
        ]

    @given(batches())
    def test_it_leaves_the_buffer_as_it_is(self, batch: Batch) -> None:
        before = bytes(batch.buffer)
        scan(batch)
        assert batch.buffer == before


DIALECTS = {"v1": [Dialect.V1], "v2": [Dialect.V2], "mixed": [Dialect.V2, Dialect.V2, Dialect.V1]}


class TestNumber:
    @pytest.mark.parametrize("dialects", DIALECTS.values(), ids=DIALECTS)
    @pytest.mark.parametrize("count", [1, VECTOR_MINIMUM - 1, VECTOR_MINIMUM, VECTOR_MINIMUM + 1, 300])
    @pytest.mark.parametrize("last", [300, 2**16 + 10, 2**32 + 10, 2**40 + 10, MAX_SEQUENCE])
    def test_a_run_of_pushes_becomes_delivers_in_order(self, dialects: list[Dialect], count: int, last: int) -> None:
        first = last - count + 1
        data = [bytes([row % 256]) * (row % 5) for row in range(count)]
        pushes = [
            encode(Push(data[row], dialect, confirm=row % 3 == 0))
            for row, dialect in enumerate(islice(cycle(dialects), count))
        ]
        batch = pack(*pushes)
        delivers = number(batch, scan(batch), 0, count, first)
        assert [bytes(deliver) for deliver in delivers] == [
            encode(Deliver(first + row, data[row])) for row in range(count)
        ]

    @given(
        pushes=st.lists(
            st.builds(Push, st.binary(max_size=9), st.sampled_from(Dialect), st.booleans()),
            min_size=1,
            max_size=6,
        ),
        repeat=st.integers(1, VECTOR_MINIMUM),
        first=st.integers(0, MAX_SEQUENCE - 6 * VECTOR_MINIMUM),
    )
    def test_it_equals_encoding_one_by_one(self, pushes: list[Push], repeat: int, first: int) -> None:
        pushes = pushes * repeat
        batch = pack(*map(encode, pushes))
        delivers = number(batch, scan(batch), 0, len(pushes), first)
        assert [bytes(deliver) for deliver in delivers] == [
            encode(Deliver(first + row, push.data)) for row, push in enumerate(pushes)
        ]

    @pytest.mark.parametrize("dialects", DIALECTS.values(), ids=DIALECTS)
    @pytest.mark.parametrize("count", [3, VECTOR_MINIMUM + 6])
    def test_it_touches_only_the_v2_pushes_of_its_run(self, dialects: list[Dialect], count: int) -> None:
        before, gap, after = encode(Push(b"before")), b"\xa5" * 7, encode(Push(b"after"))
        run = [encode(Push(b"run", dialect)) for dialect in islice(cycle(dialects), count)]
        datagrams = [before, *run, after]
        buffer, offsets = bytearray(gap), []
        expected = bytearray(gap)
        for row, datagram in enumerate(datagrams):
            offsets.append(len(buffer))
            buffer += datagram + gap
            in_place = 0 < row <= count and len(datagram) == 9 + len(b"run")
            expected += (encode(Deliver(99 + row, b"run")) if in_place else datagram) + gap
        batch = Batch(buffer, offsets, list(map(len, datagrams)), [PEER] * len(datagrams))
        number(batch, scan(batch), 1, 1 + count, 100)
        assert buffer == expected

    @pytest.mark.parametrize("count", [1, VECTOR_MINIMUM])
    def test_v2_pushes_are_not_copied(self, count: int) -> None:
        batch = pack(*[encode(Push(b"x"))] * count)
        delivers = number(batch, scan(batch), 0, count, 1)
        batch.buffer[:] = bytes(len(batch.buffer))
        assert [bytes(deliver) for deliver in delivers] == [bytes(10)] * count

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_run_of_no_rows_changes_nothing(self, at: int) -> None:
        batch = pack(encode(Push(b"x")), encode(Push(b"y")))
        before = bytes(batch.buffer)
        assert number(batch, scan(batch), at, at, 1) == []
        assert batch.buffer == before
