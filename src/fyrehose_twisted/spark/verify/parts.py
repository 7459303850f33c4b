"""Ranges of numbers to compare, and the share that each journal has in them."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.spark.source.journal_locations import JournalLocation


@dataclass(frozen=True, slots=True)
class Share:
    """What one journal is to give of an epoch.

    :ivar bounds: how far it goes; nothing beyond is looked at, so that it reads the same each time.
    :ivar past_damage: its watermark stands at damage, and what stands behind the damage is read too.
    :ivar later_epoch_start: when the first record of a later epoch was received, UTC microseconds since 1970.
    """

    location: JournalLocation
    bounds: Bounds
    past_damage: bool = False
    later_epoch_start: int | None = None


@dataclass(frozen=True, slots=True)
class ComparisonRange:
    """A range of numbers, both ends inclusive, and the journals to compare in it."""

    stream: str
    epoch: int
    wrap: int
    first: int
    last: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of an epoch there is of all journals together."""

    stream: str
    epoch: int
    wrap: int
    first: int
    next: int
    shares: tuple[Share, ...]
