from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.cli.dump.headers import TCP, Transport
from fyrehose_twisted.cli.dump.tcp_streams import (
    FIN,
    MAX_BUFFERED,
    MAX_SEGMENTS,
    MAX_STREAMS,
    SYN,
    Gap,
    TcpStream,
    TcpStreams,
)

ALICE, BOB = ("192.0.2.1", 4000), ("192.0.2.2", 7878)


def segment(sequence: int, payload: bytes = b"", flags: int = 0, missing: int = 0) -> Transport:
    return Transport(TCP, ALICE, BOB, payload, missing, sequence % 2**32, flags)


def joined(stream: TcpStream, *segments: Transport) -> bytes:
    parts = [part for each in segments for part in stream.add(each)]
    return b"".join(f"<{part.size}>".encode() if isinstance(part, Gap) else part for part in parts)


def test_segments_are_joined_in_order_across_the_end_of_the_sequence_numbers() -> None:
    stream = TcpStream(object)
    start = 2**32 - 3
    assert joined(stream, segment(start, flags=SYN)) == b""
    assert stream.is_aligned
    late = segment(start + 6, b"fg")
    assert joined(stream, segment(start + 1, b"ab"), late, segment(start + 3, b"cde"), segment(start + 8, b"h")) == (
        b"abcdefgh"
    )


def test_retransmissions_are_left_out_and_overlaps_cut() -> None:
    stream = TcpStream(object)
    assert joined(stream, segment(1, b"abc"), segment(1, b"abc"), segment(2, b"bcde"), segment(0, b"\0")) == b"abcde"
    assert not stream.is_aligned


def test_a_new_connection_at_the_same_addresses_begins_anew() -> None:
    stream = TcpStream(object)
    joined(stream, segment(1, b"abc"), segment(9, b"late"))
    before = stream.decoder
    assert joined(stream, segment(500, flags=SYN), segment(501, b"x")) == b"x"
    assert stream.decoder is not before
    after = stream.decoder
    assert joined(stream, segment(500, flags=SYN), segment(502, b"y")) == b"y"
    assert stream.decoder is after


def test_a_gap_is_given_up_at_the_end_or_when_the_buffer_is_full() -> None:
    assert joined(TcpStream(object), segment(1, b"a"), segment(5, b"b"), segment(6, b"", FIN)) == b"a<3>b"
    stream = TcpStream(object)
    joined(stream, segment(0, b"a"))
    found = joined(stream, *(segment(2 + at, b"x" * 1_000) for at in range(0, MAX_BUFFERED + 2_000, 1_000)))
    assert found.startswith(b"<1>xxx")
    small = TcpStream(object)
    joined(small, segment(0, b"a"))
    found = joined(small, *(segment(2 + at, b"x") for at in range(0, 2 * MAX_SEGMENTS + 4, 2)))
    assert found.startswith(b"<1>x")


def test_a_gap_that_the_receiver_acknowledges_is_given_up() -> None:
    stream = TcpStream(object)
    assert joined(stream, segment(1, b"a"), segment(5, b"b"), segment(9, b"c")) == b"a"
    assert stream.acknowledged(4) == []
    assert stream.acknowledged(6) == [Gap(3), b"b"]
    assert stream.acknowledged(10) == [Gap(3), b"c"]
    assert stream.acknowledged(10) == []


def test_bytes_that_the_capture_cut_off_are_a_gap() -> None:
    assert joined(TcpStream(object), segment(1, b"ab", missing=3), segment(6, b"f")) == b"ab<3>f"


def test_the_number_of_streams_is_bounded() -> None:
    streams = TcpStreams()
    first = streams.get(segment(1), object)
    for port in range(MAX_STREAMS):
        assert streams.get(segment(1), object) is first  # It is in use, so others are evicted.
        streams.get(segment(1)._replace(source=("192.0.2.9", port)), object)
    for port in range(MAX_STREAMS):
        streams.get(segment(1)._replace(source=("192.0.2.8", port)), object)
    assert streams.get(segment(1), object) is not first


@given(st.binary(min_size=1, max_size=60), st.integers(0, 2**32 - 1), st.data())
def test_any_order_and_any_cut_gives_the_bytes_that_were_sent(content: bytes, start: int, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.tuples(st.integers(0, len(content)), st.integers(0, len(content))), max_size=8))
    pieces = [(min(cut), content[min(cut) : max(cut)]) for cut in cuts] + [(0, content)]
    stream = TcpStream(object)
    found = joined(stream, segment(start - 1, flags=SYN))
    for place, piece in data.draw(st.permutations(pieces)):
        found += joined(stream, segment(start + place, piece))
    assert found == content


@given(
    st.lists(
        st.builds(
            segment,
            st.integers(0, 50) | st.integers(0, 2**32),
            st.binary(max_size=9),
            st.integers(0, 7),
            st.integers(0, 3),
        ),
        max_size=20,
    )
)
def test_arbitrary_segments_are_taken(segments: list[Transport]) -> None:
    joined(TcpStream(object), *segments)
