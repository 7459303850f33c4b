"""Finding the segments of a journal, and what each holds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.coverage import Coverage
from fyrehose_twisted.journal.errors import Damage, JournalError
from fyrehose_twisted.journal.format.frames import HEADER
from fyrehose_twisted.journal.format.index_file import read_index, write_index
from fyrehose_twisted.journal.format.scan import ScannedFrame, scan
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import (
    FULL_SUFFIX,
    MAX_HEADER,
    OPEN_SUFFIX,
    BadHeader,
    SegmentHeader,
    UnsupportedVersion,
    decode,
    segment_name,
    segment_number,
)
from fyrehose_twisted.journal.format.watermark import POSITION_NAME, DurablePosition
from fyrehose_twisted.ranges import RangeSet

TRUNCATED = "they were durable, and the file ends before them"
NUMBERS_MISSING = "they were readable once, and no segment has them now"
UNKNOWN_EXTENT = "nothing says what of it is durable, so all of it is left out"
FILE_MISSING = "what was durable there is gone with the file"
EXCLUDED = (UNKNOWN_EXTENT, FILE_MISSING)
"""Reasons of damage that ends a journal, nobody knows at which number."""
OTHER_JOURNAL = "it is that of another journal"


class OpenSegment(NamedTuple):
    """A segment whose header is known, and its file."""

    segment: Segment
    file: IFile


def segment_suffixes(names: Iterable[str]) -> dict[int, str]:
    """Return the suffix of each segment's file, by number. Where a segment was written anew and the old file is still
    there, the new one counts: it is complete."""
    found: dict[int, str] = {}
    for name in names:
        number = segment_number(name)
        if number is not None and found.get(number) != FULL_SUFFIX:
            found[number] = name[-len(FULL_SUFFIX) :]
    return dict(sorted(found.items()))


def open_segment(directory: IDirectory, number: int, suffix: str) -> OpenSegment | Damage:
    """Return a segment of which only the header is known. One whose header is damaged is known by its frames.

    :raises JournalError: if another version wrote it, or the file cannot be read.
    :raises FileNotFoundError: if it is not there.
    """
    name = segment_name(number, suffix)
    file: IFile = directory.open(name)
    found: OpenSegment | Damage | None = None
    try:
        size = file.size()
        try:
            header = decode(file.read(0, MAX_HEADER))
            if header.number != number:
                raise BadHeader(f"its header is that of segment {header.number}")
            found = OpenSegment(Segment(directory, header, suffix), file)
        except BadHeader as error:
            damage = Damage(name, 0, size, str(error))
            found = _identify_by_frames(directory, file, damage, number, suffix)
    except UnsupportedVersion as error:
        raise JournalError(f"{directory}/{name} cannot be read: {error}") from None
    except OSError as error:
        raise JournalError(f"{directory}/{name} cannot be read: {error.strerror}") from error
    finally:
        if not isinstance(found, OpenSegment):
            file.close()
    return found


def _identify_by_frames(
    directory: IDirectory, file: IFile, damage: Damage, number: int, suffix: str
) -> OpenSegment | Damage:
    for found in scan(file, damage.name, number=number, tag=None, start=0, end=file.size()):
        if isinstance(found, ScannedFrame):
            length = found.header.offset
            segment = Segment(directory, SegmentHeader(number, "", 0, 0, found.header.tag, length), suffix)
            segment.damages.append(damage._replace(length=length))
            return OpenSegment(segment, file)
    return damage


def agreed_header(segments: Iterable[Segment], where: object, stream: str | None = None) -> SegmentHeader | None:
    """Return a header that all ``segments`` agree with, and give it to those whose own is damaged.

    It is ``None`` if none has a good one.

    :param stream: what it has to be, if that is known.
    :raises JournalError: if they are not of one journal, or of another stream.
    """
    segments = list(segments)
    agreed: SegmentHeader | None = None
    for segment in segments:
        header = segment.header
        if not header.stream:
            continue
        if agreed is None:
            agreed = header
        elif (header.stream, header.wrap, header.tag) != (agreed.stream, agreed.wrap, agreed.tag):
            raise JournalError(
                f"{where}: segment {header.number} belongs to another journal ({header.stream}, tag {header.tag:08x})"
                f" than segment {agreed.number} ({agreed.stream}, tag {agreed.tag:08x}); move it away"
            )
    if agreed is not None and stream is not None and agreed.stream != stream:
        raise JournalError(f"{where} is the journal of {agreed.stream}, not of {stream}")
    for segment in segments:
        if not segment.header.stream:
            if agreed is None or segment.header.tag != agreed.tag:
                raise JournalError(
                    f"{where}: the header of segment {segment.number} is damaged, and no other says whose it is;"
                    " `fyrehose journal repair` with --stream puts it right"
                )
            segment.header = segment.header._replace(stream=agreed.stream, wrap=agreed.wrap)
    return agreed


def read_durable(segment: Segment, file: IFile, limit: int) -> list[Damage]:
    """Take in what was added, up to ``limit``, all of which was durable; return what is not there any more after the
    last good frame."""
    size = file.size()
    damages = segment.read_appended(file, min(size, limit)) if segment.end < min(size, limit) else []
    return damages + truncation_damage(segment, size, limit)


def may_be_unstarted(segment: Segment, size: int) -> bool:
    """Say whether a file without a good frame may be what a crash left of the first segment of a new journal, which
    begins with an empty frame. If no mark says so, what is longer may have been durable."""
    return size <= segment.end + HEADER.size


def truncation_damage(segment: Segment, size: int, limit: int) -> list[Damage]:
    """Return the damage that the file of ``segment`` has only ``size`` bytes, and ``limit`` were durable."""
    return [Damage(segment.name, size, limit - size, TRUNCATED)] if size < limit else []


def missing_file_damage(durable_position: DurablePosition) -> Damage:
    """Return the damage that the segment of ``durable_position`` is not there."""
    return Damage(segment_name(durable_position.segment, OPEN_SUFFIX), 0, durable_position.offset, FILE_MISSING)


def is_file_missing(durable_position: DurablePosition, numbers: Iterable[int]) -> bool:
    """Say whether the segment of ``durable_position`` should be among ``numbers`` and is not. A mark may be older than
    it should be after a power failure, and retention may have taken a segment before the last."""
    return durable_position.segment > max(numbers, default=0)


def find_missing(coverage: Coverage, damages: Iterable[Damage]) -> list[Damage]:
    """Return which numbers below the watermarks that were published are not there any more, and of which ``damages``
    does not say so already."""
    told: dict[int, RangeSet] = {}
    for damage in damages:
        if damage.epoch is not None and damage.first is not None and damage.last is not None:
            told.setdefault(damage.epoch, RangeSet()).add(damage.first, damage.last)
    found = []
    for epoch, first, last in coverage.missing_ranges():
        for pair in (told.get(epoch) or RangeSet()).gaps(first, last):
            found.append(Damage(POSITION_NAME, 0, 0, NUMBERS_MISSING, epoch, *pair))
    return found


def load_segment(opened: OpenSegment, *, keep_index: bool) -> None:
    """Let a segment to which nothing is added any more know all that it holds.

    :param keep_index: write an index beside it if there is none.
    :raises JournalError: if it cannot be read.
    """
    segment, file = opened
    try:
        size = file.size()
        if segment.ordered and read_index(segment.directory, segment, size):
            return
        segment.damages += segment.read_appended(file, size)
    except OSError as error:
        raise JournalError(f"{segment.directory}/{segment.name} cannot be read: {error.strerror}") from error
    if segment.ordered and keep_index and not segment.damages:
        with suppress(OSError):  # It only saves time.
            write_index(segment.directory, segment)
