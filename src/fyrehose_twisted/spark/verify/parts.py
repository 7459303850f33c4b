"""Number ranges to compare, with each journal's share."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.spark.source.journal_locations import JournalLocation


@dataclass(frozen=True, slots=True)
class Share:
    """One journal's share of an epoch.

    :ivar bounds: planned bounds; nothing beyond them is read, so that every read gives the same records.
    :ivar past_damage: damage holds back the journal's watermark, and records beyond the damage are read too.
    :ivar later_epoch_start: receive time of the first record of a later epoch, in UTC microseconds since 1970.
    """

    location: JournalLocation
    bounds: Bounds
    past_damage: bool = False
    later_epoch_start: int | None = None


@dataclass(frozen=True, slots=True)
class ComparisonRange:
    """Inclusive range of numbers with the journals to compare in it."""

    stream: str
    epoch: int
    wrap: int
    first: int
    last: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """Combined extent of an epoch over all journals."""

    stream: str
    epoch: int
    wrap: int
    first: int
    next: int
    shares: tuple[Share, ...]
