"""CBOR as parcels need it (RFC 8949), without I/O: one reader that takes all that the reference's does, one that takes
what is plain, and a writer of single items.

The first reads heads. It tells apart what the reference's library tells apart and others do not: how a map was written
matters where a variant is expected. The second reads application data, which only nodes of ours write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any, NamedTuple, NoReturn

from cbor2 import CBORDecoder

from fyrehose_twisted.errors import RemoteError

MAX_NESTING = 127
"""How many arrays, maps and tags the reference reads one inside the other."""


class BadParcel(RemoteError):
    """The bytes of a connection are no parcel.

    :ivar reason: short stable name, used as the label of a counter: ``bad-cbor``, ``trailing-bytes``, ``too-deep``,
        ``missing-field``, ``duplicate-field``, ``bad-value``, ``unknown-type`` or ``bad-payload``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class CborMap(NamedTuple):
    """A map as it stands in a head: keys may recur, and be of any type."""

    pairs: list[tuple[Any, Any]]
    one_entry: bool
    """Whether its first byte says that it has one entry: how a variant with content is written."""


class TaggedItem(NamedTuple):
    """An array or a map with a tag before it. A tag means nothing, but where a variant is expected it hides that."""

    content: list[Any] | CborMap


def truncate_repr(value: object) -> str:
    """Return ``value`` for the text of an error, cut."""
    if isinstance(value, TaggedItem):
        value = value.content
    if isinstance(value, CborMap | dict):
        return "a map"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}..."


def decode(data: bytes) -> Any:
    """Return the one item that ``data`` is: int, bytes, str, list, :class:`CborMap`, bool, None, float or
    :class:`TaggedItem`. Meant for heads: it costs about a microsecond for each byte.

    :raises BadParcel: if it is none.
    """
    reader = _Reader(data)
    value = reader.item(MAX_NESTING)
    if reader.offset != len(data):
        raise BadParcel("trailing-bytes", f"{len(data) - reader.offset} bytes stand behind the head of a parcel")
    return value


class _Reader:
    """Reads what serde_cbor 0.11 reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def byte(self) -> int:
        if self.offset >= len(self.data):
            raise BadParcel("bad-cbor", f"the head of a parcel ends too early, after {len(self.data)} bytes")
        self.offset += 1
        return self.data[self.offset - 1]

    def take(self, size: int) -> bytes:
        """The length comes from the peer; nothing is allocated before so many bytes are known to be there."""
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
            "bad-cbor", f"byte {self.data[self.offset - 1]:#04x} at {self.offset - 1} of a head begins nothing"
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
        if info in (22, 23):  # null, and undefined, which the reference takes for the same
            return None
        if info in (25, 26, 27):
            value: float = struct.unpack(_FLOATS[info], self.take(1 << (info - 24)))[0]
            return value
        self.unassigned()


_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


class _NoTags(Mapping[int, Any]):
    """Refuses a tag when its decoder is looked for, which is before anything is read of what follows it. Some tags
    can make a few bytes cost without bound, and the next cbor2 may know more of them."""

    def __getitem__(self, tag: int) -> NoReturn:
        raise ValueError(f"tag {tag}; there are none in application data")

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter(())


_NO_TAGS = _NoTags()


def decode_plain(data: bytes, depth: int) -> Any:
    """Return the one item that ``data`` is: int, bytes, str, list, dict with keys of text or bytes, bool, None, float,
    or one of cbor2's simple values. It has neither tags nor indefinite lengths.

    :param depth: how many arrays and maps may be one inside the other.
    :raises BadParcel: if it is none.
    """
    stream = BytesIO(data)
    try:
        content = CBORDecoder(
            stream,
            semantic_decoders=_NO_TAGS,
            max_depth=depth,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        ).decode()
    except Exception as error:  # Whatever a library makes of hostile bytes.
        what = f"{type(error).__name__}: {error.__cause__ or error}"[:100]
        raise BadParcel("bad-payload", f"application data of {len(data):,} bytes is no plain CBOR ({what})") from None
    if stream.tell() != len(data):
        raise BadParcel(
            "bad-payload", f"{len(data) - stream.tell():,} bytes stand behind the application data's one item"
        )
    return content


# Writing: cbor2 takes as long for one call as all of these for a parcel.


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
    """Return the item of an integer from 0 to 2**64 - 1, in its shortest form, as with all of these."""
    return _INTEGERS[value] if 0 <= value < 1_024 else _encode_header(0, value)


def encode_bytes(data: bytes) -> bytes:
    """Return the item of a byte string."""
    return (_BYTES[len(data)] if len(data) < 1_024 else _encode_header(2, len(data))) + data


def encode_byte_strings(many: Iterable[bytes]) -> list[bytes]:
    """Return what the items of many byte strings are joined from, which is faster than one at a time."""
    parts = []
    for data in many:
        size = len(data)
        parts.append(_BYTES[size] if size < 1_024 else _encode_header(2, size))
        parts.append(data)
    return parts


def encode_text(value: str) -> bytes:
    """Return the item of a text. :raises UnicodeEncodeError: if it has half a surrogate pair."""
    data = value.encode()
    return (_TEXTS[len(data)] if len(data) < 256 else _encode_header(3, len(data))) + data


def encode_array_header(length: int) -> bytes:
    """Return what comes before so many items of an array."""
    return _ARRAYS[length] if length < 256 else _encode_header(4, length)


def encode_map_header(length: int) -> bytes:
    """Return what comes before so many keys and values of a map."""
    return _encode_header(5, length)
