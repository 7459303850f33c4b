"""CBOR for parcels (RFC 8949): a liberal reader for heads, a strict one for application data, and item writers.

The liberal reader accepts what the reference implementation accepts, and keeps details that other libraries drop,
because the encoding of a map matters where a variant is expected. The strict reader is for application data, which only
nodes of this implementation write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any, NamedTuple, NoReturn

from cbor2 import CBORDecoder

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.errors import RemoteError

MAX_NESTING = 127
"""Nesting depth of arrays, maps and tags that the reference implementation reads."""


@mypyc_attr(native_class=False)
class BadParcel(RemoteError):
    """A peer sent malformed bytes.

    :ivar reason: short stable name, used as the label of a counter: ``bad-cbor``, ``trailing-bytes``, ``too-deep``,
        ``missing-field``, ``duplicate-field``, ``bad-value``, ``unknown-type`` or ``bad-payload``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class CborMap(NamedTuple):
    """A map of a head. Keys may be repeated and of any type."""

    pairs: list[tuple[Any, Any]]
    one_entry: bool
    """Whether its header byte announces one entry, which is the encoding of a variant with content."""


class TaggedItem(NamedTuple):
    """A tagged array or map. The tag is ignored, but a tagged map is not accepted as a variant."""

    content: list[Any] | CborMap


def truncate_repr(value: object) -> str:
    """Return a shortened ``repr`` for error messages."""
    if isinstance(value, TaggedItem):
        value = value.content
    if isinstance(value, CborMap | dict):
        return "a map"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}..."


def decode(data: bytes) -> Any:
    """Decode one item as the reference implementation does: int, bytes, str, list, :class:`CborMap`, bool, None,
    float or :class:`TaggedItem`. Use it for heads only, because it takes about a microsecond per byte.

    :raises BadParcel: if ``data`` is not exactly one item.
    """
    reader = _Reader(data)
    value = reader.item(MAX_NESTING)
    if reader.offset != len(data):
        raise BadParcel("trailing-bytes", f"{len(data) - reader.offset} trailing bytes after the head of a parcel")
    return value


