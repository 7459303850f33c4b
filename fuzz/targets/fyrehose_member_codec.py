"""Fuzz target: codec of the messages between members of a group of backbones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from fuzz.checks import check_stream
from fuzz.seeds import draw
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.fyrehose.wire.member_codec import MemberCodec
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData, MemberMessage, NumberBounds, Seam

CODEC = MemberCodec()
_numbers = st.integers(0, 99) | st.integers(0, 2**63 - 1)
_names = st.sampled_from(["a", "node-1", "ü"])
_ports = st.integers(0, 65_535)
_clients = st.tuples(st.sampled_from(["0.0.0.0", "192.0.2.7"]), _ports)
_peers = st.tuples(st.sampled_from(["192.0.2.7", "::1"]), _ports)
_members = st.builds(MemberId, _names, _numbers)
_data = st.builds(MemberData, _clients, _peers, st.booleans())
_seams = st.lists(st.builds(Seam, _numbers, _numbers), max_size=2).map(tuple)
_bounds = st.builds(NumberBounds, _numbers, _numbers, _numbers, st.booleans(), _seams)
_memberships = st.lists(st.tuples(_members, _data), max_size=3).map(tuple).map(Membership)
ENTRIES = st.one_of(
    st.builds(LogEntry, _numbers, st.just(EntryKind.DATA), _bounds),
    st.builds(LogEntry, _numbers, st.just(EntryKind.MEMBERSHIP), _memberships),
    st.builds(LogEntry, _numbers, st.just(EntryKind.NO_OP), st.none()),
)
"""Log entries of a group."""
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "stream": st.sampled_from(["fyrehose://ticks", "fyrehose://default"]),
    "member": _members,
    "entries": st.lists(ENTRIES, max_size=3).map(tuple),
}
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    MemberData: _data,
}
MESSAGES: st.SearchStrategy[MemberMessage] = st.one_of(
    [
        st.builds(
            kind,
            **{
                name: _BY_NAME[name] if name in _BY_NAME else _BY_TYPE[hint]
                for name, hint in get_type_hints(kind).items()
            },
        )
        for kind in get_args(MemberMessage)
    ]
)
"""Messages that can be encoded."""


def seeds() -> Iterable[bytes]:
    """Return seed inputs: encoded streams."""
    frames = [CODEC.encode(message) for message in draw(MESSAGES, 100)]
    yield from (b"\x09" + frame for frame in frames)
    for start in range(0, len(frames), 10):
        yield b"\x05" + b"".join(frames[start : start + 10])
    yield b"\xff\0\x04\0\x01"


def one(data: bytes) -> None:
    """Decode a stream; each decoded message must encode to the same bytes."""
    messages, _ = check_stream(CODEC.decoder, data, MalformedPacket)
    written = b"".join(map(CODEC.encode, messages))
    assert data[1:].startswith(written)
