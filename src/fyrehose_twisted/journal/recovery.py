"""Crash recovery at the opening of a journal for writing."""

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
    """Result of the recovery of a journal.

    :ivar header: header on which the segments agree; ``None`` for a new journal.
    :ivar segments: segments by number, ascending.
    :ivar open_segment: segment to continue writing, if there is one.
    :ivar next_number: lowest segment number that has never been used, as far as known.
    :ivar truncated_bytes: bytes of incomplete frames that were cut off the last segment.
    :ivar damages: damage and missing files.
    :ivar published_watermarks: highest watermark published for each epoch, as far as known.
    """

    header: SegmentHeader | None = None
    segments: dict[int, Segment] = field(default_factory=dict)
    open_segment: Segment | None = None
    next_number: int = 1
    truncated_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    published_watermarks: dict[int, int] = field(default_factory=dict)

    def messages(self) -> list[str]:
        """Return one line for the operator about each problem."""
        lines = [str(damage) for damage in self.damages]
        if self.truncated_bytes:
            lines.append(f"cut off {pluralize(self.truncated_bytes, 'byte')} that were incomplete after the last stop")
        return lines


def recover(directory: IDirectory, stream: str) -> Recovery:
    """Recover a journal after a crash; return its contents, all of them durable.

    The caller holds the writer lock.

    :raises JournalError: if it is the journal of another stream, or cannot be read.
    """
    recovery = Recovery()
    names = directory.names()
    suffixes = segment_suffixes(names)
    position = read_position(directory, recovery.damages)
    recovery.next_number = max([0, *suffixes, 0 if position is None else position.segment]) + 1
    opened, unfinished = _open_all(directory, suffixes, recovery, position)
    recovery.header = agreed_header((found.segment for found in opened), directory, stream)
    if position is not None and recovery.header is not None and position.tag != recovery.header.tag:
        recovery.damages.append(Damage(POSITION_NAME, 0, POSITION_BYTES, OTHER_JOURNAL))
        position = None
    if position is not None:
        recovery.published_watermarks = dict(position.watermarks)
        if is_file_missing(position, suffixes):
            recovery.damages.append(missing_file_damage(position))
    for found in opened:
        segment = found.segment
        recovery.segments[segment.number] = segment
        if segment.ordered or segment.number != max(suffixes):
            file: IFile = directory.open(segment.name)
            load_segment(OpenSegment(segment, file), keep_index=True)
            if position is not None and position.segment == segment.number and not segment.ordered:
                segment.damages += truncation_damage(segment, file.size(), position.offset)
            file.close()
        elif unstarted := _unstarted_bytes(found, position):
            unfinished.append(segment.name)
            recovery.truncated_bytes += unstarted
            del recovery.segments[segment.number]
            continue
        elif _recover_last(found, recovery, position):
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
    """Return the segments, and the names of files that a crash left before their header was complete."""
    opened: list[OpenSegment] = []
    unfinished: list[str] = []
    begun = 0 if durable_position is None else durable_position.segment
    for number, suffix in suffixes.items():
        found = open_segment(directory, number, suffix)
        if isinstance(found, OpenSegment):
            found.file.close()  # A journal may have more segments than a process may have open files.
            opened.append(found)
        elif number == max(suffixes) and number > begun and suffix == OPEN_SUFFIX and _is_cut_header(directory, found):
            # A crash during creation: the file never held more than a header.
            unfinished.append(found.name)
            recovery.truncated_bytes += found.length
        else:
            recovery.damages.append(found)
    return opened, unfinished


def _is_cut_header(directory: IDirectory, damage: Damage) -> bool:
    """Return whether a file without frames is an incomplete segment rather than an unrelated file of that name."""
    file = directory.open(damage.name)
    head = file.read(0, MAX_HEADER)
    file.close()
    return head[: len(MAGIC)] == MAGIC[: len(head)] or not any(head)


def _unstarted_bytes(opened: OpenSegment, durable_position: DurablePosition | None) -> int:
    """Return the size of a segment without a valid frame, which a crash left before its start frame was complete.

    Return 0 for any other segment.
    """
    segment = opened.segment
    file: IFile = segment.directory.open(segment.name)
    try:
        size: int = file.size()
        if (
            segment.number <= durable_position.segment
            if durable_position is not None
            else not may_be_unstarted(segment, size)
        ):
            return 0
        has_frame = any(isinstance(found, ScannedFrame) for found in segment.scan_frames(file, segment.end, size))
        return 0 if has_frame else size
    finally:
        file.close()


def _recover_last(opened: OpenSegment, recovery: Recovery, durable_position: DurablePosition | None) -> bool:
    """Load the last segment and cut off its torn end; return whether it can be written on.

    Bytes that may have been durable are not cut off. If they are unreadable, they stay and the segment is closed.
    Damage before valid frames stays as well.
    """
    segment = opened.segment
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
        # After a kill these frames may be only in the page cache, and readers must not see them vanish. After a failed
        # sync the page cache may count them as clean: only rewriting them ensures that they are synced.
        if durable < segment.end:
            file.write(durable, file.read(durable, segment.end - durable))
        file.sync()
    except OSError as error:
        raise JournalError(f"{segment.directory}/{segment.name} cannot be recovered: {error.strerror}") from error
    finally:
        file.close()
    return True


def _remove_leftovers(directory: IDirectory, names: list[str], suffixes: dict[int, str]) -> None:
    """Remove files that have been replaced, or that a crash left incomplete."""
    kept = {segment_name(number, suffix) for number, suffix in suffixes.items()}
    for number, suffix in suffixes.items():
        replaced = segment_name(number, OPEN_SUFFIX)
        if suffix == FULL_SUFFIX and replaced in names:
            directory.remove(replaced)
    for name in names:
        owner = name.removesuffix(INDEX_SUFFIX) + FULL_SUFFIX
        if name.endswith(".tmp") or (name.endswith(INDEX_SUFFIX) and owner not in kept):
            with suppress(FileNotFoundError):  # Rebuilding an index has replaced it.
                directory.remove(name)
