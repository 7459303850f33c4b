"""Blind mutation of inputs, without coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

_NUMBERS = [
    number.to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for order in ("big", "little")
    for number in (0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1)
]
"""Values at which counters and lengths overflow."""


def _flip(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _insert(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 8))


def _repeat(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    start, at = rng.randint(0, len(data)), rng.randint(0, len(data))
    data[at:at] = data[start : start + rng.randint(1, 32)] * rng.randint(1, 4)


def _remove(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    start = rng.randint(0, len(data))
    del data[start : start + rng.randint(1, 32)]


def _cut(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    del data[rng.randint(0, len(data)) :]


def _number(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    number, at = rng.choice(_NUMBERS), rng.randint(0, len(data))
    data[at : at + len(number)] = number


def _splice(data: bytearray, rng: Random, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    start, at = rng.randint(0, len(other)), rng.randint(0, len(data))
    data[at : at + rng.choice((0, 32))] = other[start : start + rng.randint(1, 64)]


_WAYS: tuple[Callable[[bytearray, Random, Sequence[bytes]], None], ...] = (
    _flip,
    _replace,
    _insert,
    _repeat,
    _remove,
    _cut,
    _number,
    _splice,
)


def mutated(inputs: Sequence[bytes], rng: Random, longest: int) -> bytes:
    """Return one of ``inputs``, of which there is at least one, with a few changes.

    :param longest: maximum length in bytes.
    """
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
        rng.choice(_WAYS)(data, rng, inputs)
    return bytes(data[:longest])
