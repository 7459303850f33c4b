"""Printing of a journal's records, in order, as lines or JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.repeat_marking import Marks, RepeatMarker, run_to_end

StripFraming = Callable[[str, list[bytes]], Sequence[bytes | None]]
"""Given a stream's URI and payloads, returns the payloads without the protocol's framing; ``None`` for one that must
not be printed."""


class StreamPosition(NamedTuple):
    """A position in a stream: a sequence number, or a time in UTC microseconds since 1970."""

    value: int
    is_time: bool


class RecordPrinter:
    """Printer of the records of one journal, in order.

    :param output: writes bytes.
    :param on_message: called with a line about each gap or damaged part.
    :param strip_framing: strips the protocol's framing from payloads; ``None`` to print payloads as they are.
    :param marker: marks repeats; ``None`` to treat no record as a repeat.
    :param repeats: whether to print repeats, which are marked in JSON, instead of leaving them out.
    :param epoch: the only epoch to print; ``None`` for all.
    :param start: first position. A time selects records received at that time or later.
    :param end: last position, inclusive. A time selects records received at that time or earlier.
    :param count: maximum number of records; ``None`` for no limit.
    :param as_json: whether to print JSON lines instead of payloads.
    :ivar damaged: number of damaged parts encountered.
    :raises ConfigurationError: if the epoch of a sequence number is ambiguous.
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
            reason = f"it has {', '.join(map(str, known))}" if known else "it is empty"
            raise ConfigurationError(f"{reader.stream} has no epoch {epoch}; {reason}")
        by_number = any(position is not None and not position.is_time for position in (start, end))
        if by_number and epoch is None:
            if len(known) > 1:
                names = ", ".join(map(str, known))
                raise ConfigurationError(f"{reader.stream} has several epochs, {names}; select one with --epoch")
            self._epoch = known[0] if known else None

    def run(self) -> bool:
        """Print the records that are available and not yet printed; return whether more records may follow."""
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
        """Report damage that has not been reported yet."""
        for damage in self.reader.damages:
            if damage not in self._reported:
                self._report_damage(damage)

    def report_gaps(self) -> None:
        """Report missing records, which keep the records after them from being printed."""
        for epoch, at in self._at.items():
            bounds = self.reader.bounds(epoch)
            if self._remaining != 0 and bounds is not None and at == bounds.next <= bounds.last:
                last = bounds.last
                self._on_message(
                    f"{at} of epoch {epoch} is missing; the records after it, up to {last}, are not printed"
                )

    def _range(self, epoch: int, bounds: Bounds) -> tuple[int, int]:
        first, last = bounds.first, 2**64 - 2
        if self._start is not None and not self._start.is_time:
            first = self._position(self._start.value, bounds)
        if self._end is not None and not self._end.is_time:
            last = self._position(self._end.value, bounds)
        if epoch not in self._at and first < bounds.first:
            self._on_message(
                f"{self.reader.stream} begins at {bounds.first} of epoch {epoch} here; earlier records are not kept"
            )
        return max(first, bounds.first, self._at.get(epoch, 0)), last

    def _position(self, number: int, bounds: Bounds) -> int:
        """Return the position of a sequence number. If numbers wrap, it is the one closest to the records held."""
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
        # Lost numbers have no receive time. When selecting by time, report only losses between printed records.
        by_time = any(position is not None and position.is_time for position in (self._start, self._end))
        began = False
        for block in reader.read(epoch, first, last, self._report_damage):
            for part, marks in self._select(block):
                row = 0
                while row < len(part) and self._remaining != 0:
                    end = len(part) if self._remaining is None else min(row + self._remaining, len(part))
                    kept = part.rows(row, end)
                    if by_time and not began:
                        losses = [lost for lost in losses if lost[0] > kept.first]
                    began = True
                    while losses and losses[0][0] < kept.last:
                        self._report_lost(*losses.pop(0))
                    payloads = self._payloads(kept)
                    self._output(self._format(kept, payloads, None if marks is None else marks[row:end]))
                    if self._remaining is not None:
                        # Those that are refused do not count.
                        self._remaining -= sum(payload is not None for payload in payloads)
                    row = end
            if self._remaining == 0:
                return
        for lost in losses if not by_time else ():
            self._report_lost(*lost)

    def _report_lost(self, first: int, last: int) -> None:
        self._on_message(f"lost {first} to {last}: no journal or client held them")

    def _select(self, block: Block) -> Iterator[tuple[Block, Marks | None]]:
        """Yield the parts of ``block`` to print, each with the mask of its repeats."""
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

    def _payloads(self, block: Block) -> Sequence[bytes | None]:
        payloads = block.payloads()
        return payloads if self._strip_framing is None else self._strip_framing(block.stream, payloads)

    def _as_lines(self, block: Block, payloads: Sequence[bytes | None], marks: Marks | None) -> bytes:
        return b"\n".join([*(payload for payload in payloads if payload is not None), b""])

    def _as_json(self, block: Block, payloads: Sequence[bytes | None], marks: Marks | None) -> bytes:
        lines: list[str] = []
        are_repeats = repeat(False) if marks is None else marks.tolist()
        columns = zip(block.sequences.tolist(), block.times.tolist(), payloads, are_repeats, strict=False)
        for sequence, received_at, payload, is_repeat in columns:
            if payload is None:
                continue
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
        self._on_message(f"{damage}; left out. `fyrehose journal check` lists all damage")
