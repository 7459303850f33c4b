from __future__ import annotations

import time
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import ConfigurationError, MalformedPacket, RemoteError, UnencodableMessage
from fyrehose_twisted.hydra.wire.codec import MAX_COUNT, MAX_PARTIAL_LINE, MIN_TERM, HydraCodec, HydraDecoder
from fyrehose_twisted.hydra.wire.messages import (
    LEGACY_MAX_LINE,
    MAX_ID,
    MAX_LINE,
    MAX_REASON,
    MAX_TAG,
    MAX_TERM,
    MAX_VAL,
    Call,
    Drop,
    Elect,
    Hello,
    Keepalive,
    Knock,
    Malformed,
    Meet,
    Message,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

WRITTEN: list[tuple[Message, bytes]] = [
    (Ping(3, "a7", 42), b"PING 3 a7 42"),
    (Ping(-1, "x", 42), b"PING -1 x 42"),
    (Pong("a7", 42, 0, "ivan"), b"PONG a7 42 0 ivan"),
    (Pong("a7", 42, 5), b"PONG a7 42 5"),
    (Recv(0, b":a!b@c PRIVMSG #x :hi  there "), b"RECV 0 :a!b@c PRIVMSG #x :hi  there "),
    (Send(7, b"@+hydra/n=17 PRIVMSG #x :hi"), b"SEND 7 @+hydra/n=17 PRIVMSG #x :hi"),
    (Drop(7), b"DROP 7"),
    (Drop(7, "it is  silent"), b"DROP 7 it is  silent"),
    (Nominate(2, 42), b"NOMINATE 2 42"),
    (Pledge(2, 42, 7), b"PLEDGE 2 42 7"),
    (Call(2), b"CALL 2"),
    (Elect(2, 42, 7), b"ELECT 2 42 7"),
    (Knock(MAX_ID, "ivan"), b"KNOCK 4294967295 ivan"),
    (Knock(7), b"KNOCK 7"),
    (Meet(7, 42), b"MEET 7 42"),
    (Welcome(7), b"WELCOME 7"),
    (Hello(7, 42), b"HELLO 7 42"),
    (Keepalive(), b""),
]

MALFORMED: list[tuple[bytes, str]] = [
    (b"FOO 1 2", "unknown-command"),
    (b"ping 1 x 42", "unknown-command"),
    (b"RECVX 1 x", "unknown-command"),
    *((command, "missing-field") for command in b"PING PONG RECV SEND DROP NOMINATE PLEDGE CALL ELECT".split()),
    *((command, "missing-field") for command in b"KNOCK MEET WELCOME HELLO".split()),
    (b"PING 1 x", "missing-field"),
    (b"PONG x 42", "missing-field"),
    (b"PLEDGE 1 42 ", "missing-field"),
    (b"MEET 7", "missing-field"),
    (b"RECV 0", "missing-field"),
    (b"RECV 0 ", "missing-field"),
    (b"SEND  7 ", "missing-field"),
    (b"KNOCK 0 ivan", "bad-id"),
    (b"KNOCK 4294967296 ivan", "bad-id"),
    (b"KNOCK -1 ivan", "bad-id"),
    (b"KNOCK 0x2a ivan", "bad-id"),
    (b"KNOCK +7", "bad-id"),
    (b"KNOCK 7_0", "bad-id"),
    (b"KNOCK \xd9\xa7", "bad-id"),
    (b"KNOCK " + b"9" * 1_000, "bad-id"),
    (b"SEND 0 PRIVMSG #x :hi", "bad-id"),
    (b"SEND 4294967296 PRIVMSG #x :hi", "bad-id"),
    (b"SEND x PRIVMSG #x :hi", "bad-id"),
    (b"DROP 0", "bad-id"),
    (b"PING 1 x 0", "bad-id"),
    (b"PING one x 42", "bad-term"),
    (b"PING %d x 42" % (MAX_TERM + 1), "bad-term"),
    (b"PING %d x 42" % (MIN_TERM - 1), "bad-term"),
    (b"NOMINATE -1 42", "bad-term"),
    (b"CALL 1.0", "bad-term"),
    (b"ELECT - 42 7", "bad-term"),
    (b"ELECT --1 42 7", "bad-term"),
    (b"RECV -1 x", "bad-number"),
    (b"RECV %d x" % (MAX_TERM + 1), "bad-number"),
    (b"RECV one x", "bad-number"),
    (b"PONG x 42 -1", "bad-count"),
    (b"PONG x 42 %d" % (MAX_COUNT + 1), "bad-count"),
    (b"PONG x 42 ivan", "bad-count"),
    (b"PING 1 %b 42" % (b"x" * (MAX_VAL + 1)), "bad-val"),
    (b"KNOCK 7 a\nKNOCK 8 b", "control-character"),
    (b"KNOCK 7 a\rb", "control-character"),
    (b"KNOCK 7 a\r", "control-character"),
    (b"KNOCK 7 a\0b", "control-character"),
    (b"RECV 0 a\0b", "control-character"),
    (b"RECV 0 a\nb", "control-character"),
    (b"RECV 0 a\rb", "control-character"),
    (b"SEND 7 QUIT\n", "control-character"),
    (b"\0", "control-character"),
    (b"\n", "control-character"),
    (b"RECV 0 " + b"x" * (MAX_LINE - 6), "overlong-line"),
    (b"SEND 7 " + b"x" * (MAX_PARTIAL_LINE - 7), "overlong-line"),
    (b"KNOCK 7" + b" " * (MAX_LINE - 6), "overlong-line"),
]

UNENCODABLE: list[Message] = [
    Ping(MIN_TERM - 1, "x", 42),
    Ping(MAX_TERM + 1, "x", 42),
    Ping(1, "", 42),
    Ping(1, "x" * (MAX_VAL + 1), 42),
    Ping(1, "ä" * 17, 42),
    Ping(1, "a b", 42),
    Ping(1, "a\tb", 42),
    Ping(1, "a\r\nDROP", 42),
    Ping(1, "a\0", 42),
    Ping(1, "\ud800", 42),
    Ping(1, "x", 0),
    Ping(1, "x", MAX_ID + 1),
    Ping(1, "x", -1),
    Pong("x", 0, 0),
    Pong("x", 42, -1),
    Pong("x", 42, MAX_ID + 1),
    Pong("x", 42, 0, "two words"),
    Pong("x", 42, 0, "t" * (MAX_TAG + 1)),
    Pong("x", 42, 0, "t\n"),
    Recv(-1, b"x"),
    Recv(MAX_TERM + 1, b"x"),
    Recv(0, b""),
    Recv(0, b"a\r\nDROP 7"),
    Recv(0, b"a\n"),
    Recv(0, b"a\0"),
    Send(0, b"x"),
    Send(MAX_ID + 1, b"x"),
    Send(7, b""),
    Send(7, b"PRIVMSG #x :hi\r\nQUIT"),
    Send(7, b"\r"),
    Send(7, b"x" * MAX_LINE),
    Drop(0),
    Drop(7, "a\r\nDROP 8"),
    Drop(7, "a\nb"),
    Drop(7, "r" * (MAX_REASON + 1)),
    Drop(7, "\udfff\ud800"),
    Nominate(-1, 42),
    Nominate(MAX_TERM + 1, 42),
    Nominate(1, 0),
    Pledge(1, 0, 7),
    Pledge(1, 42, 0),
    Call(-1),
    Elect(1, 42, MAX_ID + 1),
    Knock(0),
    Knock(7, "two words"),
    Meet(0, 42),
    Meet(7, 0),
    Welcome(0),
    Hello(7, 0),
    Malformed("unknown-command", b"FOO"),
]


def encode(message: Message) -> bytes:
    return HydraCodec().encode(message)


def decode(data: bytes) -> list[Message]:
    decoder = HydraDecoder()
    found = decoder.feed(data)
    decoder.feed(b"")
    return found


def outcome(pieces: list[bytes]) -> tuple[list[Message], bool]:
    """Return the decoded messages, and whether the decoder then fails."""
    decoder = HydraDecoder()
    found: list[Message] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        decoder.feed(b"")
    except RemoteError:
        return found, True
    return found, False


ids = st.integers(1, MAX_ID)
terms = st.integers(0, MAX_TERM) | st.integers(0, 9)
counts = st.integers(0, MAX_COUNT)
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\v\f\r ")
words = st.text(letters, max_size=16)
vals = st.text(letters, min_size=1, max_size=8)
reasons = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=40).map(
    lambda reason: reason.strip(" \t\v\f")
)
lines = st.binary(min_size=1, max_size=500).map(lambda line: line.translate(None, b"\0\r\n") or b"x")
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ping, st.integers(MIN_TERM, MAX_TERM), vals, ids),
    st.builds(Pong, vals, ids, counts, words),
    st.builds(Recv, terms, lines),
    st.builds(Send, ids, lines),
    st.builds(Drop, ids, reasons),
    st.builds(Nominate, terms, ids),
    st.builds(Pledge, terms, ids, ids),
    st.builds(Call, terms),
    st.builds(Elect, terms, ids, ids),
    st.builds(Knock, ids, words),
    st.builds(Meet, ids, ids),
    st.builds(Welcome, ids),
    st.builds(Hello, ids, ids),
    st.just(Keepalive()),
)
verbs = st.sampled_from(b"PING PONG RECV SEND DROP NOMINATE PLEDGE CALL ELECT KNOCK MEET WELCOME HELLO".split())
odd_words = verbs | st.sampled_from([b"0", b"-1", b"7", b"42", b"4294967296", b"x", b"\xff", b"\0", b"\n", b"\r"])
odd_lines = st.lists(odd_words, max_size=5).flatmap(
    lambda some: st.sampled_from([b" ", b"\t", b"  ", b" \v"]).map(lambda blank: blank.join(some))
)


