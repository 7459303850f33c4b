"""Compaction: rewriting of a full segment in order, in large frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.interfaces import IDirectory
from fyrehose_twisted.journal.block import Block, merge_blocks
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.format.frames import (
    FRAME_BYTES,
    HEADER,
    MAX_RECORDS,
    FrameHeader,
    FramePosition,
    block_frame,
    lost_frame,
    start_frame,
)
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import FULL_SUFFIX, encode, segment_name

FRAME_RECORDS = 4_096
_LARGEST_SPAN = 2**32 - 1
WRITE_CHUNK = 4 * 2**20


def temporary_name(number: int) -> str:
    """Return the temporary file name of a compacted segment, used until it is complete."""
    return segment_name(number, FULL_SUFFIX) + ".tmp"


def compact(directory: IDirectory, segment: Segment, frame_records: int = FRAME_RECORDS) -> Segment:
    """Rewrite ``segment`` in order to a temporary file, sync it, and return the new segment.

    Damaged frames are left out and listed in the damages of the result. Safe to run in a thread: a full segment no
    longer changes, and nothing else is touched.

    :param frame_records: minimum number of records in a frame, where enough records exist.
    """
    alone = Catalog(directory, segment.header.stream, segment.header.wrap, segment.header.tag)
    alone.segments[segment.number] = segment
    new = Segment(directory, segment.header._replace(length=len(encode(segment.header))), FULL_SUFFIX)
    new.damages = list(segment.damages)
    name = temporary_name(segment.number)
    with suppress(FileNotFoundError):
        directory.remove(name)
    file = directory.open(name, create=True)
    try:
        pieces: list[Datagram] = [encode(segment.header)]
        written = 0
        for header, frame in _frames(alone, segment, new, frame_records):
            new.add(header, memoryview(frame)[HEADER.size :])
            pieces.append(frame)
            if new.end - written > WRITE_CHUNK:
                file.write(written, b"".join(pieces))
                pieces, written = [], new.end
        file.write(written, b"".join(pieces))
        file.sync()
    except BaseException:
        with suppress(OSError):  # It would occupy disk space.
            directory.remove(name)
        raise
    finally:
        file.close()
        alone.close()
    return new


def _frames(
    alone: Catalog, segment: Segment, new: Segment, frame_records: int
) -> Iterator[tuple[FrameHeader, bytearray]]:
    if segment.starts:
        yield start_frame(_next_position(new), segment.starts.items())
    for epoch, lost in sorted(segment.lost.items()):
        pairs = list(lost)
        for row in range(0, len(pairs), MAX_RECORDS):
            yield lost_frame(_next_position(new), epoch, pairs[row : row + MAX_RECORDS], segment.newest)
    for epoch, index in sorted(segment.frame_indexes.items()):
        for block in repack(alone.read(epoch, index.first, index.last, new.damages.append), frame_records):
            yield block_frame(_next_position(new), block)


def repack(blocks: Iterable[Block], frame_records: int = FRAME_RECORDS) -> Iterator[Block]:
    """Regroup ordered ``blocks`` into blocks of at least ``frame_records`` records, fewer if the records are large."""
    waiting: list[Block] = []
    count = size = 0
    for block in blocks:
        waiting.append(block)
        count, size = count + len(block), size + _size(block)
        if count >= frame_records or size >= FRAME_BYTES:
            yield from _split(waiting, frame_records)
            waiting, count, size = [], 0, 0
    if waiting:
        yield from _split(waiting, frame_records)


def _split(blocks: list[Block], frame_records: int) -> Iterator[Block]:
    whole = blocks[0] if len(blocks) == 1 else merge_blocks(blocks)
    low = 0
    while low < len(whole):
        high = min(low + frame_records, len(whole))
        if len(whole) - high < frame_records:
            high = len(whole)
        block = whole.rows(low, high)
        while len(block) > 1 and (_size(block) > 2 * FRAME_BYTES or block.last - block.first > _LARGEST_SPAN):
            block = block.rows(0, len(block) // 2)
        yield block
        low += len(block)


def _size(block: Block) -> int:
    return int(block.offsets[-1]) - int(block.offsets[0])


def _next_position(segment: Segment) -> FramePosition:
    return FramePosition(segment.number, segment.end, segment.header.tag)
