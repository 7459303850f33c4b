"""Opening a journal to write: what is there after any crash, made durable, and where to go on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.errors import Damage, JournalError
from fyrehose_twisted.journal.format.scan import ScannedFrame
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import (
    FULL_SUFFIX,
    INDEX_SUFFIX,
    MAGIC,
    MAX_HEADER,
    OPEN_SUFFIX,
    SegmentHeader,
    segment_name,
)
from fyrehose_twisted.journal.format.watermark import POSITION_BYTES, POSITION_NAME, DurablePosition, read_position
from fyrehose_twisted.journal.segment_loader import (
    OTHER_JOURNAL,
    OpenSegment,
    agreed_header,
    is_file_missing,
    load_segment,
    may_be_unstarted,
    missing_file_damage,
    open_segment,
    read_durable,
    segment_suffixes,
    truncation_damage,
)
from fyrehose_twisted.wording import pluralize


@dataclass
class Recovery:
    """What was found when a journal was opened.

    :ivar header: what the segments agree on; ``None`` for a new journal.
    :ivar segments: by number, ascending.
    :ivar open_segment: the segment to go on with, if there is one.
    :ivar next_number: the lowest number that no segment ever had, as far as can be known.
    :ivar truncated_bytes: bytes that were cut off the last segment: frames that a crash left unfinished.
    :ivar damages: what is damaged, or gone.
    :ivar published_watermarks: the highest watermark of each epoch that was published, as far as that is known.
    """

    header: SegmentHeader | None = None
    segments: dict[int, Segment] = field(default_factory=dict)
    open_segment: Segment | None = None
    next_number: int = 1
    truncated_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    published_watermarks: dict[int, int] = field(default_factory=dict)

    def messages(self) -> list[str]:
        """Return what an operator should know, a line each."""
        lines = [str(damage) for damage in self.damages]
        if self.truncated_bytes:
            lines.append(
                f"cut {pluralize(self.truncated_bytes, 'byte')} off the end, which the last stop left unfinished"
            )
        return lines


def recover(directory: IDirectory, stream: str) -> Recovery:
    """Clear up after a crash, and return what there is, all of it durable.

    The caller has the lock.

    :raises JournalError: if this is another stream's journal, or cannot be read.
    """
    recovery = Recovery()
    names = directory.names()
    suffixes = segment_suffixes(names)
    mark = read_position(directory, recovery.damages)
    recovery.next_number = max([0, *suffixes, 0 if mark is None else mark.segment]) + 1
    opened, unfinished = _open_all(directory, suffixes, recovery, mark)
    recovery.header = agreed_header((one.segment for one in opened), directory, stream)
    if mark is not None and recovery.header is not None and mark.tag != recovery.header.tag:
        recovery.damages.append(Damage(POSITION_NAME, 0, POSITION_BYTES, OTHER_JOURNAL))
        mark = None
    if mark is not None:
        recovery.published_watermarks = dict(mark.watermarks)
        if is_file_missing(mark, suffixes):
            recovery.damages.append(missing_file_damage(mark))
    for one in opened:
        segment = one.segment
        recovery.segments[segment.number] = segment
        if segment.ordered or segment.number != max(suffixes):
            file: IFile = directory.open(segment.name)
            load_segment(OpenSegment(segment, file), keep_index=True)
            if mark is not None and mark.segment == segment.number and not segment.ordered:
                segment.damages += truncation_damage(segment, file.size(), mark.offset)
            file.close()
        elif begun := _unstarted_bytes(one, mark):
            unfinished.append(segment.name)
            recovery.truncated_bytes += begun
            del recovery.segments[segment.number]
            continue
        elif _recover_last(one, recovery, mark):
            recovery.open_segment = segment
        recovery.damages += segment.damages
    _remove_leftovers(directory, names, suffixes)
    for name in unfinished:
        directory.remove(name)
    directory.sync()
    return recovery


def _open_all(
    directory: IDirectory, suffixes: dict[int, str], recovery: Recovery, durable_position: DurablePosition | None
) -> tuple[list[OpenSegment], list[str]]:
    """Return the segments, and the names of what a crash kept from becoming one."""
    opened: list[OpenSegment] = []
    unfinished: list[str] = []
    begun = 0 if durable_position is None else durable_position.segment
    for number, suffix in suffixes.items():
        one = open_segment(directory, number, suffix)
        if isinstance(one, OpenSegment):
            one.file.close()  # There may be more segments than a process may have open files.
            opened.append(one)
        elif number == max(suffixes) and number > begun and suffix == OPEN_SUFFIX and _is_cut_header(directory, one):
            # It was being made: what is in it was never more than a header.
            unfinished.append(one.name)
            recovery.truncated_bytes += one.length
        else:
            recovery.damages.append(one)
    return opened, unfinished


def _is_cut_header(directory: IDirectory, damage: Damage) -> bool:
    """Say whether a file without any frame is what a crash left of a segment, and not somebody's who uses its name."""
    file = directory.open(damage.name)
    head = file.read(0, MAX_HEADER)
    file.close()
    return head[: len(MAGIC)] == MAGIC[: len(head)] or not any(head)


