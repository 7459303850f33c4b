"""Input as a sequence of decisions, for targets that take several values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

Chosen = TypeVar("Chosen")


class Choices:
    """Reads an input from its beginning. After its end, all values are 0 or empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def rest(self) -> bytes:
        """Return the remaining bytes."""
        return self.take(len(self._data))

    def number(self, size: int = 1) -> int:
        """Return a number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def one_of(self, values: Sequence[Chosen]) -> Chosen:
        """Return one of at most 256 values."""
        return values[self.number() % len(values)]

    def piece(self) -> bytes:
        """Return bytes with a length prefix of one byte, or of two after 255."""
        size = self.number()
        return self.take(self.number(2) if size == 255 else size)


def piece(data: bytes) -> bytes:
    """Encode ``data`` as :meth:`Choices.piece` reads it."""
    size = len(data)
    return (bytes((size,)) if size < 255 else b"\xff" + size.to_bytes(2, "big")) + data


def cut(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield ``data`` in pieces of these sizes, which repeat."""
    start = turn = 0
    while start < len(data):
        size = max(1, sizes[turn % len(sizes)]) if sizes else len(data)
        yield data[start : start + size]
        start, turn = start + size, turn + 1
