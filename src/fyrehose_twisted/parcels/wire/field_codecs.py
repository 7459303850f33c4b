"""Codecs of the fields in the application data of extension parcels.

Values to read come from cbor2 and may have any type. Values to write come from messages. Both directions enforce the
same limits, so that no node sends a value that its peers refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.consensus.messages import EntryKind
from fyrehose_twisted.parcels.wire.cbor import (
    FALSE,
    TRUE,
    encode_array_header,
    encode_byte_strings,
    encode_bytes,
    encode_integer,
    encode_text,
    truncate_repr,
)
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, MAX_NAME, MAX_PUBLISHER, MAX_SEQUENCE, Mode, RefusalReason

MAX_TEXT = 200
"""Maximum length of a text for people, in characters. Longer texts are truncated when sent."""
NONCE_SIZE, PROOF_SIZE = 16, 32

_MODES = tuple(Mode)


class InvalidField(ValueError):
    """A value is invalid for its field."""


class FieldCodec(NamedTuple):
    """Codec of one field: ``write`` encodes a value, ``read`` checks a decoded one."""

    write: Callable[[Any], bytes]
    read: Callable[[Any], Any]


# Numbers, texts, bytes


def write_number(value: int) -> bytes:
    """Encode an unsigned number.

    :raises InvalidField: if it is negative or exceeds 63 bits.
    """
    if not 0 <= value <= MAX_SEQUENCE:
        raise InvalidField(f"{value} is outside 0..{MAX_SEQUENCE}")
    return encode_integer(value)


def read_number(value: Any) -> int:
    """Return ``value`` if it is an unsigned number of at most 63 bits.

    :raises InvalidField: if it is not.
    """
    if type(value) is not int or not 0 <= value <= MAX_SEQUENCE:
        raise InvalidField(f"{truncate_repr(value)} is not an integer from 0 to {MAX_SEQUENCE}")
    return value


def _write_flag(value: bool) -> bytes:
    return TRUE if value else FALSE


def _read_flag(value: Any) -> bool:
    if value is not True and value is not False:
        raise InvalidField(f"{truncate_repr(value)} is not a boolean")
    return value


def _text_within(limit: int) -> FieldCodec:
    def check(value: str) -> str:
        # A character has at most four bytes, so short texts need no exact check.
        if len(value) * 4 > limit and len(value.encode()) > limit:
            raise InvalidField(f"{truncate_repr(value)} is longer than {limit} bytes")
        return value

    def reading(value: Any) -> str:
        if type(value) is not str:
            raise InvalidField(f"{truncate_repr(value)} is not text")
        return check(value)

    return FieldCodec(lambda value: encode_text(check(value)), reading)


def _write_text(value: str) -> bytes:
    return encode_text(value[:MAX_TEXT].encode(errors="replace").decode())


def _read_text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise InvalidField(f"{truncate_repr(value)} is not text of at most {MAX_TEXT} characters")
    return value


def _sized_bytes(*sizes: int) -> FieldCodec:
    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in sizes:
            raise InvalidField(f"{truncate_repr(value)} does not have {' or '.join(map(str, sizes))} bytes")
        return value

    return FieldCodec(lambda value: encode_bytes(check(value)), check)


def _read_bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise InvalidField(f"{truncate_repr(value)} is not a byte string")
    return value


def _enum_codec(codes: type[RefusalReason] | type[EntryKind]) -> FieldCodec:
    known: dict[int, Any] = {int(code): code for code in codes}

    def reading(value: Any) -> Any:
        if type(value) is not int or value not in known:
            raise InvalidField(f"{truncate_repr(value)} is not a number of {codes.__name__}")
        return known[value]

    return FieldCodec(encode_integer, reading)


def _read_mode(value: Any) -> Mode:
    if type(value) is not int or not 0 <= value < len(_MODES):
        raise InvalidField(f"{truncate_repr(value)} is not the number of a mode")
    return _MODES[value]


NUMBER = FieldCodec(write_number, read_number)
FLAG = FieldCodec(_write_flag, _read_flag)
NAME, PUBLISHER = _text_within(MAX_NAME), _text_within(MAX_PUBLISHER)
TEXT = FieldCodec(_write_text, _read_text)
NONCE, PROOF = _sized_bytes(NONCE_SIZE), _sized_bytes(0, PROOF_SIZE)
ANY_BYTES = FieldCodec(encode_bytes, _read_bytes)
REFUSAL, ENTRY_KIND = _enum_codec(RefusalReason), _enum_codec(EntryKind)
MODE = FieldCodec(lambda mode: encode_integer(_MODES.index(mode)), _read_mode)


# Arrays


def check_array(value: Any, length: int | None = None) -> list[Any]:
    """Return ``value`` if it is an array, of ``length`` items if given.

    :raises InvalidField: if it is not.
    """
    if type(value) is not list or length not in (None, len(value)):
        what = "" if length is None else f" of {length}"
        raise InvalidField(f"{truncate_repr(value)} is not an array{what}")
    return value


def check_range_end(first: int, count: int) -> None:
    """Check that ``count`` numbers from ``first`` on are in range.

    :raises InvalidField: if they are not.
    """
    if first + count > MAX_SEQUENCE + 1:
        raise InvalidField(f"{count} numbers from {first} on go beyond {MAX_SEQUENCE}")


def array_of(*kinds: FieldCodec) -> FieldCodec:
    """Return the codec of an array of arrays, each with the given fields."""
    writers, readers = [kind.write for kind in kinds], [kind.read for kind in kinds]
    header = encode_array_header(len(kinds))

    def writing(many: Sequence[Sequence[Any]]) -> bytes:
        parts = [encode_array_header(len(many))]
        for values in many:
            parts.append(header)
            parts += [write(value) for write, value in zip(writers, values, strict=True)]
        return b"".join(parts)

    def reading(value: Any) -> tuple[tuple[Any, ...], ...]:
        return tuple(
            [
                tuple([read(field) for read, field in zip(readers, check_array(values, len(readers)), strict=True)])
                for values in check_array(value)
            ]
        )

    return FieldCodec(writing, reading)


def _write_event(event: bytes) -> bytes:
    if len(event) > MAX_EVENT:
        raise InvalidField(f"an event of {len(event):,} bytes is over the limit of {MAX_EVENT:,}")
    return encode_bytes(event)


def _read_event(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > MAX_EVENT:
        raise InvalidField(f"{truncate_repr(value)} is not an event of at most {MAX_EVENT:,} bytes")
    return value


def _write_events(events: Sequence[bytes]) -> bytes:
    if events and max(map(len, events)) > MAX_EVENT:
        list(map(_write_event, events))
    return b"".join((encode_array_header(len(events)), *encode_byte_strings(events)))


def _read_events(value: Any) -> tuple[bytes, ...]:
    for event in check_array(value):
        if type(event) is not bytes or len(event) > MAX_EVENT:
            _read_event(event)
    return tuple(value)


EVENT, EVENTS = FieldCodec(_write_event, _read_event), FieldCodec(_write_events, _read_events)
