"""Records as columns, the form in which they are appended to a journal."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import overload

from fyrehose_twisted.record import Record

Columns = tuple[Sequence[int], Sequence[int], Sequence[bytes]]
"""Positions, times and payloads of records."""


class RecordColumns(Sequence[Record]):
    """Records of one stream and epoch as columns. A :class:`Record` is made only for a record that is looked at.

    :ivar sequences: positions in the stream. A range has a step of 1.
    :ivar times: time of receipt of each record.
    :ivar payloads: payload of each record.
    """

    __slots__ = ("epoch", "payloads", "sequences", "stream", "times")

    def __init__(
        self, stream: str, epoch: int, sequences: Sequence[int], times: Sequence[int], payloads: Sequence[bytes]
    ) -> None:
        if not len(sequences) == len(times) == len(payloads):
            raise ValueError(f"columns of {len(sequences)}, {len(times)} and {len(payloads)} values are no records")
        self.stream = stream
        self.epoch = epoch
        self.sequences = sequences
        self.times = times
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.sequences)

    def __iter__(self) -> Iterator[Record]:
        columns = self.sequences, self.times, self.payloads
        return map(Record, repeat(self.stream), repeat(self.epoch), *columns)

    @overload
    def __getitem__(self, row: int) -> Record: ...

    @overload
    def __getitem__(self, row: slice) -> RecordColumns: ...

    def __getitem__(self, row: int | slice) -> Record | RecordColumns:
        if isinstance(row, slice):
            return RecordColumns(self.stream, self.epoch, self.sequences[row], self.times[row], self.payloads[row])
        return Record(self.stream, self.epoch, self.sequences[row], self.times[row], self.payloads[row])

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class RecordBuffer:
    """Records of one epoch by position.

    They are columns, of which neither Python nor its garbage collector sees single records, until one arrives out of
    order or has to be changed.
    """

    def __init__(self) -> None:
        self._positions: range | list[int] = range(0)
        self._times = array("q")
        self._payloads: list[bytes] = []
        self._by_position: dict[int, tuple[int, bytes]] | None = None

    def __bool__(self) -> bool:
        return bool(self._positions or self._by_position)

    @property
    def by_position(self) -> dict[int, tuple[int, bytes]]:
        """Times and payloads by position, in the order in which they were added. It may be changed."""
        if self._by_position is None:
            rows = zip(self._times, self._payloads, strict=True)
            self._by_position = dict(zip(self._positions, rows, strict=True))
            self._positions, self._times, self._payloads = range(0), array("q"), []
        return self._by_position

    @property
    def positions(self) -> Sequence[int]:
        """Positions in the order in which they were added."""
        return self._positions if self._by_position is None else list(self._by_position)

    def find(self, position: int) -> tuple[int, bytes] | None:
        """Return time and payload of a record, or ``None``."""
        if self._by_position is not None:
            return self._by_position.get(position)
        positions = self._positions
        row = bisect_left(positions, position)
        if row == len(positions) or positions[row] != position:
            return None
        return self._times[row], self._payloads[row]

    def put(self, positions: range, times: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Add records with consecutive positions. They replace those with the same positions."""
        if self._by_position is not None or (self._positions and positions[0] <= self._positions[-1]):
            self.by_position.update(zip(positions, zip(times, payloads, strict=True), strict=True))
        else:
            self.extend(positions, times, payloads)

    def extend(self, positions: Sequence[int], times: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Add records in ascending order, after all others. A range has to have a step of 1."""
        if self._by_position is not None:
            self._by_position.update(zip(positions, zip(times, payloads, strict=True), strict=True))
            return
        before = self._positions
        if isinstance(before, range) and isinstance(positions, range) and before.stop in (positions.start, 0):
            self._positions = range((before or positions).start, positions.stop)
        else:
            self._positions = [*before, *positions]
        self._times.extend(times)
        self._payloads += payloads

    def columns(self) -> Columns:
        """Return the columns in the order in which the records were added."""
        if self._by_position is None:
            return self._positions, self._times, self._payloads
        times, payloads = zip(*self._by_position.values(), strict=True) if self._by_position else ((), ())
        return list(self._by_position), times, payloads

    def sorted_columns(self) -> Columns:
        """Return the columns in ascending order of positions."""
        if self._by_position is not None:
            ordered = RecordBuffer()
            ordered._by_position = dict(sorted(self._by_position.items()))
            return ordered.columns()
        return self.columns()