def test_codec_implements_the_stream_interfaces() -> None:
    verifyObject(IStreamCodec, HydraCodec())
    verifyObject(IStreamDecoder, HydraCodec().decoder())


class TestLines:
    @pytest.mark.parametrize(("message", "line"), WRITTEN, ids=[repr(line) for _, line in WRITTEN])
    def test_each_message_is_written_and_read_as_one_line(self, message: Message, line: bytes) -> None:
        assert encode(message) == line + b"\r\n"
        (found,) = decode(line + b"\r\n")
        assert found == message
        assert type(found) is type(message)

    @pytest.mark.parametrize(("line", "reason"), MALFORMED, ids=[repr(line[:40]) for line, _ in MALFORMED])
    def test_malformed_line_has_a_reason_and_the_next_line_is_decoded(self, line: bytes, reason: str) -> None:
        assert decode(b"CALL 1\r\n" + line + b"\r\nCALL 2\r\n") == [Call(1), Malformed(reason, line[:80]), Call(2)]
        assert decode(line + b"\r\n") == [Malformed(reason, line[:80])]

    @pytest.mark.parametrize("message", UNENCODABLE, ids=lambda message: repr(message)[:60])
    def test_field_out_of_range_is_not_encoded(self, message: Message) -> None:
        with pytest.raises(UnencodableMessage):
            encode(message)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b"  PING\t3  a7 42 and more \t", Ping(3, "a7", 42)),
            (b" PONG a7 42 0", Pong("a7", 42, 0)),
            (b"PONG a7 42 0   ivan petrov", Pong("a7", 42, 0, "ivan")),
            (b"KNOCK 42 My Node", Knock(42, "My")),
            (b"KNOCK 42 ", Knock(42)),
            (b"DROP\t7  it is  silent  ", Drop(7, "it is  silent")),
            (b"DROP 7 ", Drop(7)),
            (b"CALL 007", Call(7)),
            (b"PING -0 x 42", Ping(0, "x", 42)),
            (b"CALL 1 2 3", Call(1)),
            (b"WELCOME\v7\f", Welcome(7)),
            (b" \t ", Keepalive()),
        ],
    )
    def test_excess_blanks_and_words_are_ignored(self, line: bytes, message: Message) -> None:
        assert decode(line + b"\r\n") == [message]

    @pytest.mark.parametrize("line", [b"x", b" x", b"  ", b"x ", b":a!b@c PRIVMSG #x :  two  \t", b"\xff\xfe \x01"])
    @pytest.mark.parametrize("start", [b"RECV 5 ", b" RECV  5 ", b"RECV\t5\t", b"\vRECV \t 0005 "])
    def test_line_of_recv_and_send_is_kept_verbatim(self, start: bytes, line: bytes) -> None:
        assert decode(start + line + b"\r\n") == [Recv(5, line)]
        assert decode(start.replace(b"RECV", b"SEND") + line + b"\r\n") == [Send(5, line)]

    def test_all_bytes_except_cr_lf_and_nul_pass_in_a_line(self) -> None:
        line = bytes(set(range(256)) - set(b"\0\r\n"))
        for message in (Recv(MAX_TERM, line), Send(MAX_ID, line)):
            assert decode(encode(message)) == [message]

    def test_bytes_that_are_not_utf_8_survive_a_round_trip(self) -> None:
        data = b"PONG \xff\xfe 42 1 \xe4\r\nKNOCK 7 \xe4\r\nDROP 7 \xe4 \xf6\r\n"
        assert b"".join(map(encode, decode(data))) == data

    def test_overlong_text_for_people_is_truncated(self) -> None:
        assert decode(b"KNOCK 7 " + b"t" * 500 + b"\r\n") == [Knock(7, "t" * MAX_TAG)]
        assert decode(b"DROP 7 " + b"r" * 500 + b"\r\n") == [Drop(7, "r" * MAX_REASON)]
        # The cut may split a UTF-8 character.
        (pong,) = decode(b"PONG x 7 1 t" + "ä".encode() * 40 + b"\r\n")
        assert encode(pong) == b"PONG x 7 1 t" + "ä".encode() * 31 + b"\xc3\r\n"

    def test_reason_is_encoded_without_surrounding_blanks(self) -> None:
        assert encode(Drop(7, "  it is  silent ")) == b"DROP 7 it is  silent\r\n"
        assert encode(Drop(7, "  ")) == b"DROP 7\r\n"

    def test_decoded_pong_can_be_relayed(self) -> None:
        (pong,) = decode(b"PONG x 42 %d\r\n" % MAX_COUNT)
        assert isinstance(pong, Pong)
        assert encode(pong._replace(count=pong.count + 1))


