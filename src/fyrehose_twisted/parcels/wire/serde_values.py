"""Structures and variants as the reference's library (serde_cbor 0.11) reads them from the items of a head.

Fields of a structure come by name, by number, or all of them by place. A variant is its name or number alone, a map of
that to its content, or an array of that and its content. Names may be written as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fyrehose_twisted.parcels.wire.cbor import BadParcel, Pairs, Tagged, shown


class Missing:
    """Stands for what is not there, which is not null."""


class Rest(list[Any]):
    """What stands behind the name of a variant in an array: what it has, by place."""


MISSING = Missing()


def variant(value: Any, names: Sequence[str], what: str, strict: bool = True) -> tuple[str, Any]:
    """Return the name of a variant and its content: a :class:`Rest`, or ``MISSING``, if it is not in a map."""
    content: Any = MISSING
    if isinstance(value, dict):
        value = Pairs(list(value.items()), len(value) == 1)
    key = value
    if isinstance(value, Pairs):
        if not value.single:
            raise BadParcel("bad-value", f"{what} is a map that has not just one entry")
        key, content = value.pairs[0]
    elif isinstance(value, list):
        if not value:
            raise BadParcel("bad-value", f"{what} is an empty array")
        key, content = value[0], Rest(value[1:])
    if type(key) is int and 0 <= key < len(names):
        return names[key], content
    name = _decoded(key)
    if name is None or (strict and name not in names):
        raise BadParcel("bad-value", f"{what} is {shown(key)}, none of {', '.join(names)}")
    return name, content


def unit(value: Any, names: Sequence[str], what: str, strict: bool = True) -> str:
    """Return the name of a variant without content."""
    name, content = variant(value, names, what, strict)
    nothing(value, content, what)
    return name


def nothing(value: Any, content: Any, what: str) -> None:
    """See that a variant has no content, however that is written. :raises BadParcel: if it has."""
    if not (content is MISSING or content is None or (isinstance(content, Rest) and not content)):
        raise BadParcel("bad-value", f"{what} is {shown(value)} with something in it")


def structure(value: Any, names: Sequence[str], what: str, extra: str = "") -> list[Any]:
    """Return the fields of a structure in the order of ``names``, and ``extra`` or ``MISSING`` behind them."""
    if isinstance(value, Tagged):
        value = value.content
    if isinstance(value, list):
        if len(value) < len(names):
            raise BadParcel("missing-field", f"{what} has no {names[len(value)]}")
        if len(value) > len(names):
            raise BadParcel("bad-value", f"{what} is an array of {len(value)}, not of {len(names)}")
        return [*value, MISSING]
    if isinstance(value, dict):
        value = Pairs(list(value.items()), False)
    if not isinstance(value, Pairs):
        raise BadParcel("bad-value", f"{what} is {shown(value)}, not a map")
    wanted = (*names, extra)
    found: list[Any] = [MISSING] * len(wanted)
    for key, content in value.pairs:
        place = key if type(key) is int else -1
        if place < 0:
            name = _key(key, what)
            place = wanted.index(name) if name in wanted and name else len(wanted)
        elif place == len(names):  # What the reference does not know has no number.
            continue
        if place < len(wanted):
            if found[place] is not MISSING:
                raise BadParcel("duplicate-field", f"{what} has {wanted[place]} twice")
            found[place] = content
    for place, name in enumerate(names):
        if found[place] is MISSING:
            raise BadParcel("missing-field", f"{what} has no {name}")
    return found


def _key(key: Any, what: str) -> str:
    if isinstance(key, bytes):  # No field of the reference's has a name that is not ASCII.
        return key.decode("ascii", "replace")
    if not isinstance(key, str):
        raise BadParcel("bad-value", f"{what} has a key that names no field: {shown(key)}")
    return key


def _decoded(value: Any) -> str | None:
    """Return a text that was written as one, or as bytes; ``None`` if it was not."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def string(value: Any, what: str) -> str:
    """Return a text. :raises BadParcel: if ``value`` is none."""
    found = _decoded(value)
    if found is None:
        raise BadParcel("bad-value", f"{what} is {shown(value)}, not a text")
    return found


def number(value: Any, what: str, highest: int) -> int:
    """Return an integer that is not below 0. :raises BadParcel: if ``value`` is none, or above ``highest``."""
    if type(value) is not int or not 0 <= value <= highest:
        raise BadParcel("bad-value", f"{what} is {shown(value)}, not an integer from 0 to {highest}")
    return value


def row(value: Any, problem: str, length: int | None = None) -> list[Any]:
    """Return an array, of ``length`` items if that is given.

    :param problem: text of the error, with ``{}`` for what is there instead.
    :raises BadParcel: if ``value`` is none.
    """
    if isinstance(value, Tagged):
        value = value.content
    if not isinstance(value, list) or length not in (None, len(value)):
        raise BadParcel("bad-value", problem.format(shown(value)))
    return value
