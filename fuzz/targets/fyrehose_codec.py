"""Codec of packets of both dialects, one per datagram."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from fuzz.checks import attempt, check_size
from fuzz.seeds import bytes_of, draw
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_SEQUENCE,
    Asked,
    Deliver,
    Dialect,
    Forward,
    Head,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Push,
    Request,
    Status,
)

_sequences, _data = st.integers(0, MAX_SEQUENCE), st.binary(max_size=30)
_hosts = ["0.0.0.0", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7"]
_addresses = st.tuples(st.sampled_from(_hosts), st.integers(0, 65_535))
_tokens = st.binary(min_size=16, max_size=16)
_terms, _holdings = st.integers(0, 9), st.builds(Holding, _sequences, _sequences)
PACKETS: st.SearchStrategy[Packet] = st.one_of(
    st.builds(Deliver, _sequences, _data, st.booleans()),
    st.builds(Push, _data, st.sampled_from(Dialect), st.booleans()),
    st.builds(Request, _addresses, st.integers(0, 9), st.integers(9, 99)),
    st.builds(Forward, _addresses, st.integers(0, 9), st.integers(9, 99)),
    st.builds(Keepalive, _addresses, st.integers(0, 2**48 - 1), _tokens),
    st.builds(KeepaliveAck, _tokens | st.just(b"")),
    st.builds(Holds, _tokens, _sequences, _holdings, _sequences),
    st.builds(Status, _tokens, _sequences, _sequences, st.lists(_holdings, max_size=2).map(tuple)),
    st.builds(Asked, _tokens, st.integers(0, 9), st.integers(9, 99), st.integers(0, 9)),
    st.builds(Leader, _tokens, _terms, _addresses, st.booleans(), st.lists(_addresses, max_size=3).map(tuple)),
    st.builds(Head, _tokens, _terms, _sequences),
)
"""Strategy of encodable packets."""


def seeds() -> Iterable[bytes]:
    """Return datagrams."""
    return [*bytes_of("fyrehose"), *map(encode, draw(PACKETS))]


def one(data: bytes) -> None:
    """Read a datagram, as bytes and as part of a buffer, and write what it was."""
    packet, error = attempt(lambda: decode(data), MalformedPacket)
    again, same = attempt(lambda: decode(memoryview(bytearray(data))), MalformedPacket)
    assert (packet, repr(error)) == (again, repr(same)), "it matters where the datagram lies"
    if error is None:
        assert decode(encode(packet)) == packet
        check_size(packet, len(data))
