"""Structures and variants as serde_cbor 0.11, the library of the reference implementation, reads them from CBOR items.

The fields of a structure are keyed by name or number, or given as an array. A variant is its name or number alone, or
a map from it to the content, or an array of it and the content. Names may be byte strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.parcels.wire.cbor import BadParcel, CborMap, TaggedItem, truncate_repr


class MissingType:
    """Marker of an absent value, as distinct from null."""


class ArrayRest(list[Any]):
    """Content of a variant that is encoded as an array: the items after its name."""


MISSING = MissingType()


def read_variant(value: Any, names: Sequence[str], label: str, strict: bool = True) -> tuple[str, Any]:
    """Read a variant; return its name and content, which is an :class:`ArrayRest` or ``MISSING`` outside of a map."""
    content: Any = MISSING
    if isinstance(value, dict):
        value = CborMap(list(value.items()), len(value) == 1)
    key = value
    if isinstance(value, CborMap):
        if not value.one_entry:
            raise BadParcel("bad-value", f"{label} is a map without exactly one entry")
        key, content = value.pairs[0]
    elif isinstance(value, list):
        if not value:
            raise BadParcel("bad-value", f"{label} is an empty array")
        key, content = value[0], ArrayRest(value[1:])
    if type(key) is int and 0 <= key < len(names):
        return names[key], content
    name = _decode_text(key)
    if name is None or (strict and name not in names):
        raise BadParcel("bad-value", f"{label} is {truncate_repr(key)}, none of {', '.join(names)}")
    return name, content


def read_unit_variant(value: Any, names: Sequence[str], label: str, strict: bool = True) -> str:
    """Read a variant without content; return its name."""
    name, content = read_variant(value, names, label, strict)
    require_no_content(value, content, label)
    return name


def require_no_content(value: Any, content: Any, label: str) -> None:
    """Check that a variant has no content, in any encoding.

    :raises BadParcel: if it has content.
    """
    if not (content is MISSING or content is None or (isinstance(content, ArrayRest) and not content)):
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)}, which must be empty")


def read_struct(value: Any, names: Sequence[str], label: str, extra: str = "") -> list[Any]:
    """Read a structure; return its fields in the order of ``names``, followed by ``extra`` or ``MISSING``."""
    if isinstance(value, TaggedItem):
        value = value.content
    if isinstance(value, list):
        return _array_fields(value, names, label)
    if isinstance(value, dict):
        value = CborMap(list(value.items()), False)
    if not isinstance(value, CborMap):
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)}, not a map")
    wanted = (*names, extra)
    found: list[Any] = [MISSING] * len(wanted)
    for key, content in value.pairs:
        place = key if type(key) is int else -1
        if place < 0:
            name = _field_name(key, label)
            place = wanted.index(name) if name in wanted and name else len(wanted)
        elif place == len(names):  # The extension has no field number.
            continue
        if place < len(wanted):
            if found[place] is not MISSING:
                raise BadParcel("duplicate-field", f"{label} has {wanted[place]} twice")
            found[place] = content
    for place, name in enumerate(names):
        if found[place] is MISSING:
            raise BadParcel("missing-field", f"{label} has no {name}")
    return found


def _array_fields(value: list[Any], names: Sequence[str], label: str) -> list[Any]:
    if len(value) < len(names):
        raise BadParcel("missing-field", f"{label} has no {names[len(value)]}")
    if len(value) > len(names):
        raise BadParcel("bad-value", f"{label} is an array of {len(value)}, not of {len(names)}")
    return [*value, MISSING]


def _field_name(key: Any, label: str) -> str:
    if isinstance(key, bytes):  # All field names of the reference implementation are ASCII.
        return key.decode("ascii", "replace")
    if not isinstance(key, str):
        raise BadParcel("bad-value", f"{label} has an unknown key: {truncate_repr(key)}")
    return key


def _decode_text(value: Any) -> str | None:
    """Return a text encoded as text or bytes; ``None`` for other values."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def read_string(value: Any, label: str) -> str:
    """Read a text.

    :raises BadParcel: if ``value`` is not one.
    """
    found = _decode_text(value)
    if found is None:
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)}, not text")
    return found


def read_unsigned(value: Any, label: str, highest: int) -> int:
    """Read an unsigned integer.

    :raises BadParcel: if ``value`` is not one or exceeds ``highest``.
    """
    if type(value) is not int or not 0 <= value <= highest:
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)}, not an integer from 0 to {highest}")
    return value


def read_array(value: Any, problem: str, length: int | None = None) -> list[Any]:
    """Read an array, of ``length`` items if given.

    :param problem: error message, with ``{}`` for the actual value.
    :raises BadParcel: if ``value`` is not such an array.
    """
    if isinstance(value, TaggedItem):
        value = value.content
    if not isinstance(value, list) or length not in (None, len(value)):
        raise BadParcel("bad-value", problem.format(truncate_repr(value)))
    return value
