"""Checks of decoded values: size, framing and round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fuzz.choices import cut

SPARE = 1_024
"""Allowed bytes of a value decoded from the shortest input."""


def weigh(value: Any, known: set[int] | None = None) -> int:
    """Return about how many bytes are in ``value``: those of texts and numbers, and one for each thing.

    Of what is there more than once, the bytes are counted once.

    :param known: identities of texts that are counted already.
    """
    known = set() if known is None else known
    match value:
        case None | bool():
            return 1
        case int():
            return 1 + value.bit_length() // 8
        case bytes() | bytearray() | str():
            size = 1 if id(value) in known else 1 + len(value)
            known.add(id(value))
            return size
        case memoryview() | np.ndarray():
            return 1 + int(value.nbytes)
        case dict():
            return 1 + sum(weigh(key, known) + weigh(item, known) for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            return 1 + sum(weigh(item, known) for item in value)
    if is_dataclass(value):
        return 1 + sum(weigh(getattr(value, field.name), known) for field in fields(value))
    return 8


def check_size(value: Any, given: int, factor: int = 4, spare: int = SPARE) -> None:
    """Check that the value decoded from ``given`` bytes is at most ``factor`` times as long, plus ``spare``."""
    size = weigh(value)
    assert size <= factor * given + spare, f"{size:,} bytes came of {given:,}"


def feed(decoder: Any, pieces: Iterable[bytes], error: type[Exception]) -> tuple[list[Any], Exception | None]:
    """Return the messages of a stream and the error that ended it, which must be raised again."""
    found: list[Any] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        found += decoder.feed(b"")
    except error as problem:
        return found, problem
    return found, None


def check_stream(
    decoder: Callable[[], Any], data: bytes, error: type[Exception], *, keeps: bool = True
) -> tuple[list[Any], Exception | None]:
    """Return the messages in a stream, and what ended it, having seen that it does not matter how it is cut.

    The first byte of ``data`` says how, and is no part of the stream.

    :param error: what may be raised.
    :param keeps: whether messages before a bad one are returned.
    """
    size, stream = data[:1], data[1:]
    whole = feed(decoder(), [stream], error)
    parts = feed(decoder(), cut(stream, list(size) or [1]), error)
    assert (whole[1] is None) == (parts[1] is None), f"whole: {whole[1]!r}; in pieces: {parts[1]!r}"
    if keeps or whole[1] is None:
        assert repr(whole[0]) == repr(parts[0]), "other messages come of the same bytes in pieces"
    check_size(whole[0], len(stream))
    return whole


def attempt(call: Callable[[], Any], *errors: type[Exception]) -> tuple[Any, Exception | None]:
    """Return the result of ``call``, or its exception if that is one of ``errors``."""
    try:
        return call(), None
    except errors as error:
        return None, error