class TestLimits:
    @pytest.mark.parametrize("limit", [LEGACY_MAX_LINE, MAX_LINE, MAX_PARTIAL_LINE])
    def test_line_of_the_limit_is_accepted_and_a_longer_one_malformed(self, limit: int) -> None:
        codec = HydraCodec(limit)
        for message in (Recv(5, b"x" * (limit - 7)), Send(5, b"x" * (limit - 7))):
            data = codec.encode(message)
            assert len(data) == limit + 2
            assert codec.decoder().feed(data) == [message]
            assert codec.decoder().feed(b"\n\r\n" + data) == [Malformed("control-character", b"\n"), message]
            longer = message._replace(line=message.line + b"x")
            with pytest.raises(UnencodableMessage, match="over the limit"):
                codec.encode(longer)

    @pytest.mark.parametrize("limit", [0, -1, MAX_PARTIAL_LINE + 1])
    def test_invalid_line_limit_is_refused(self, limit: int) -> None:
        with pytest.raises(ConfigurationError, match="line limit"):
            HydraCodec(limit)

    @pytest.mark.parametrize("size", [1, 7, 4_096, 10_000])
    @pytest.mark.parametrize("end", [b"", b"\r\n", b"\r", b"\n", b"\r\r\n"])
    def test_unterminated_overlong_line_ends_the_connection(self, size: int, end: bytes) -> None:
        data = b"CALL 1\r\n" + b"x" * (MAX_PARTIAL_LINE + 1) + end
        decoder, found = HydraDecoder(), []
        with suppress(MalformedPacket):
            for at in range(0, len(data), size):
                found += decoder.feed(data[at : at + size])
        assert found == [Call(1)]
        assert decoder.waiting == 0
        for more in (b"", b"\r\n", b"CALL 2\r\n"):
            with pytest.raises(MalformedPacket, match="4,096 bytes") as caught:
                decoder.feed(more)
            assert caught.value.reason == "overlong-line"

    def test_longest_buffered_line_is_malformed_and_skipped(self) -> None:
        line = b"x" * MAX_PARTIAL_LINE
        for pieces in (
            [line + b"\r\nCALL 1\r\n"],
            [line, b"\r", b"\n", b"CALL 1\r\n"],
            [line + b"\r", b"\nCALL 1\r\n"],
        ):
            assert outcome(pieces) == ([Malformed("overlong-line", line[:80]), Call(1)], False)
        assert outcome([line + b"\r", b"\r\n"]) == ([], True)

    def test_decoder_buffers_at_most_a_partial_line(self) -> None:
        decoder = HydraDecoder()
        decoder.feed(b"CALL 1\r\n" * 1_000 + b"CAL")
        assert decoder.waiting == 3