class _Reader:
    """Reader compatible with serde_cbor 0.11."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def byte(self) -> int:
        if self.offset >= len(self.data):
            raise BadParcel("bad-cbor", f"the head of a parcel is truncated after {len(self.data)} bytes")
        self.offset += 1
        return self.data[self.offset - 1]

    def take(self, size: int) -> bytes:
        """Read ``length`` bytes. The peer chose the length, so check it before allocating."""
        if size > len(self.data) - self.offset:
            raise BadParcel("bad-cbor", f"{size:,} bytes at {self.offset} of a head of {len(self.data)} bytes")
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def argument(self, info: int) -> int:
        if info < 24:
            return info
        if info > 27:
            self.unassigned()
        return int.from_bytes(self.take(1 << (info - 24)), "big")

    def unassigned(self) -> NoReturn:
        raise BadParcel(
            "bad-cbor",
            f"byte {self.data[self.offset - 1]:#04x} at {self.offset - 1} of a head is not the start of an item",
        )

    def item(self, depth_left: int) -> Any:
        first = self.byte()
        major, info = first >> 5, first & 31
        if major == 0:
            return self.argument(info)
        if major == 1:
            return -1 - self.argument(info)
        if major < 4:
            data = self.chunks(major) if info == 31 else self.take(self.argument(info))
            return data if major == 2 else self.text(data)
        if major == 7:
            return self.simple(info)
        if not depth_left:
            raise BadParcel("too-deep", f"a head nests deeper than {MAX_NESTING} levels at {self.offset - 1}")
        if major == 4:
            return list(self.elements(info, depth_left - 1))
        if major == 5:
            elements = self.elements(info, depth_left - 1, twice=True)
            return CborMap(list(zip(elements, elements, strict=True)), first == 0xA1)
        self.argument(info)
        value = self.item(depth_left - 1)
        return TaggedItem(value) if isinstance(value, list | CborMap) else value

    def elements(self, info: int, depth_left: int, twice: bool = False) -> Iterator[Any]:
        if info != 31:
            for _ in range(self.argument(info) * (1 + twice)):
                yield self.item(depth_left)
            return
        while not self.ended():
            yield self.item(depth_left)
            if twice:
                yield self.item(depth_left)

    def ended(self) -> bool:
        if self.offset < len(self.data) and self.data[self.offset] == 0xFF:
            self.offset += 1
            return True
        return False

    def chunks(self, major: int) -> bytes:
        parts = []
        while not self.ended():
            first = self.byte()
            if first >> 5 != major or first & 31 == 31:
                self.unassigned()
            parts.append(self.take(self.argument(first & 31)))
        return b"".join(parts)

    def text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise BadParcel("bad-cbor", f"the text that ends at {self.offset} of a head is not UTF-8") from None

    def simple(self, info: int) -> bool | float | None:
        if info in (20, 21):
            return info == 21
        if info in (22, 23):  # null, and undefined, which the reference implementation treats alike
            return None
        if info in (25, 26, 27):
            value: float = struct.unpack(_FLOATS[info], self.take(1 << (info - 24)))[0]
            return value
        self.unassigned()


_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


class _NoTags(Mapping[int, Any]):
    """Tag decoders that refuse every tag on lookup, before its content is read.

    Some tags make a few bytes arbitrarily expensive, and later versions of cbor2 may support more of them.
    """

    def __getitem__(self, tag: int) -> NoReturn:
        raise ValueError(f"tag {tag}; application data must not contain tags")

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter(())


_NO_TAGS = _NoTags()

_idle_decoders: dict[int, CBORDecoder] = {}
"""A decoder for each depth, while no thread is using it."""


def _make_decoder(depth: int) -> CBORDecoder:
    return CBORDecoder(
        BytesIO(),
        semantic_decoders=_NO_TAGS,
        max_depth=depth,
        allow_indefinite=False,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )


def decode_plain(data: bytes, depth: int) -> Any:
    """Decode one untagged item: int, bytes, str, list, dict with keys of text or bytes, bool, None, float,
    or one of cbor2's simple values. It has neither tags nor indefinite lengths.

    :param depth: maximum nesting of arrays and maps.
    :raises BadParcel: if ``data`` is not exactly one such item.
    """
    stream = BytesIO(data)
    try:
        # To make a decoder takes longer than to decode a short message. One that failed is not used again.
        decoder = _idle_decoders.pop(depth, None) or _make_decoder(depth)
        decoder.fp = stream
        content = decoder.decode()
    except Exception as error:  # Hostile bytes may raise anything in the library.
        what = f"{type(error).__name__}: {error.__cause__ or error}"[:100]
        raise BadParcel("bad-payload", f"application data of {len(data):,} bytes is not plain CBOR ({what})") from None
    if stream.tell() != len(data):
        raise BadParcel(
            "bad-payload", f"{len(data) - stream.tell():,} trailing bytes after the item of the application data"
        )
    _idle_decoders[depth] = decoder
    return content


# Writers. One call of cbor2 takes as long as all of these together for a parcel.


_PACK_U8, _PACK_U16, _PACK_U32, _PACK_U64 = (struct.Struct(layout).pack for layout in (">BB", ">BH", ">BI", ">BQ"))


def _encode_header(major: int, value: int) -> bytes:
    first = major << 5
    if value < 24:
        return bytes((first | value,))
    if value < 2**8:
        return _PACK_U8(first | 24, value)
    if value < 2**16:
        return _PACK_U16(first | 25, value)
    return _PACK_U32(first | 26, value) if value < 2**32 else _PACK_U64(first | 27, value)


_INTEGERS = [_encode_header(0, value) for value in range(1_024)]
_BYTES = [_encode_header(2, value) for value in range(1_024)]
_TEXTS = [_encode_header(3, value) for value in range(256)]
_ARRAYS = [_encode_header(4, value) for value in range(256)]

NULL, FALSE, TRUE = b"\xf6", b"\xf4", b"\xf5"


def encode_integer(value: int) -> bytes:
    """Encode an integer from 0 to 2**64 - 1. This and the other writers use the shortest form."""
    return _INTEGERS[value] if 0 <= value < 1_024 else _encode_header(0, value)


def encode_bytes(data: bytes) -> bytes:
    """Encode a byte string."""
    return (_BYTES[len(data)] if len(data) < 1_024 else _encode_header(2, len(data))) + data


def encode_byte_strings(many: Iterable[bytes]) -> list[bytes]:
    """Return the parts of many encoded byte strings, to be joined. This is faster than one call for each."""
    parts = []
    for data in many:
        size = len(data)
        parts.append(_BYTES[size] if size < 1_024 else _encode_header(2, size))
        parts.append(data)
    return parts


def encode_text(value: str) -> bytes:
    """Encode a text.

    :raises UnicodeEncodeError: if it contains a lone surrogate.
    """
    data = value.encode()
    return (_TEXTS[len(data)] if len(data) < 256 else _encode_header(3, len(data))) + data


def encode_array_header(length: int) -> bytes:
    """Return the header of an array of ``length`` items."""
    return _ARRAYS[length] if length < 256 else _encode_header(4, length)


def encode_map_header(length: int) -> bytes:
    """Return the header of a map of ``length`` entries."""
    return _encode_header(5, length)
