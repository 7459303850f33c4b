"""The limits of a frontend."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.web.client_limits import ClientLimits
from fyrehose_twisted.web.config import SiteConfig

RELOADABLE = (
    *("max_connections", "max_line_connections", "line_connections_per_client", "requests_per_client"),
    *("messages_per_client", "bytes_per_client", "burst", "waiting_bytes", "waiting_bytes_per_client"),
    *("keep_timeout", "unsynced_bytes", "min_rate", "remembered_bytes"),
)
"""What may change while the service runs."""


@dataclass(frozen=True)
class FrontendConfig(SiteConfig):
    """Everything that a client could make grow has a limit here. Times are in seconds.

    A client is one token or, without tokens, one address.

    :raises ConfigurationError: if one is out of range.
    """

    publish_timeout: float = 30.0
    """How long messages may wait to be sent to the backbone, and then to come back from it."""
    keep_timeout: float = 30.0
    """How long published messages may wait until as many journals as wanted have synced them."""
    unsynced_bytes: int = 16 * 2**20
    """Bytes that are published ahead of what durable journals have synced, where there are any: half of what a backbone
    remembers by default, so that journals can have repaired what they missed."""
    min_rate: float = 2.0**20
    """Bytes a second that are published in any case, however far behind all journals are."""
    remembered_bytes: int = 64 * 2**20
    """Memory for the requests that had an idempotency key, and their numbers."""
    batch_messages: int = 10_000
    """Messages of one request."""
    waiting_bytes: int = 64 * 2**20
    """Bytes of messages that may wait to be sent, of all clients. None may have more of them than are left, so that
    one that publishes little finds room beside any number that publish as much as they can."""
    waiting_bytes_per_client: int = 8 * 2**20
    """Bytes that may wait of one client."""
    messages_per_client: float = 50_000.0
    """Messages a second of one client, in the long run."""
    bytes_per_client: float = 50.0 * 2**20
    """Bytes a second of one client, in the long run."""
    burst: float = 2.0
    """For how many seconds' worth of these a client may publish at once, after a pause."""
    requests_per_client: float = 2_000.0
    """HTTP requests a second of one client."""
    max_line_connections: int = 1_024
    """Connections for lines. When there are more, one that has shown no token is closed, or else the new one."""
    line_connections_per_client: int = 64
    unanswered_lines: int = 1_024
    """Lines of one connection that may wait for their answers; it is read on when there are fewer."""
    stop_timeout: float = 5.0
    """How long what is under way may take when the service stops."""

    @property
    def client_limits(self) -> ClientLimits:
        """What each client may have of the site."""
        return ClientLimits(self.requests_per_client, 2 * self.requests_per_client, 1)
