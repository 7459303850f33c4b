"""Printing of a journal's records, in order, as lines or JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.framing import KeyFilter, StripFraming, Unframed
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.repeat_marking import Marks, RepeatMarker, run_to_end

FILTERED_ROWS = 4_096
"""Records whose keys are examined at once, if few are to be printed."""

MAX_LATEST_KEYS = 1_000_000
"""Maximum number of keys of which the latest records are found."""


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
    :param selection: keys of the records to print; ``None`` to print all. Requires ``strip_framing``.
    :param latest: whether to print only the last record of each key. Requires ``strip_framing``.
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
        selection: KeyFilter | None = None,
        latest: bool = False,
        as_json: bool = False,
    ) -> None:
        self.reader = reader
        self.damaged = 0
        self._output, self._on_message, self._strip_framing = output, on_message, strip_framing
        self._marker, self._repeats = marker, repeats
        self._epoch, self._start, self._end, self._remaining = epoch, start, end, count
        self._format = self._as_json if as_json else self._as_lines
        self._selection = KeyFilter() if latest and selection is None else selection
        self._latest: set[tuple[int, int]] | None = None
        self._finds_latest = latest
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
        ranges = [(epoch, *self._range(epoch, bounds), bounds) for epoch, bounds in self._epochs()]
        if self._finds_latest:
            self._latest = self._find_latest(ranges)
        for epoch, first, last, bounds in ranges:
            self._print(epoch, first, min(last, bounds.next - 1))
            self._at[epoch] = max(self._at.get(epoch, 0), min(last + 1, bounds.next))
            if self._remaining == 0 or self._at[epoch] > last:
                return False
        return True

    def _epochs(self) -> Iterator[tuple[int, Bounds]]:
        for epoch in self.reader.epochs():
            if self._epoch in (None, epoch):
                bounds = self.reader.bounds(epoch)
                assert bounds is not None, epoch
                yield epoch, bounds

    def _find_latest(self, ranges: Sequence[tuple[int, int, int, Bounds]]) -> set[tuple[int, int]]:
        """Return the epochs and positions of the last record of each key.

        :raises ConfigurationError: if there are more than :data:`MAX_LATEST_KEYS` keys.
        """
        found: dict[bytes, tuple[int, int]] = {}
        for epoch, first, last, bounds in ranges:
            for block in self.reader.read(epoch, first, min(last, bounds.next - 1), lambda damage: None):
                for part, _ in self._select(block):
                    keys = self._unframe(part).keys
                    for position, key in () if keys is None else zip(part.positions.tolist(), keys, strict=True):
                        if key is not None:
                            found[key] = epoch, position
                    if len(found) > MAX_LATEST_KEYS:
                        raise ConfigurationError(
                            f"more than {MAX_LATEST_KEYS:,} keys; select fewer with --key-prefix, --from or --to"
                        )
        return set(found.values())

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
                    end = len(part)
                    if self._remaining is not None:
                        step = self._remaining if self._selection is None else FILTERED_ROWS
                        end = min(row + step, end)
                    kept = part.rows(row, end)
                    if by_time and not began:
                        losses = [lost for lost in losses if lost[0] > kept.first]
                    began = True
                    while losses and losses[0][0] < kept.last:
                        self._report_lost(*losses.pop(0))
                    payloads, keys = self._up_to_count(self._unframe(kept))
                    text = self._format(kept, payloads, keys, None if marks is None else marks[row:end])
                    if text:
                        self._output(text)
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

    def _unframe(self, block: Block) -> Unframed:
        """Return the data and keys of records; ``None`` is the data of records that are not to be printed."""
        payloads = block.payloads()
        if self._strip_framing is None:
            return Unframed(payloads)
        unframed = self._strip_framing(block.stream, payloads)
        if self._selection is None:
            return unframed
        keys, matches = unframed.keys, self._selection.matches
        if keys is None:
            return Unframed([None] * len(payloads))
        wanted = [data is not None and matches(key) for data, key in zip(unframed.data, keys, strict=True)]
        if self._latest is not None:
            latest, epoch = self._latest, block.epoch
            places = block.positions.tolist()
            wanted = [is_wanted and (epoch, at) in latest for is_wanted, at in zip(wanted, places, strict=True)]
        data = [payload if is_wanted else None for payload, is_wanted in zip(unframed.data, wanted, strict=True)]
        return Unframed(data, [key if is_wanted else None for key, is_wanted in zip(keys, wanted, strict=True)])

    def _up_to_count(self, unframed: Unframed) -> Unframed:
        """Return the data up to the last record to print."""
        if self._remaining is None or self._selection is None:
            return unframed
        printed = accumulate(data is not None for data in unframed.data)
        data = [data if row <= self._remaining else None for data, row in zip(unframed.data, printed, strict=True)]
        return unframed._replace(data=data)

    def _as_lines(
        self,
        block: Block,
        payloads: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        marks: Marks | None,
    ) -> bytes:
        return b"\n".join([*(payload for payload in payloads if payload is not None), b""])

    def _as_json(
        self,
        block: Block,
        payloads: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        marks: Marks | None,
    ) -> bytes:
        lines: list[str] = []
        are_repeats = repeat(False) if marks is None else marks.tolist()
        all_keys = repeat(None) if keys is None else keys
        columns = zip(block.sequences.tolist(), block.times.tolist(), payloads, all_keys, are_repeats, strict=False)
        for sequence, received_at, payload, key, is_repeat in columns:
            if payload is None:
                continue
            fields = {"stream": block.stream, "epoch": block.epoch, "sequence": sequence, "received_at": received_at}
            if is_repeat:
                fields["repeat"] = True
            if key is not None:
                try:
                    fields["key"] = key.decode()
                except UnicodeDecodeError:
                    fields |= {"key": b64encode(key).decode(), "key_encoding": "base64"}
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
