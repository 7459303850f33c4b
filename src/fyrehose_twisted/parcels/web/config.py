"""The limits of a node's web site, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.parcels.wire.messages import MAX_EVENT
from fyrehose_twisted.web.config import SiteConfig


@dataclass(frozen=True)
class WebConfig(SiteConfig):
    """Everything that a client could make grow has a limit here. Times are in seconds.

    :raises ConfigurationError: if one is out of range.
    """

    max_body: int = MAX_EVENT
    """Bytes of a request's body."""
    publish_timeout: float = 30.0
    """How long a request to publish waits for the event's number."""
    page_events: int = 1_000
    """Events in the answer to one request for a range."""
    page_bytes: int = 2**20
    """Bytes of events in such an answer, but for the last one."""
    max_callbacks: int = 64
    allow_private_callbacks: bool = False
    """Whether callbacks may go to addresses that are not public: this host, its network, its provider's services."""
    callback_ports: tuple[int, ...] = (80, 443)
    """The only ports to which callbacks may go."""
    callback_attempts: int = 8
    """After so many attempts an event becomes a dead letter."""
    callback_timeout: float = 10.0
    """How long one attempt may take, from the look-up of the address to the end of the answer."""
    callback_backoff: tuple[float, float] = (1.0, 60.0)
    """How long to wait after the first failed attempt, and at most; it doubles each time."""
    suspend_after: int = 5
    """After so many dead letters in a row a callback is suspended."""
    dead_letters: int = 20
    """Dead letters that are shown of each callback, the newest."""
    save_interval: float = 5.0
    """How often the positions of callbacks are saved; what was delivered since is delivered again after a crash."""

    def __post_init__(self) -> None:
        first, most = self.callback_backoff
        wrong = [] if 0 < first <= most else ["callback_backoff"]
        wrong += [] if all(0 < port < 65_536 for port in self.callback_ports) else ["callback_ports"]
        self._check(*wrong)
