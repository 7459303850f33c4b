"""Configuration of the frontend."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.web.client_limits import ClientLimits
from fyrehose_twisted.web.config import SiteConfig

RELOADABLE = (
    *("max_connections", "max_line_connections", "line_connections_per_client", "requests_per_client"),
    *("messages_per_client", "bytes_per_client", "burst", "waiting_bytes", "waiting_bytes_per_client"),
    *("keep_timeout", "unsynced_bytes", "min_rate", "remembered_bytes"),
)
"""Settings that may change while the service runs."""


@dataclass(frozen=True)
class FrontendConfig(SiteConfig):
    """Limits of a frontend. Times are in seconds.

    A client is identified by its token or, without tokens, by its address.

    :raises ConfigurationError: if a limit is out of range.
    """

    key_separator: bytes = b""
    """What separates the key from the message in each line of the line protocol; empty for lines without keys."""
    publish_timeout: float = 30.0
    """Maximum wait of messages in the queue, and after that for their acknowledgement."""
    keep_timeout: float = 30.0
    """Maximum wait of published messages until the required number of journals have synced them."""
    unsynced_bytes: int = 16 * 2**20
    """Maximum bytes published ahead of durable journals, if there are any: half of the default retransmit buffer of a
    backbone, so that journals can repair missing messages."""
    min_rate: float = 2.0**20
    """Bytes per second that are always published, however far behind the journals are."""
    remembered_bytes: int = 64 * 2**20
    """Memory in bytes for requests with an idempotency key and their numbers."""
    batch_messages: int = 10_000
    """Maximum messages per request."""
    waiting_bytes: int = 64 * 2**20
    """Maximum bytes in the queue, of all clients. A client may use at most as much as is left, so that a client that
    publishes little finds room next to any number of busy ones."""
    waiting_bytes_per_client: int = 8 * 2**20
    """Maximum bytes in the queue per client."""
    messages_per_client: float = 50_000.0
    """Average messages per second and client."""
    bytes_per_client: float = 50.0 * 2**20
    """Average bytes per second and client."""
    burst: float = 2.0
    """Burst of a client after a pause, in seconds of these rates."""
    requests_per_client: float = 2_000.0
    """HTTP requests per second and client."""
    max_line_connections: int = 1_024
    """Maximum line connections. Above it, an unauthenticated connection is closed, or else the new one."""
    line_connections_per_client: int = 64
    unanswered_lines: int = 1_024
    """Maximum unanswered lines per connection, above which the connection is not read."""
    stop_timeout: float = 5.0
    """Maximum wait for pending batches when the service stops."""

    @property
    def client_limits(self) -> ClientLimits:
        """Limits of the HTTP site per client."""
        return ClientLimits(self.requests_per_client, 2 * self.requests_per_client, 1)
