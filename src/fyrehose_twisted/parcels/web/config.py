"""Limits and permissions of a node's HTTP API."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.web.config import SiteConfig


@dataclass(frozen=True)
class WebConfig(SiteConfig):
    """Limits of one HTTP API, for everything that clients can make grow. Times are in seconds.

    :raises ConfigurationError: if a value is out of range.
    """

    max_body: int = MAX_EVENT
    """Maximum size of a request body in bytes."""
    publish_timeout: float = 30.0
    """Time that a publish request waits for the event's sequence number."""
    page_events: int = 1_000
    """Maximum number of events in one response to a range request."""
    page_bytes: int = 2**20
    """Maximum size in bytes of the events in such a response, not counting the last one."""
    max_callbacks: int = 64
    allow_private_callbacks: bool = False
    """Allow callbacks to addresses that are not public: this host, its network, services of its provider."""
    callback_ports: tuple[int, ...] = (80, 443)
    """Ports to which callbacks may connect."""
    callback_attempts: int = 8
    """Attempts after which an event becomes a dead letter."""
    callback_timeout: float = 10.0
    """Timeout of one attempt, from name resolution to the end of the response."""
    callback_backoff: tuple[float, float] = (1.0, 60.0)
    """Initial and maximum delay after a failed attempt; it doubles each time."""
    suspend_after: int = 5
    """Consecutive dead letters after which a callback is suspended."""
    dead_letters: int = 20
    """Number of latest dead letters kept per callback."""
    save_interval: float = 5.0
    """Interval at which positions of callbacks are saved. After a crash, later events are delivered again."""

    def __post_init__(self) -> None:
        first, most = self.callback_backoff
        wrong = [] if 0 < first <= most else ["callback_backoff"]
        wrong += [] if all(0 < port < 65_536 for port in self.callback_ports) else ["callback_ports"]
        self._check(*wrong)
