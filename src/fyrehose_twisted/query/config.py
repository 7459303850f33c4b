"""The limits of the query service."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.web.client_limits import ClientLimits
from fyrehose_twisted.web.config import SiteConfig

RELOADED = (
    *("max_connections", "max_streams", "max_reads", "reads_per_client", "max_waiting"),
    *("requests_per_client", "burst_per_client", "streams_per_client", "min_free_bytes"),
)
"""What may change while the service runs."""


@dataclass(frozen=True)
class QueryConfig(SiteConfig):
    """Everything that a client could make grow has a limit here. Times are in seconds.

    :raises ConfigurationError: if one is out of range.
    """

    max_body: int = 1_024
    """Bytes of a request's body; none is needed."""
    page_records: int = 1_000
    """Records in one answer, where the client does not want fewer."""
    page_bytes: int = 2**20
    """Bytes of payloads in one answer, but for the last one."""
    scan_records: int = 1_000_000
    """Records that are looked at for one answer. Where a filter finds few, it ends there, and says how to go on."""
    max_expression: int = 1_024
    """Characters of a filter."""
    max_reads: int = 64
    """Requests for ranges that are worked on at once, and as many with a filter or times; more wait."""
    reads_per_client: int = 8
    """Of either, requests of one client."""
    max_waiting: int = 1_024
    """Requests for ranges that may wait."""
    poll_interval: float = 0.02
    """How often a journal that somebody follows is looked at."""
    tail_records: int = 4_096
    """The newest records of a stream that somebody follows, which are kept as they are sent."""
    tail_bytes: int = 4 * 2**20
    """Bytes of payloads of those."""
    look_interval: float = 1.0
    """How often the directory is looked at for journals of more streams, and the overview is made."""
    min_free_bytes: int = 2**30
    """Bytes that a disk of journals should have left; with less it wants attention."""
    scrape_interval: float = 2.0
    """How often the metrics of watched services are read."""
    scrape_timeout: float = 2.0
    """How long that may take."""
    requests_per_client: float = 200.0
    """Requests a second that one client may make: one token or, without tokens, one address."""
    burst_per_client: float = 400.0
    """Requests that it may make at once after a pause."""
    streams_per_client: int = 32
    """Streams that it may have open at once."""

    @property
    def client_limits(self) -> ClientLimits:
        """What each client may have."""
        return ClientLimits(self.requests_per_client, self.burst_per_client, self.streams_per_client)
