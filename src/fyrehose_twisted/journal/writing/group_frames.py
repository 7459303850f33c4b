"""Frames of a commit group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted.journal.commit_group import CommitGroup
from fyrehose_twisted.journal.format.frames import (
    MAX_RECORDS,
    FrameHeader,
    FramePosition,
    frame_boundaries,
    lost_frame,
    records_frame,
    start_frame,
)


class EncodedFrame(NamedTuple):
    """Frame to be written.

    :ivar positions: positions of its records; ``None`` if it holds none.
    """

    header: FrameHeader
    data: bytearray
    positions: Sequence[int] | None


def encode_group(group: CommitGroup, place: FramePosition, noticed_at: int) -> list[EncodedFrame]:
    """Encode a group as frames.

    :param place: position of the first frame; the others follow it.
    :param noticed_at: time at which losses were noticed, in microseconds.
    """
    frames: list[EncodedFrame] = []

    def next_place() -> FramePosition:
        if not frames:
            return place
        last = frames[-1].header
        return place._replace(offset=last.offset + last.size)

    if group.starts:
        frames.append(EncodedFrame(*start_frame(next_place(), sorted(group.starts.items())), None))
    for epoch, positions, times, payloads in group.columns():
        low = 0
        for high in frame_boundaries(positions, list(map(len, payloads))):
            part = positions[low:high]
            encoded = records_frame(next_place(), epoch, part, times[low:high], payloads[low:high])
            frames.append(EncodedFrame(*encoded, part))
            low = high
    for epoch, lost in sorted(group.lost.items()):
        pairs = list(lost)
        for row in range(0, len(pairs), MAX_RECORDS):
            encoded = lost_frame(next_place(), epoch, pairs[row : row + MAX_RECORDS], noticed_at)
            frames.append(EncodedFrame(*encoded, None))
    return frames
