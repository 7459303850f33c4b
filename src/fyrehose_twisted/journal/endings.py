"""Detection of damage that stops the watermark of a journal."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.interfaces import IJournalReader, ISegmentReader
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import segment_number
from fyrehose_twisted.journal.segment_loader import EXCLUDED


def blocking_damage(reader: IJournalReader, epoch: int) -> Damage | None:
    """Return the damage that stops the watermark of an epoch, or ``None``."""
    bounds: Bounds | None = reader.bounds(epoch)
    if bounds is None:
        return None
    return next((damage for damage in reader.damages if _blocks_watermark(reader, epoch, bounds, damage)), None)


def lost_epoch(reader: IJournalReader) -> Damage | None:
    """Return the damage that destroyed a whole epoch, or ``None``."""
    known = reader.epochs()
    return next((damage for damage in reader.damages if damage.epoch is not None and damage.epoch not in known), None)


def _blocks_watermark(reader: IJournalReader, epoch: int, bounds: Bounds, damage: Damage) -> bool:
    if damage.first is not None and damage.last is not None:
        return damage.epoch == epoch and damage.first <= bounds.next <= damage.last
    if damage.reason in EXCLUDED:
        return True
    if not ISegmentReader.providedBy(reader):
        return False
    segments: Sequence[Segment] = ISegmentReader(reader).segments
    if bounds.next > _highest_known(segments, epoch, bounds, damage) + 1:
        return False
    ends = {segment.number: segment.end for segment in segments}
    return bounds.last >= bounds.next or damage.offset >= ends.get(segment_number(damage.name) or 0, damage.offset + 1)


def _highest_known(segments: Sequence[Segment], epoch: int, bounds: Bounds, damage: Damage) -> int:
    """Return the highest known number in the damaged segment and the segments before it."""
    damaged = segment_number(damage.name)
    lasts = [
        segment.frame_indexes[epoch].last
        for segment in segments
        if epoch in segment.frame_indexes and (damaged is None or segment.number <= damaged)
    ]
    return max([bounds.first - 1, *lasts])