def _unstarted_bytes(one: OpenSegment, durable_position: DurablePosition | None) -> int:
    """Return the bytes of a segment if a crash came before it was more than begun: its first frame, which says where
    epochs begin, is not whole. Otherwise 0."""
    segment = one.segment
    file: IFile = segment.directory.open(segment.name)
    try:
        size: int = file.size()
        if (
            segment.number <= durable_position.segment
            if durable_position is not None
            else not may_be_unstarted(segment, size)
        ):
            return 0
        return (
            0 if any(isinstance(what, ScannedFrame) for what in segment.scan_frames(file, segment.end, size)) else size
        )
    finally:
        file.close()


def _recover_last(one: OpenSegment, recovery: Recovery, durable_position: DurablePosition | None) -> bool:
    """Take in the segment that was being written, and cut off its torn end; say whether more can be added to it.

    Nothing is cut off that may have been durable: of that the segment keeps what cannot be read, and nothing is added.
    Damage that good frames follow is left where it is as well.
    """
    segment = one.segment
    file: IFile = segment.directory.open(segment.name, writable=True)
    try:
        size, durable = file.size(), 0
        if durable_position is not None and durable_position.segment >= segment.number:
            durable = durable_position.offset if durable_position.segment == segment.number else size
        damages = read_durable(segment, file, max(size, durable))
        if damages and (durable_position is None or damages[0].offset < durable):
            segment.damages += damages
            file.sync()
            return False
        if segment.end < size:
            recovery.truncated_bytes += size - segment.end
            file.truncate(segment.end)
        # After a kill these frames may be in memory only, and whoever reads them must not see them vanish. After a sync
        # that failed they may be in memory and yet count as written: only what is written anew is sure to be synced.
        if durable < segment.end:
            file.write(durable, file.read(durable, segment.end - durable))
        file.sync()
    except OSError as error:
        raise JournalError(f"{segment.directory}/{segment.name} cannot be recovered: {error.strerror}") from error
    finally:
        file.close()
    return True


def _remove_leftovers(directory: IDirectory, names: list[str], suffixes: dict[int, str]) -> None:
    """Remove files that others replaced, or that a crash left unfinished."""
    kept = {segment_name(number, suffix) for number, suffix in suffixes.items()}
    for number, suffix in suffixes.items():
        replaced = segment_name(number, OPEN_SUFFIX)
        if suffix == FULL_SUFFIX and replaced in names:
            directory.remove(replaced)
    for name in names:
        owner = name.removesuffix(INDEX_SUFFIX) + FULL_SUFFIX
        if name.endswith(".tmp") or (name.endswith(INDEX_SUFFIX) and owner not in kept):
            with suppress(FileNotFoundError):  # An index that was made anew took it.
                directory.remove(name)
