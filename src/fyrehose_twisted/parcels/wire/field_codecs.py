"""What stands in the places of the arrays that our own parcels have for application data: each kind, to CBOR and back.

What is read comes from cbor2 and may be of any type; what is written comes from a message. Both have to keep the same
limits, so that nobody sends what nobody takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.parcels.wire.cbor import FALSE, TRUE, all_octets, array, integer, octets, shown, text
from fyrehose_twisted.parcels.wire.messages import (
    MAX_EVENT,
    MAX_NAME,
    MAX_PUBLISHER,
    MAX_SEQUENCE,
    EntryKind,
    Mode,
    Refusal,
)

MAX_TEXT = 200
"""Characters of a text for people. What is longer is cut when it is sent."""
NONCE_SIZE, PROOF_SIZE = 16, 32

_MODES = tuple(Mode)


class Unfit(ValueError):
    """A value is not what belongs in its place; the text says why."""


class Kind(NamedTuple):
    """What stands in one place of an array. ``write`` makes it CBOR, ``read`` checks what cbor2 made of that."""

    write: Callable[[Any], bytes]
    read: Callable[[Any], Any]


# Numbers, texts, bytes


def write_number(value: int) -> bytes:
    """Return the item of a number of 63 bits. :raises Unfit: if it has more, or is below 0."""
    if not 0 <= value <= MAX_SEQUENCE:
        raise Unfit(f"{value} is outside 0..{MAX_SEQUENCE}")
    return integer(value)


def read_number(value: Any) -> int:
    """Return ``value`` if it is a number of 63 bits. :raises Unfit: if not."""
    if type(value) is not int or not 0 <= value <= MAX_SEQUENCE:
        raise Unfit(f"{shown(value)} is no integer from 0 to {MAX_SEQUENCE}")
    return value


def _write_flag(value: bool) -> bytes:
    return TRUE if value else FALSE


def _read_flag(value: Any) -> bool:
    if value is not True and value is not False:
        raise Unfit(f"{shown(value)} is no boolean")
    return value


def _name(limit: int) -> Kind:
    def check(value: str) -> str:
        # A character has four bytes at most: what is short enough needs no second look.
        if len(value) * 4 > limit and len(value.encode()) > limit:
            raise Unfit(f"{shown(value)} is longer than {limit} bytes")
        return value

    def reading(value: Any) -> str:
        if type(value) is not str:
            raise Unfit(f"{shown(value)} is no text")
        return check(value)

    return Kind(lambda value: text(check(value)), reading)


def _write_text(value: str) -> bytes:
    return text(value[:MAX_TEXT].encode(errors="replace").decode())


def _read_text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise Unfit(f"{shown(value)} is no text of at most {MAX_TEXT} characters")
    return value


def _octets(*sizes: int) -> Kind:
    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in sizes:
            raise Unfit(f"{shown(value)} does not consist of {' or '.join(map(str, sizes))} bytes")
        return value

    return Kind(lambda value: octets(check(value)), check)


def _read_octets(value: Any) -> bytes:
    if type(value) is not bytes:
        raise Unfit(f"{shown(value)} are no bytes")
    return value


def _code(codes: type[Refusal] | type[EntryKind]) -> Kind:
    known: dict[int, Any] = {int(code): code for code in codes}

    def reading(value: Any) -> Any:
        if type(value) is not int or value not in known:
            raise Unfit(f"{shown(value)} is none of the numbers of {codes.__name__}")
        return known[value]

    return Kind(integer, reading)


def _read_mode(value: Any) -> Mode:
    if type(value) is not int or not 0 <= value < len(_MODES):
        raise Unfit(f"{shown(value)} is the number of no mode")
    return _MODES[value]


NUMBER = Kind(write_number, read_number)
FLAG = Kind(_write_flag, _read_flag)
NAME, PUBLISHER = _name(MAX_NAME), _name(MAX_PUBLISHER)
TEXT = Kind(_write_text, _read_text)
NONCE, PROOF = _octets(NONCE_SIZE), _octets(0, PROOF_SIZE)
ANY_OCTETS = Kind(octets, _read_octets)
REFUSAL, ENTRY_KIND = _code(Refusal), _code(EntryKind)
MODE = Kind(lambda mode: integer(_MODES.index(mode)), _read_mode)


# Arrays


def row(value: Any, length: int | None = None) -> list[Any]:
    """Return ``value`` if it is an array, of ``length`` items if that is given. :raises Unfit: if not."""
    if type(value) is not list or length not in (None, len(value)):
        what = "" if length is None else f" of {length}"
        raise Unfit(f"{shown(value)} is no array{what}")
    return value


def check_end(first: int, count: int) -> None:
    """See that ``count`` numbers from ``first`` on are all in range. :raises Unfit: if not."""
    if first + count > MAX_SEQUENCE + 1:
        raise Unfit(f"{count} numbers from {first} on go beyond {MAX_SEQUENCE}")


def rows(*kinds: Kind) -> Kind:
    """An array of arrays, each with one of every kind."""
    writers, readers = [kind.write for kind in kinds], [kind.read for kind in kinds]
    header = array(len(kinds))

    def writing(many: Sequence[Sequence[Any]]) -> bytes:
        parts = [array(len(many))]
        for values in many:
            parts.append(header)
            parts += [write(value) for write, value in zip(writers, values, strict=True)]
        return b"".join(parts)

    def reading(value: Any) -> tuple[tuple[Any, ...], ...]:
        return tuple(
            [
                tuple([read(field) for read, field in zip(readers, row(values, len(readers)), strict=True)])
                for values in row(value)
            ]
        )

    return Kind(writing, reading)


def _write_event(event: bytes) -> bytes:
    if len(event) > MAX_EVENT:
        raise Unfit(f"an event of {len(event):,} bytes is over the limit of {MAX_EVENT:,}")
    return octets(event)


def _read_event(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > MAX_EVENT:
        raise Unfit(f"{shown(value)} is no event of at most {MAX_EVENT:,} bytes")
    return value


def _write_events(events: Sequence[bytes]) -> bytes:
    if events and max(map(len, events)) > MAX_EVENT:
        list(map(_write_event, events))
    return b"".join((array(len(events)), *all_octets(events)))


def _read_events(value: Any) -> tuple[bytes, ...]:
    for event in row(value):
        if type(event) is not bytes or len(event) > MAX_EVENT:
            _read_event(event)
    return tuple(value)


EVENT, EVENTS = Kind(_write_event, _read_event), Kind(_write_events, _read_events)
