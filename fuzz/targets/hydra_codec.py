"""Codec of hydra messages on a stream."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from fuzz.checks import check_stream
from fuzz.seeds import bytes_of, draw
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.messages import (
    Call,
    Drop,
    Elect,
    Hello,
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

LONGEST = 12_288
"""More than the longest buffered line."""

CODEC = HydraCodec()
_ids, _terms, _words = st.integers(1, 99), st.integers(0, 99), st.sampled_from(["x", "irc", "tag-1"])
_lines = st.sampled_from([b"PRIVMSG #x :hello  there ", b":nick!user@host JOIN #x"])
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ping, _terms, _words, _ids),
    st.builds(Pong, _words, _ids, _terms, _words | st.just("")),
    st.builds(Drop, _ids, st.sampled_from(["", "no room left"])),
    st.builds(Nominate, _terms, _ids),
    st.builds(Pledge, _terms, _ids, _ids),
    st.builds(Call, _terms),
    st.builds(Elect, _terms, _ids, _ids),
    st.builds(Knock, _ids, _words),
    st.builds(Meet, _ids, _ids),
    st.builds(Welcome, _ids),
    st.builds(Hello, _ids, _ids),
    st.builds(Recv, _terms, _lines),
    st.builds(Send, _ids, _lines),
)
"""Encodable messages."""


def seeds() -> Iterable[bytes]:
    """Return streams."""
    lines = [CODEC.encode(message) for message in draw(MESSAGES, 60)]
    yield from (b"\x07" + data for data in bytes_of("hydra"))
    for start in range(0, len(lines), 6):
        yield b"\x05" + b"".join(lines[start : start + 6])
    yield b"\xff" + b"x" * 4_096 + b"\r"
    yield b"\xff" + b"PING 1 x 1\r\n" + b"x" * 4_097


def one(data: bytes) -> None:
    """Decode a stream; every decoded message that can be encoded survives a round trip."""
    for message in check_stream(CODEC.decoder, data, MalformedPacket)[0]:
        if isinstance(message, Malformed):
            continue
        try:
            line = CODEC.encode(message)
        except UnencodableMessage:  # A word that grows when encoded, or contains a Unicode blank.
            continue
        assert CODEC.decoder().feed(line) == [message]
