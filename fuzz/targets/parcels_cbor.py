"""CBOR items in heads and in application data, and whole heads."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import attempt, check_size
from fuzz.seeds import bytes_of
from fyrehose_twisted.parcels.wire.cbor import BadParcel, decode, decode_plain
from fyrehose_twisted.parcels.wire.head import _parse_head, read_head, read_neighbours

DEPTH = 6


def seeds() -> Iterable[bytes]:
    """Return heads, application data, and items of every type."""
    for data in bytes_of("parcels"):
        yield data
        yield data[1 : 1 + data[0]] if data else b""
        yield data[1 + data[0] :] if data else b""
    yield from map(
        bytes.fromhex,
        (
            "f97c00",
            "fb3ff0000000000000",
            "9f0102ff",
            "bf6161016162f5ff",
            "5f41004101ff",
            "d9d9f783010203",
            "a16161c0f6",
        ),
    )
    yield b"\x81" * 127 + b"\xf6"


def one(data: bytes) -> None:
    """Decode an item in each way."""
    item, error = attempt(lambda: decode(data), BadParcel)
    if error is None:
        check_size(item, len(data), factor=8)
    plain, error = attempt(lambda: decode_plain(data, DEPTH), BadParcel)
    if error is None:
        check_size(plain, len(data), factor=8)
    attempt(lambda: read_neighbours(data), BadParcel)
    if len(data) <= 255:
        head, error = attempt(lambda: read_head(data), BadParcel)
        again, same = attempt(lambda: _parse_head(data), BadParcel)
        assert (head, repr(error)) == (again, repr(same)), "the short way reads another head than the long one"
