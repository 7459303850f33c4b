"""Discovery and loading of the segments of a journal, and detection of missing data."""

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

TRUNCATED = "the file was truncated below its durable length"
NUMBERS_MISSING = "once durable, but no segment holds them now"
UNKNOWN_EXTENT = "nothing says what of it is durable, so all of it is left out"
FILE_MISSING = "what was durable there is gone with the file"
EXCLUDED = (UNKNOWN_EXTENT, FILE_MISSING)
"""Reasons of damage that ends a journal at an unknown number. Remote readers compare these texts."""
OTHER_JOURNAL = "it belongs to another journal"


class OpenSegment(NamedTuple):
    """A segment with a known header, and its file."""

    segment: Segment
    file: IFile


def segment_suffixes(names: Iterable[str]) -> dict[int, str]:
    """Return the file suffix of each segment, by number.

    If both the compacted and the original file exist, the compacted one counts, as it is complete.
    """
    found: dict[int, str] = {}
    for name in names:
        number = segment_number(name)
        if number is not None and found.get(number) != FULL_SUFFIX:
            found[number] = name[-len(FULL_SUFFIX) :]
    return dict(sorted(found.items()))


def open_segment(directory: IDirectory, number: int, suffix: str) -> OpenSegment | Damage:
    """Open a segment and read its header. If the header is damaged, its frames identify the segment.

    :raises JournalError: if its format version is unsupported, or the file cannot be read.
    :raises FileNotFoundError: if there is no such file.
    """
    name = segment_name(number, suffix)
    file: IFile = directory.open(name)
    found: OpenSegment | Damage | None = None
    try:
        size = file.size()
        try:
            header = decode(file.read(0, MAX_HEADER))
            if header.number != number:
                raise BadHeader(f"its header belongs to segment {header.number}")
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
    """Return the header on which all ``segments`` agree, and assign it to segments whose own header is damaged.

    Return ``None`` if no segment has a valid header.

    :param stream: expected stream, if known.
    :raises JournalError: if the segments belong to different journals or to another stream.
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
                f" than segment {agreed.number} ({agreed.stream}, tag {agreed.tag:08x}); move it out of the directory"
            )
    if agreed is not None and stream is not None and agreed.stream != stream:
        raise JournalError(f"{where} is the journal of {agreed.stream}, not of {stream}")
    for segment in segments:
        if not segment.header.stream:
            if agreed is None or segment.header.tag != agreed.tag:
                raise JournalError(
                    f"{where}: the header of segment {segment.number} is damaged, and no other names the stream;"
                    " run `fyrehose journal repair` with --stream"
                )
            segment.header = segment.header._replace(stream=agreed.stream, wrap=agreed.wrap)
    return agreed


def read_durable(segment: Segment, file: IFile, limit: int) -> list[Damage]:
    """Load the frames appended up to ``limit``, the durable length; return the damage after the last valid frame."""
    size = file.size()
    damages = segment.read_appended(file, min(size, limit)) if segment.end < min(size, limit) else []
    return damages + truncation_damage(segment, size, limit)


def may_be_unstarted(segment: Segment, size: int) -> bool:
    """Return whether a file without a valid frame may be the first segment of a new journal after a crash.

    Such a segment begins with an empty frame. Without a durable position, a longer file may have been durable.
    """
    return size <= segment.end + HEADER.size


def truncation_damage(segment: Segment, size: int, limit: int) -> list[Damage]:
    """Return the damage of a file with ``size`` bytes of which ``limit`` were durable; none if it is long enough."""
    return [Damage(segment.name, size, limit - size, TRUNCATED)] if size < limit else []


def missing_file_damage(durable_position: DurablePosition) -> Damage:
    """Return the damage of a missing segment that ``durable_position`` refers to."""
    return Damage(segment_name(durable_position.segment, OPEN_SUFFIX), 0, durable_position.offset, FILE_MISSING)


def is_file_missing(durable_position: DurablePosition, numbers: Iterable[int]) -> bool:
    """Return whether ``numbers`` lacks the segment of ``durable_position``.

    An older number is not missing: after a power failure the position may be stale, and retention may have removed it.
    """
    return durable_position.segment > max(numbers, default=0)


def find_missing(coverage: Coverage, damages: Iterable[Damage]) -> list[Damage]:
    """Return the numbers below the published watermarks that are missing, except those in ``damages``."""
    reported: dict[int, RangeSet] = {}
    for damage in damages:
        if damage.epoch is not None and damage.first is not None and damage.last is not None:
            reported.setdefault(damage.epoch, RangeSet()).add(damage.first, damage.last)
    found = []
    for epoch, first, last in coverage.missing_ranges():
        for pair in (reported.get(epoch) or RangeSet()).gaps(first, last):
            found.append(Damage(POSITION_NAME, 0, 0, NUMBERS_MISSING, epoch, *pair))
    return found


def load_segment(opened: OpenSegment, *, keep_index: bool) -> None:
    """Load the index or the frames of a sealed segment.

    :param keep_index: whether to write an index file if there is none.
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
        with suppress(OSError):  # The index is optional.
            write_index(segment.directory, segment)
