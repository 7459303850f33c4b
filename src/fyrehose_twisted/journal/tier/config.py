"""Settings and counters of the moving of segments to object storage."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.journal.tier.location import parse_tier_url


@dataclass(frozen=True, slots=True)
class TierConfig:
    """When a service moves segments to which object storage.

    :ivar url: URL of a bucket and prefix, without credentials.
    :ivar after: seconds since the last record of a segment.
    :raises ConfigurationError: if the URL is invalid.
    """

    url: str
    after: float

    def __post_init__(self) -> None:
        parse_tier_url(self.url)


@dataclass(slots=True)
class TierCounters:
    """Outcomes of the moving of segments.

    :ivar moved: segments moved.
    :ivar moved_bytes: their size.
    :ivar removed: objects removed, because retention had removed the segment or an upload had been interrupted.
    :ivar failures: runs that failed or left a segment behind.
    :ivar fetched_bytes: bytes fetched to answer requests for records.
    :ivar fetch_failures: attempts to fetch that failed.
    """

    moved: int = 0
    moved_bytes: int = 0
    removed: int = 0
    failures: int = 0
    fetched_bytes: int = 0
    fetch_failures: int = 0
