"""Planning of a comparison: number ranges that are compared independently."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.endings import blocking_damage
from fyrehose_twisted.journal.errors import JournalDamaged
from fyrehose_twisted.journal.remote.client import RemoteReader
from fyrehose_twisted.journal.segment_loader import EXCLUDED
from fyrehose_twisted.spark.source.journal_locations import JournalLocation
from fyrehose_twisted.spark.verify.parts import ComparisonRange, Extent, Share
from fyrehose_twisted.spark.verify.replica import Reader, planned_reader

LONGEST_LISTED = 1_000_000
"""Longest gap in all journals that gets a row per number in the healed stream; longer gaps get two rows."""

MAX_JOURNALS = 63
"""Maximum of journals per stream, since each has a bit in a mask."""


def group_by_stream(origins: Sequence[JournalLocation]) -> dict[str, list[JournalLocation]]:
    """Group journals by stream.

    :raises ConfigurationError: if there is no journal, one is given twice, or a stream has too many.
    """
    if not origins:
        raise ConfigurationError("there is nothing to compare: name at least one journal")
    streams: dict[str, list[JournalLocation]] = {}
    known: set[tuple[str, object]] = set()
    for origin in origins:
        place: object = origin.server if origin.path is None else os.path.realpath(origin.path)
        for what in (origin.journal, place):
            if (origin.stream, what) in known:
                raise ConfigurationError(
                    f"{origin.journal} is given twice for stream {origin.stream}: name different journals, and give"
                    " them distinct names with NAME=JOURNAL"
                )
        known |= {(origin.stream, origin.journal), (origin.stream, place)}
        streams.setdefault(origin.stream, []).append(origin)
    for stream, members in streams.items():
        if len(members) > MAX_JOURNALS:
            raise ConfigurationError(f"{len(members)} journals of {stream}; at most {MAX_JOURNALS} can be compared")
    return dict(sorted(streams.items()))


def find_extents(origins: Sequence[JournalLocation]) -> list[Extent]:
    """Determine the current extents of the journals; later records are not compared.

    :raises ConfigurationError: as :func:`group_by_stream`, or if journals of a stream wrap at different numbers.
    :raises JournalDamaged: if damage hides the end of a journal, or a served journal ends at damage.
    :raises JournalError: if a journal cannot be read.
    """
    found: list[Extent] = []
    for stream, members in group_by_stream(origins).items():
        readers = [planned_reader(origin, refresh=True) for origin in members]
        for origin, (reader, _) in zip(members, readers, strict=True):
            _check_undamaged(origin, reader)
        found += _stream_extents(stream, members, readers, _common_wrap(stream, [reader for reader, _ in readers]))
    return found


def _check_undamaged(origin: JournalLocation, reader: Reader) -> None:
    stops = [damage for damage in reader.damages if damage.reason in EXCLUDED]
    if isinstance(reader, RemoteReader):  # A server does not serve records beyond damage.
        stops += [one for one in map(partial(blocking_damage, reader), reader.epochs()) if one is not None]
    if stops:
        raise JournalDamaged(stops[0]._replace(name=f"{origin.journal}/{stops[0].name}"))


def _common_wrap(stream: str, readers: Iterable[Reader]) -> int:
    wraps = {reader.wrap for reader in readers}
    if len(wraps) > 1:
        raise ConfigurationError(
            f"the journals of {stream} cannot be compared: their numbers wrap at {' and '.join(map(str, wraps))}"
        )
    return wraps.pop()


def _stream_extents(
    stream: str, members: Sequence[JournalLocation], readers: Sequence[tuple[Reader, bool]], wrap: int
) -> list[Extent]:
    """Return the extents of one stream, oldest epoch first."""
    later: list[int | None] = [None] * len(members)
    extents: list[Extent] = []
    for epoch in sorted({epoch for reader, _ in readers for epoch in reader.epochs()}, reverse=True):
        known = [reader.bounds(epoch) for reader, _ in readers]
        first = min(bounds.first for bounds in known if bounds is not None)
        next = max(bounds.next for bounds in known if bounds is not None)
        shares = []
        for index, ((reader, past_damage), bounds) in enumerate(zip(readers, known, strict=True)):
            if bounds is None:  # The journal began later or dropped the epoch, or has not reached it yet.
                at = next if max(reader.epochs(), default=-1) > epoch else first
                bounds = Bounds(at, at, at - 1)
            shares.append(Share(members[index], bounds, past_damage, later[index]))
            began = _epoch_start(reader, epoch, bounds)
            if began is not None:
                before = later[index]
                later[index] = began if before is None else min(began, before)
        extents.append(Extent(stream, epoch, wrap, first, next, tuple(shares)))
    extents.reverse()
    return extents


def plan_ranges(extents: Sequence[Extent], rows_per_partition: int) -> Iterator[ComparisonRange]:
    """Split extents into ranges of ``rows_per_partition`` numbers.

    A range that begins with a long gap in all journals ends with the gap. A gap of more than :data:`LONGEST_LISTED`
    numbers is never split.

    :raises ConfigurationError: if ``rows_per_partition`` is below 1.
    """
    if rows_per_partition < 1:
        raise ConfigurationError(f"{rows_per_partition} rows per partition: give at least 1")
    for extent in extents:
        held = _ExtentCoverage(extent)
        at = extent.first
        while at < extent.next:
            here = held.first_from(at, extent.next - 1)
            if here is None or here >= at + rows_per_partition:
                last = extent.next - 1 if here is None else here - 1
            else:
                last = min(at + rows_per_partition, extent.next) - 1
                last = held.before_long_gap(at, last)
            yield ComparisonRange(extent.stream, extent.epoch, extent.wrap, at, last, extent.shares)
            at = last + 1


class _ExtentCoverage:
    """Incremental view of the numbers that the journals of an extent hold."""

    def __init__(self, extent: Extent) -> None:
        self._extent = extent
        self._readers = [planned_reader(share.location)[0] for share in extent.shares]

    def first_from(self, first: int, last: int) -> int | None:
        """Return the lowest number from ``first`` to ``last`` that a journal holds; ``None`` if none does."""
        lowest: int | None = None
        for reader, share in zip(self._readers, self._extent.shares, strict=True):
            end = min(last if lowest is None else lowest - 1, share.bounds.next - 1)
            for found, _ in self._ranges(reader, first, end):
                lowest = found
                break
        return lowest

    def before_long_gap(self, first: int, last: int) -> int:
        """Return the end of a range: ``last``, or the number before a gap too long to list that extends beyond it."""
        if last + 1 >= self._extent.next or self.first_from(last, last + 1) is not None:
            return last
        end = max(
            here
            for reader, share in zip(self._readers, self._extent.shares, strict=True)
            for _, here in [(0, first - 1), *self._ranges(reader, first, min(last, share.bounds.next - 1))][-1:]
        )
        following = self.first_from(last + 1, self._extent.next - 1)
        after = self._extent.next if following is None else following
        return end if after - 1 - end > LONGEST_LISTED and end >= first else last

    def _ranges(self, reader: Any, first: int, last: int) -> Iterator[tuple[int, int]]:
        return iter(reader.held(self._extent.epoch, first, last)) if first <= last else iter(())


def _epoch_start(reader: Reader, epoch: int, bounds: Bounds) -> int | None:
    """Return the receive time of the first record of an epoch; ``None`` if there is none."""
    if bounds.first >= bounds.next:
        return None
    for block in reader.read(epoch, bounds.first, bounds.next - 1, _ignore):
        return int(block.times[0])
    return None


def _ignore(damage: object) -> None:
    """Ignore damage during planning; the comparison reports it."""
