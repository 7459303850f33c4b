"""Parcels on a stream, with their heads and application data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from fuzz.checks import check_stream
from fuzz.seeds import bytes_of, draw
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.parcels.wire.codec import BadParcel, ParcelCodec, ParcelDecoder
from fyrehose_twisted.parcels.wire.messages import Message, Mode, Parcel, PublisherRun, RefusalReason

_numbers, _names = st.integers(0, 99), st.sampled_from(["", "node-1", "ü"])
_events = st.lists(st.binary(max_size=8), max_size=3).map(tuple)
_runs = st.builds(PublisherRun, _names, _numbers, _numbers, _events, st.none() | _numbers)
_members = st.tuples(
    st.builds(MemberId, _names, _numbers), st.tuples(st.sampled_from(["192.0.2.7", "::1"]), st.integers(0, 65_535))
)
_entries = st.one_of(
    st.builds(LogEntry, _numbers, st.just(EntryKind.DATA), st.lists(_runs, max_size=2).map(tuple)),
    st.builds(
        LogEntry, _numbers, st.just(EntryKind.MEMBERSHIP), st.lists(_members, max_size=2).map(tuple).map(Membership)
    ),
    st.builds(LogEntry, _numbers, st.just(EntryKind.NO_OP), st.none()),
)
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "nonce": st.binary(min_size=16, max_size=16),
    "proof": st.just(b"") | st.binary(min_size=32, max_size=32),
    "run": _runs,
    "entries": st.lists(_entries, max_size=2).map(tuple),
    "sequences": st.lists(st.tuples(_numbers, _numbers), max_size=2).map(tuple),
    "events": st.lists(st.tuples(_names, _numbers, _numbers, st.binary(max_size=8)), max_size=2).map(tuple),
}
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=8),
    str: _names,
    Mode: st.sampled_from(Mode),
    RefusalReason: st.sampled_from(RefusalReason),
}
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    [
        st.builds(
            kind,
            **{
                name: _BY_NAME[name] if name in _BY_NAME else _BY_TYPE[hint]
                for name, hint in get_type_hints(kind).items()
            },
        )
        for kind in get_args(Message)
        if kind is not Parcel
    ]
)
"""Extension messages that fit a parcel."""

OUR_ID = 7


def seeds() -> Iterable[bytes]:
    """Return streams."""
    codec = ParcelCodec(OUR_ID)
    parcels = [codec.encode(message) for message in draw(MESSAGES, 100)]
    yield from (b"\x1d" + data for data in bytes_of("parcels"))
    yield from (b"\x1d" + data for data in parcels)
    for start in range(0, len(parcels), 10):
        yield b"\x05" + b"".join(parcels[start : start + 10])


def one(data: bytes) -> None:
    """Decode a stream; messages that fit a parcel survive a round trip."""
    codec = ParcelCodec(OUR_ID)
    for message in check_stream(ParcelDecoder, data, BadParcel)[0]:
        try:
            written = codec.encode(message)
        except UnencodableMessage:  # It fitted in another encoding.
            assert isinstance(message, Parcel), f"{message!r} was read and cannot be written"
            continue
        assert ParcelDecoder().feed(written) == [message]
