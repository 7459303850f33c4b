"""Read planning: division of journals into number ranges of task size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.endings import blocking_damage, lost_epoch
from fyrehose_twisted.journal.errors import Damage, JournalDamaged, JournalError, NotInJournal
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader
from fyrehose_twisted.spark.source.offsets import journal_key
from fyrehose_twisted.spark.source.options import EARLIEST, ReadBound, ReadOptions, offset_at

MIN_TASK_NUMBERS = 50_000
"""Minimum of numbers per task; starting a task costs about as much as reading them."""

TARGET_TASKS = 4 * (os.cpu_count() or 1)
"""Number of tasks that keeps all cores of a machine busy. Small ranges are merged into no fewer tasks."""


class EpochRange(NamedTuple):
    """Numbers to read of a journal's epoch, from ``first`` to ``next`` (exclusive)."""

    location: JournalLocation
    epoch: int
    first: int
    next: int


class TaskRange(NamedTuple):
    """Range read by a task: numbers ``first`` to ``last`` (inclusive) of a journal's epoch.

    ``next`` is the end of the whole read. Gaps are examined up to that number, so that their rows do not depend on
    numbers declared lost later.
    """

    location: JournalLocation
    epoch: int
    first: int
    last: int
    next: int


def epoch_ranges(options: ReadOptions) -> list[EpochRange]:
    """Return the epoch ranges of a batch.

    :raises NotInJournal: if the journal has dropped the start and data loss is an error.
    :raises JournalDamaged: as :func:`check_watermark`.
    :raises ConfigurationError: if the start or the end names a stream that is not read, or the start is beyond the
        end.
    """
    found = []
    origins = options.locations()
    check_streams(options, origins)
    for origin in origins:
        reader = cached_reader(origin)
        reader.refresh()
        for epoch in reader.epochs():
            bounds: Bounds | None = reader.bounds(epoch)
            if bounds is None:
                continue
            first = resolve_bound(options.start, origin, reader, epoch)
            end = resolve_bound(options.end, origin, reader, epoch, is_end=True)
            if None not in (options.start.offsets, options.end.offsets) and first > end:
                raise ConfigurationError(
                    f"startingOffsets {first} lies beyond endingOffsets {end} for epoch {epoch} of {origin.stream}"
                )
            next = min(end, bounds.next)
            if next == bounds.next and options.end.offsets is None:
                check_watermark(options, origin, epoch)
            if options.start.offsets is not None and first < bounds.first:
                first = check_dropped(options, origin, epoch, first, bounds.first)
            if first < next:
                found.append(EpochRange(origin, epoch, first, next))
        if options.end.offsets is None:
            check_epochs(options, origin)
    return found


def check_streams(options: ReadOptions, origins: Sequence[JournalLocation]) -> None:
    """Check that start and end offsets name streams that are read, and that some epoch reaches the start.

    :raises ConfigurationError: if a stream is not read, or all its epochs end before the start.
    :raises JournalDamaged: as :func:`check_watermark`, if damage is the cause.
    """
    streams = {origin.stream for origin in origins}
    for at in (options.start, options.end):
        unknown = set() if at.offsets is None or "journals" in at.offsets else at.offsets.keys() - streams - {""}
        if unknown:
            there = ", ".join(sorted(streams))
            raise ConfigurationError(
                f"there is an offset for stream {min(unknown)}, which is not read; there is {there}"
            )
    if options.start.offsets is None:
        return
    starts: dict[str, list[tuple[int, int, JournalLocation, int]]] = {}
    for origin in origins:
        reader = cached_reader(origin)
        reader.refresh()
        for epoch in reader.epochs():
            said = offset_at(options.start, (journal_key(origin), origin.journal), origin.stream, epoch)
            bounds = reader.bounds(epoch)
            if said is None or bounds is None:
                continue
            if said > bounds.next:
                check_watermark(options, origin, epoch)  # Damage may have lowered the watermark.
            if said <= bounds.next or blocking_damage(reader, epoch) is None:
                of = "" if "" in options.start.offsets else origin.stream
                starts.setdefault(of, []).append((said, bounds.next, origin, epoch))
    for found in starts.values():
        if all(said > next for said, next, _, _ in found):
            said, next, origin, epoch = max(found, key=itemgetter(1))
            raise ConfigurationError(
                f"startingOffsets {said} lies beyond the end of {origin.stream}: its epoch {epoch} ends at"
                f" {next - 1} in {origin.journal}. To read only new records, use latest"
            )


def resolve_bound(
    bound: ReadBound, location: JournalLocation, reader: IJournalReader, epoch: int, *, is_end: bool = False
) -> int:
    """Resolve a start or an end to a number of an epoch.

    A start time omits no record received at or after that time. An end time omits no record received before it.
    """
    bounds: Bounds | None = reader.bounds(epoch)
    assert bounds is not None, epoch
    if bound.offsets is not None:
        said = offset_at(bound, (journal_key(location), location.journal), location.stream, epoch)
        return (bounds.next if is_end else bounds.first) if said is None else said
    if bound.time is not None:
        return (
            next_received_before(reader, epoch, bound.time)
            if is_end
            else first_received_since(reader, epoch, bound.time)
        )
    return bounds.first if bound.keyword == EARLIEST else bounds.next


def check_dropped(options: ReadOptions, location: JournalLocation, epoch: int, first: int, first_kept: int) -> int:
    """Return ``first`` although the journal begins at ``first_kept``, so that the dropped numbers are read as lost.

    :raises NotInJournal: if data loss is an error.
    """
    if options.fail_on_data_loss:
        raise NotInJournal(
            f"{location.journal} begins at {first_kept} of epoch {epoch} of {location.stream}: numbers from {first} on"
            " were dropped. failOnDataLoss=false continues, with rows of status lost for them"
        )
    return first


