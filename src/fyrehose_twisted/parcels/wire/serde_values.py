"""Structures and variants as the reference's library (serde_cbor 0.11) reads them from the items of a head.

Fields of a structure come by name, by number, or all of them by place. A variant is its name or number alone, a map of
that to its content, or an array of that and its content. Names may be written as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.parcels.wire.cbor import BadParcel, CborMap, TaggedItem, truncate_repr


class MissingType:
    """Stands for what is not there, which is not null."""


class ArrayRest(list[Any]):
    """What stands behind the name of a variant in an array: what it has, by place."""


MISSING = MissingType()


def read_variant(value: Any, names: Sequence[str], label: str, strict: bool = True) -> tuple[str, Any]:
    """Return the name of a variant and its content: a :class:`ArrayRest`, or ``MISSING``, if it is not in a map."""
    content: Any = MISSING
    if isinstance(value, dict):
        value = CborMap(list(value.items()), len(value) == 1)
    key = value
    if isinstance(value, CborMap):
        if not value.one_entry:
            raise BadParcel("bad-value", f"{label} is a map that has not just one entry")
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
    """Return the name of a variant without content."""
    name, content = read_variant(value, names, label, strict)
    require_no_content(value, content, label)
    return name


def require_no_content(value: Any, content: Any, label: str) -> None:
    """See that a variant has no content, however that is written. :raises BadParcel: if it has."""
    if not (content is MISSING or content is None or (isinstance(content, ArrayRest) and not content)):
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)} with something in it")


def read_struct(value: Any, names: Sequence[str], label: str, extra: str = "") -> list[Any]:
    """Return the fields of a structure in the order of ``names``, and ``extra`` or ``MISSING`` behind them."""
    if isinstance(value, TaggedItem):
        value = value.content
    if isinstance(value, list):
        if len(value) < len(names):
            raise BadParcel("missing-field", f"{label} has no {names[len(value)]}")
        if len(value) > len(names):
            raise BadParcel("bad-value", f"{label} is an array of {len(value)}, not of {len(names)}")
        return [*value, MISSING]
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
        elif place == len(names):  # What the reference does not know has no number.
            continue
        if place < len(wanted):
            if found[place] is not MISSING:
                raise BadParcel("duplicate-field", f"{label} has {wanted[place]} twice")
            found[place] = content
    for place, name in enumerate(names):
        if found[place] is MISSING:
            raise BadParcel("missing-field", f"{label} has no {name}")
    return found


def _field_name(key: Any, label: str) -> str:
    if isinstance(key, bytes):  # No field of the reference's has a name that is not ASCII.
        return key.decode("ascii", "replace")
    if not isinstance(key, str):
        raise BadParcel("bad-value", f"{label} has a key that names no field: {truncate_repr(key)}")
    return key


def _decode_text(value: Any) -> str | None:
    """Return a text that was written as one, or as bytes; ``None`` if it was not."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def read_string(value: Any, label: str) -> str:
    """Return a text. :raises BadParcel: if ``value`` is none."""
    found = _decode_text(value)
    if found is None:
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)}, not a text")
    return found


def read_unsigned(value: Any, label: str, highest: int) -> int:
    """Return an integer that is not below 0. :raises BadParcel: if ``value`` is none, or above ``highest``."""
    if type(value) is not int or not 0 <= value <= highest:
        raise BadParcel("bad-value", f"{label} is {truncate_repr(value)}, not an integer from 0 to {highest}")
    return value


def read_array(value: Any, problem: str, length: int | None = None) -> list[Any]:
    """Return an array, of ``length`` items if that is given.

    :param problem: text of the error, with ``{}`` for what is there instead.
    :raises BadParcel: if ``value`` is none.
    """
    if isinstance(value, TaggedItem):
        value = value.content
    if not isinstance(value, list) or length not in (None, len(value)):
        raise BadParcel("bad-value", problem.format(truncate_repr(value)))
    return value
