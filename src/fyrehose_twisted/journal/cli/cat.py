"""Printing of a journal's records, in order, as lines or JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.repeat_marking import Marks, RepeatMarker, run_to_end

StripFraming = Callable[[str, list[bytes]], list[bytes]]
"""Given a stream's URI and payloads, returns the payloads without the protocol's framing."""


class StreamPosition(NamedTuple):
    """A position in a stream: a sequence number, or a time in UTC microseconds since 1970."""

    value: int
    is_time: bool


class RecordPrinter:
    """Prints the records of a journal, in order.

    :param output: takes bytes.
    :param tell: takes a line about what is not there.
    :param bare: what is to be taken off payloads; ``None`` for nothing.
    :param marker: finds repeats; ``None`` to look for none.
    :param repeats: print repeats, which JSON then marks, and do not leave them out.
    :param epoch: only this one; ``None`` for all.
    :param start: where to begin; a time means all that was received then or later.
    :param end: the last, inclusive; a time means all that was received then or earlier.
    :param count: stop after so many records.
    :ivar damaged: how many damaged places were met.
    :raises ConfigurationError: if it is not clear of which epoch a number is.
    """

    def __init__(
        self,
        reader: JournalReader,
        output: Callable[[bytes], object],
        on_message: Callable[[str], object],
        *,
        strip_framing: StripFraming | None = None,
        marker: RepeatMarker | None = None,
        repeats: bool = False,
        epoch: int | None = None,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        count: int | None = None,
        as_json: bool = False,
    ) -> None:
        self.reader = reader
        self.damaged = 0
        self._output, self._on_message, self._strip_framing = output, on_message, strip_framing
        self._marker, self._repeats = marker, repeats
        self._epoch, self._start, self._end, self._remaining = epoch, start, end, count
        self._format = self._as_json if as_json else self._as_lines
        self._at: dict[int, int] = {}
        self._reported: set[Damage] = set()
        known = reader.epochs()
        if epoch is not None and epoch not in known:
            there = f"it has {', '.join(map(str, known))}" if known else "it is empty"
            raise ConfigurationError(f"{reader.stream} has no epoch {epoch}; {there}")
        by_number = any(where is not None and not where.is_time for where in (start, end))
        if by_number and epoch is None:
            if len(known) > 1:
                names = ", ".join(map(str, known))
                raise ConfigurationError(f"of which epoch is that number? {reader.stream} has {names}; say --epoch")
            self._epoch = known[0] if known else None

    def run(self) -> bool:
        """Print what is there and was not printed before; say whether more may be wanted."""
        for epoch in self.reader.epochs():
            if self._epoch not in (None, epoch):
                continue
            bounds = self.reader.bounds(epoch)
            assert bounds is not None, epoch
            first, last = self._range(epoch, bounds)
            self._print(epoch, first, min(last, bounds.next - 1))
            self._at[epoch] = max(self._at.get(epoch, 0), min(last + 1, bounds.next))
            if self._remaining == 0 or self._at[epoch] > last:
                return False
        return True

    def report_damages(self) -> None:
        """Tell what is damaged or gone, and was not told."""
        for damage in self.reader.damages:
            if damage not in self._reported:
                self._report_damage(damage)

    def report_gaps(self) -> None:
        """Tell where records are missing, so that what is behind was not printed."""
        for epoch, at in self._at.items():
            bounds = self.reader.bounds(epoch)
            if self._remaining != 0 and bounds is not None and at == bounds.next <= bounds.last:
                last = bounds.last
                self._on_message(
                    f"{at} of epoch {epoch} is missing; what is held behind it, up to {last}, is not printed"
                )

    def _range(self, epoch: int, bounds: Bounds) -> tuple[int, int]:
        first, last = bounds.first, 2**64 - 2
        if self._start is not None and not self._start.is_time:
            first = self._position(self._start.value, bounds)
        if self._end is not None and not self._end.is_time:
            last = self._position(self._end.value, bounds)
        if epoch not in self._at and first < bounds.first:
            self._on_message(
                f"{self.reader.stream} begins at {bounds.first} of epoch {epoch} here: nothing is kept before"
            )
        return max(first, bounds.first, self._at.get(epoch, 0)), last

    def _position(self, number: int, bounds: Bounds) -> int:
        """Return the position that a sequence number means; where they wrap, the one closest to what is there."""
        wrap = self.reader.wrap
        if not wrap or number >= bounds.first:
            return number
        later = number + -(-(bounds.first - number) // wrap) * wrap
        return later if later - bounds.last <= bounds.first - (later - wrap) else later - wrap

    def _print(self, epoch: int, first: int, last: int) -> None:
        reader = self.reader
        if first > last:
            return
        losses = reader.losses(epoch, first, last)
        # Nobody knows when what is lost was due; between two records that are printed, it was due between them.
        by_time = any(where is not None and where.is_time for where in (self._start, self._end))
        began = False
        for block in reader.read(epoch, first, last, self._report_damage):
            for part, marks in self._select(block):
                kept = part if self._remaining is None else part.rows(0, min(self._remaining, len(part)))
                if by_time and not began:
                    losses = [lost for lost in losses if lost[0] > kept.first]
                began = True
                while losses and losses[0][0] < kept.last:
                    self._report_lost(*losses.pop(0))
                self._output(self._format(kept, marks))
                if self._remaining is not None:
                    self._remaining -= len(kept)
            if self._remaining == 0:
                return
        for lost in losses if not by_time else ():
            self._report_lost(*lost)

    def _report_lost(self, first: int, last: int) -> None:
        self._on_message(f"lost {first} to {last}: nobody has them, or they were never given")

    def _select(self, block: Block) -> Iterator[tuple[Block, Marks | None]]:
        """Yield the parts of ``block`` that are to be printed, and which of their records are repeats."""
        marks = None if self._marker is None else run_to_end(self._marker.marks(block))
        wanted = np.ones(len(block), bool) if marks is None or self._repeats else ~marks
        if self._start is not None and self._start.is_time:
            wanted &= block.times >= self._start.value
        if self._end is not None and self._end.is_time:
            wanted &= block.times <= self._end.value
        edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False)).tolist()
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            if self._remaining == 0:
                return
            yield block.rows(low, high), None if marks is None else marks[low:high]

    def _payloads(self, block: Block) -> list[bytes]:
        payloads = block.payloads()
        return payloads if self._strip_framing is None else self._strip_framing(block.stream, payloads)

    def _as_lines(self, block: Block, marks: Marks | None) -> bytes:
        return b"\n".join([*self._payloads(block), b""])

    def _as_json(self, block: Block, marks: Marks | None) -> bytes:
        lines: list[str] = []
        are_repeats = repeat(False) if marks is None else marks.tolist()
        columns = zip(block.sequences.tolist(), block.times.tolist(), self._payloads(block), are_repeats, strict=False)
        for sequence, received_at, payload, is_repeat in columns:
            fields = {"stream": block.stream, "epoch": block.epoch, "sequence": sequence, "received_at": received_at}
            if is_repeat:
                fields["repeat"] = True
            try:
                fields["data"] = payload.decode()
            except UnicodeDecodeError:
                fields |= {"data": b64encode(payload).decode(), "encoding": "base64"}
            lines.append(json.dumps(fields))
        return "\n".join([*lines, ""]).encode()

    def _report_damage(self, damage: Damage) -> None:
        self.damaged += 1
        self._reported.add(damage)
        self._on_message(f"{damage}; left out. `fyrehose journal check` shows all damage")