def first_received_since(reader: IJournalReader, epoch: int, time: int) -> int:
    """Return the lowest number received at or after ``time``, in microseconds since 1970."""
    bounds: Bounds | None = reader.bounds(epoch)
    border = _bisect_by_time(reader, epoch, time)
    assert bounds is not None, epoch
    for block in reader.read(epoch, max(bounds.first, border - MAX_REPAIR_DISTANCE), bounds.next - 1, _ignore):
        late = (block.times >= time).nonzero()[0]
        if len(late):
            return int(block.positions[late[0]])
    return bounds.next


def next_received_before(reader: IJournalReader, epoch: int, time: int) -> int:
    """Return the number after the highest received before ``time``, in microseconds since 1970."""
    bounds: Bounds | None = reader.bounds(epoch)
    border = _bisect_by_time(reader, epoch, time)
    assert bounds is not None, epoch
    next = bounds.first
    first, last = max(bounds.first, border - MAX_REPAIR_DISTANCE), min(bounds.next, border + MAX_REPAIR_DISTANCE) - 1
    for block in reader.read(epoch, first, last, _ignore):
        early = (block.times < time).nonzero()[0]
        if len(early):
            next = int(block.positions[early[-1]]) + 1
    return next


def _bisect_by_time(reader: IJournalReader, epoch: int, time: int) -> int:
    """Return the approximate number at which receive times pass ``time``. Repaired records are received late."""
    bounds: Bounds | None = reader.bounds(epoch)
    assert bounds is not None, epoch
    low, high = bounds.first, bounds.next
    while high - low > 1:
        middle = (low + high) // 2
        block = next(iter(reader.read(epoch, middle, high - 1, _ignore)), None)
        if block is None or int(block.times[0]) >= time:
            high = middle
        else:
            low = int(block.positions[0]) + 1
    return low


MAX_REPAIR_DISTANCE = 100_000
"""Maximum distance by which a repaired record may precede records received earlier."""


def _ignore(damage: object) -> None:
    """Ignore damage during a search by time; the read itself reports it."""


def task_ranges(epoch_range: EpochRange, size: int) -> Iterator[TaskRange]:
    """Split an epoch range into task ranges of at most ``size`` numbers; a gap is not split, whatever its width.

    :raises JournalError: if the journal now ends before the epoch range.
    """
    reader = cached_reader(epoch_range.location)
    bounds = reader.bounds(epoch_range.epoch)
    if bounds is None or bounds.next < epoch_range.next:
        raise JournalError(
            f"{epoch_range.location.journal} was read up to {epoch_range.next - 1} of epoch {epoch_range.epoch} "
            f"of {epoch_range.location.stream}, but"
            f" now {'holds none of it' if bounds is None else f'ends at {bounds.next - 1}'};"
            " `fyrehose journal check` shows the damage"
        )
    at = epoch_range.first
    while at < epoch_range.next:
        last = min(at + size, epoch_range.next) - 1
        held = next(iter(reader.held(epoch_range.epoch, max(at, bounds.first), epoch_range.next - 1)), None)
        if held is None:
            last = epoch_range.next - 1
        elif held[0] > last:
            last = held[0] - 1
        yield TaskRange(epoch_range.location, epoch_range.epoch, at, last, epoch_range.next)
        at = last + 1


def pack_ranges(found: Sequence[TaskRange], size: int) -> Iterator[tuple[TaskRange, ...]]:
    """Group small ranges into tasks. Starting a task costs as much as reading some ten thousand records.

    :param size: maximum of numbers per task, unless a single range is larger.
    """
    total = sum(_weight(one, size) for one in found)
    wanted = min(size, max(MIN_TASK_NUMBERS, -(-total // TARGET_TASKS)))
    waiting: list[TaskRange] = []
    count = 0
    for one in found:
        weight = _weight(one, size)
        if waiting and count + weight > wanted:
            yield tuple(waiting)
            waiting, count = [], 0
        waiting.append(one)
        count += weight
    if waiting:
        yield tuple(waiting)


def _weight(one: TaskRange, size: int) -> int:
    return min(one.last - one.first + 1, size)


def end_of_dropped_epoch(reader: IJournalReader, epoch: int) -> int | None:
    """Return the next number of an epoch whose records were all dropped; ``None`` if unknown."""
    if not isinstance(reader, JournalReader):
        return None
    return max((segment.starts[epoch] for segment in reader.segments if epoch in segment.starts), default=None)


def check_watermark(options: ReadOptions, origin: JournalLocation, epoch: int) -> None:
    """Check that damage does not hold back the watermark of a journal's epoch.

    :raises JournalDamaged: if it does and data loss is an error.
    """
    damage = blocking_damage(cached_reader(origin), epoch)
    if damage is not None and options.fail_on_data_loss:
        raise _damaged(origin, damage)


def check_epochs(options: ReadOptions, origin: JournalLocation) -> None:
    """Check that no epoch of a journal is lost entirely.

    :raises JournalDamaged: if one is and data loss is an error.
    """
    damage = lost_epoch(cached_reader(origin))
    if damage is not None and options.fail_on_data_loss:
        raise _damaged(origin, damage)


def _damaged(origin: JournalLocation, damage: Damage) -> JournalDamaged:
    return JournalDamaged(damage._replace(name=f"{origin.path or origin.journal}/{damage.name}"))
