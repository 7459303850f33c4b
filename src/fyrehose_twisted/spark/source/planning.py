"""Planning of reads: number ranges of task size."""

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
"""Numbers that a task should have at least, since it costs as much to begin one."""

TARGET_TASKS = 4 * (os.cpu_count() or 1)
"""So many tasks keep all cores of a machine at work; small ranges are put together to no fewer."""


class EpochRange(NamedTuple):
    """An epoch of a journal, and the numbers of it that are read: from ``first`` up to ``next``, this not included."""

    location: JournalLocation
    epoch: int
    first: int
    next: int


class TaskRange(NamedTuple):
    """What a task reads: numbers ``first`` to ``last`` of an epoch of a journal, both inclusive.

    ``next`` is where the whole read ends: a gap is looked at as far as there, so that what is given of it does not
    depend on what is declared lost later.
    """

    location: JournalLocation
    epoch: int
    first: int
    last: int
    next: int


def epoch_ranges(options: ReadOptions) -> list[EpochRange]:
    """Return what a batch reads.

    :raises NotInJournal: if the start is not kept any more, and that is to be told.
    :raises JournalDamaged: as :func:`check_watermark`.
    :raises ConfigurationError: if the start or the end names a stream that is not read, or the start lies behind the
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
    """See that numbers where to begin and to end are those of streams that are read, and that something has them.

    :raises ConfigurationError: if not: if a stream is not read, or all its epochs end before the start.
    :raises JournalDamaged: as :func:`check_watermark`, if that is why.
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
                check_watermark(options, origin, epoch)  # It may have gone further once.
            if said <= bounds.next or blocking_damage(reader, epoch) is None:
                of = "" if "" in options.start.offsets else origin.stream
                starts.setdefault(of, []).append((said, bounds.next, origin, epoch))
    for found in starts.values():
        if all(said > next for said, next, _, _ in found):
            said, next, origin, epoch = max(found, key=itemgetter(1))
            raise ConfigurationError(
                f"startingOffsets {said} lies beyond the end of {origin.stream}: epoch {epoch} of it goes up to"
                f" {next - 1} in {origin.journal}. To read what comes from now on, say latest"
            )


def resolve_bound(
    bound: ReadBound, location: JournalLocation, reader: IJournalReader, epoch: int, *, is_end: bool = False
) -> int:
    """Return the number at which a start or an end stands in an epoch.

    A start at a time leaves out nothing that was received then or later, and an end nothing that was received before.
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
    """Return where to begin if a journal begins at ``first_kept`` only: at ``first`` all the same, and what is gone is
    given as lost.

    :raises NotInJournal: if that is not to be told in rows but to end the read.
    """
    if options.fail_on_data_loss:
        raise NotInJournal(
            f"{location.journal} begins at {first_kept} of epoch {epoch} of {location.stream}: what was wanted "
            f"from {first} on is"
            " not kept any more. failOnDataLoss=false reads on, with rows of status lost for it"
        )
    return first


def first_received_since(reader: IJournalReader, epoch: int, time: int) -> int:
    """Return the lowest number of a record that was received at ``time``, in microseconds since 1970, or later."""
    bounds: Bounds | None = reader.bounds(epoch)
    border = _bisect_by_time(reader, epoch, time)
    assert bounds is not None, epoch
    for block in reader.read(epoch, max(bounds.first, border - MAX_REPAIR_DISTANCE), bounds.next - 1, _ignore):
        late = (block.times >= time).nonzero()[0]
        if len(late):
            return int(block.positions[late[0]])
    return bounds.next


def next_received_before(reader: IJournalReader, epoch: int, time: int) -> int:
    """Return the number after the highest of a record that was received before ``time``."""
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
    """Return a number about which times pass ``time``. Repairs are received late, so it is not exact."""
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
"""Numbers by which a record that was repaired may come before others that were received earlier."""


def _ignore(damage: object) -> None:
    """What is damaged is told when it is read; here it only is no place to look at."""


def task_ranges(epoch_range: EpochRange, size: int) -> Iterator[TaskRange]:
    """Yield a lane in ranges of at most ``size`` numbers; a stretch of which nothing is held is one, however wide.

    :raises JournalError: if the journal does not reach as far as the lane.
    """
    reader = cached_reader(epoch_range.location)
    bounds = reader.bounds(epoch_range.epoch)
    if bounds is None or bounds.next < epoch_range.next:
        raise JournalError(
            f"{epoch_range.location.journal} was read up to {epoch_range.next - 1} of epoch {epoch_range.epoch} "
            f"of {epoch_range.location.stream}, and"
            f" now reaches {'nowhere' if bounds is None else f'up to {bounds.next - 1}'}; `fyrehose journal check`"
            " tells what became of it"
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
    """Yield ranges, several at a time where they are small: each that Spark gives to a task costs as much as to read
    some ten thousand records.

    :param size: numbers that a task reads at most, if a range has no more.
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
    """Return where an epoch of which nothing is kept any more would go on, ``None`` if that is not known."""
    if not isinstance(reader, JournalReader):
        return None
    return max((segment.starts[epoch] for segment in reader.segments if epoch in segment.starts), default=None)


def check_watermark(options: ReadOptions, origin: JournalLocation, epoch: int) -> None:
    """See that a journal does not end too early because damage makes its watermark stand still.

    :raises JournalDamaged: if it does, unless data loss is to be read over.
    """
    damage = blocking_damage(cached_reader(origin), epoch)
    if damage is not None and options.fail_on_data_loss:
        raise _damaged(origin, damage)


def check_epochs(options: ReadOptions, origin: JournalLocation) -> None:
    """See that no epoch of a journal is gone as a whole.

    :raises JournalDamaged: if one is, unless data loss is to be read over.
    """
    damage = lost_epoch(cached_reader(origin))
    if damage is not None and options.fail_on_data_loss:
        raise _damaged(origin, damage)


def _damaged(origin: JournalLocation, damage: Damage) -> JournalDamaged:
    return JournalDamaged(damage._replace(name=f"{origin.path or origin.journal}/{damage.name}"))