class TestStreams:
    @given(st.lists(messages, max_size=6))
    def test_decode_inverts_encode_of_a_message(self, some: list[Message]) -> None:
        found = decode(b"".join(map(encode, some)))
        assert found == some
        assert list(map(repr, found)) == list(map(repr, some))

    @given(messages)
    def test_encoded_message_is_one_line(self, message: Message) -> None:
        data = encode(message)
        assert data.endswith(b"\r\n")
        assert not set(data[:-2]) & set(b"\0\r\n")
        assert len(data) <= MAX_LINE + 2

    @given(messages)
    def test_partial_line_yields_no_message(self, message: Message) -> None:
        data = encode(message)
        for cut in range(len(data)):
            decoder = HydraDecoder()
            assert decoder.feed(data[:cut]) == []
            assert decoder.waiting == cut
            assert decoder.feed(data[cut:]) == [message]
            assert decoder.waiting == 0

    @given(
        st.lists(messages.map(encode) | odd_lines.map(lambda line: line + b"\r\n") | st.binary(max_size=20)), st.data()
    )
    def test_chunking_does_not_affect_decoding(self, some: list[bytes], draw: st.DataObject) -> None:
        data = b"".join(some)
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert outcome(pieces) == outcome([data]) == outcome([data[at : at + 1] for at in range(len(data))])

    @given(st.binary(max_size=400))
    def test_arbitrary_bytes_raise_only_remote_errors_in_the_line_decoder(self, data: bytes) -> None:
        with suppress(RemoteError):
            decode(data + b"\r\n")

    @given(odd_lines)
    def test_decoded_message_survives_reencoding(self, line: bytes) -> None:
        for message in decode(line + b"\r\n"):
            if isinstance(message, Malformed):
                assert message.line == line[:80]
            else:
                assert decode(encode(message)) == [message]

    def test_decoders_do_not_share_state(self) -> None:
        codec = HydraCodec()
        first, second = codec.decoder(), codec.decoder()
        assert first.feed(b"CALL 1") == []
        assert second.feed(b"CALL 2\r\n") == [Call(2)]
        assert first.feed(b"\r\n") == [Call(1)]


@pytest.mark.soak(seconds=60)
def test_mutated_lines_raise_only_remote_errors_for_45_seconds() -> None:
    rng, stop, tried = Random(2), time.monotonic() + 45, 0
    whole: list[Any] = [line + b"\r\n" for _, line in WRITTEN] + [line + b"\r\n" for line, _ in MALFORMED]
    while time.monotonic() < stop:
        data = bytearray(b"".join(rng.choices(whole, k=3)))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    data[at:at] = rng.choice(whole)[: rng.randrange(40)]
                case _:
                    del data[at : at + rng.randrange(1, 4)]
                    data += b"\r\n"
        found, failed = outcome([bytes(data)])
        at = rng.randrange(len(data) + 1)
        assert outcome([bytes(data[:at]), bytes(data[at:])]) == (found, failed)
        for message in found:
            if not isinstance(message, Malformed):
                assert decode(encode(message)) == [message]
        tried += 1
    assert tried > 10_000
