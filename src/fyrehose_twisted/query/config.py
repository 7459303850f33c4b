"""Limits of the query service."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.web.client_limits import ClientLimits
from fyrehose_twisted.web.config import SiteConfig

RELOADED = (
    *("max_connections", "max_streams", "max_reads", "reads_per_client", "max_waiting"),
    *("requests_per_client", "burst_per_client", "streams_per_client", "min_free_bytes"),
)
"""Limits that may change while the service runs."""


@dataclass(frozen=True)
class QueryConfig(SiteConfig):
    """Limits of everything that clients could make grow. Times are in seconds.

    :raises ConfigurationError: if a limit is out of range.
    """

    max_body: int = 1_024
    """Bytes of a request body. Requests need none."""
    page_records: int = 1_000
    """Records in one response, unless the client requests fewer."""
    page_bytes: int = 2**20
    """Bytes of payloads in one response. The last record may exceed it."""
    scan_records: int = 1_000_000
    """Records examined for one response. A response that ends there has a link to continue."""
    max_expression: int = 1_024
    """Characters of a filter."""
    max_reads: int = 64
    """Range requests processed at once, and as many again with a filter or times. More requests wait."""
    reads_per_client: int = 8
    """Requests of one client among either kind."""
    max_waiting: int = 1_024
    """Range requests that may wait."""
    poll_interval: float = 0.02
    """Interval of polling a followed journal."""
    tail_records: int = 4_096
    """Newest records of a followed stream that are cached in their encoded form."""
    tail_bytes: int = 4 * 2**20
    """Bytes of payloads of the cached records."""
    look_interval: float = 1.0
    """Interval of scanning the directory for journals and of collecting the overview."""
    min_free_bytes: int = 2**30
    """Free bytes below which the disk of a journal needs attention."""
    scrape_interval: float = 2.0
    """Interval of scraping watched services."""
    scrape_timeout: float = 2.0
    """Timeout of a scrape."""
    requests_per_client: float = 200.0
    """Sustained requests a second of one client, which is one token or, without tokens, one address."""
    burst_per_client: float = 400.0
    """Requests of one client in a burst after a pause."""
    streams_per_client: int = 32
    """Concurrent streams of one client."""

    @property
    def client_limits(self) -> ClientLimits:
        """Limits of each client."""
        return ClientLimits(self.requests_per_client, self.burst_per_client, self.streams_per_client)
