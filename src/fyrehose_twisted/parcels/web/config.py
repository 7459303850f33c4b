"""The limits of a node's web site, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.parcels.messages import MAX_EVENT


@dataclass(frozen=True)
class WebConfig:
    """Everything that a client could make grow has a limit here. Times are in seconds.

    :raises ConfigurationError: if one is out of range.
    """

    max_body: int = MAX_EVENT
    """Bytes of a request's body."""
    max_connections: int = 1_024
    """More are closed as soon as they are there."""
    request_timeout: float = 30.0
    """How long the head and the body of one request may take to arrive."""
    idle_timeout: float = 60.0
    """How long a connection may say nothing between requests."""
    publish_timeout: float = 30.0
    """How long a request to publish waits for the event's number."""
    page_events: int = 1_000
    """Events in the answer to one request for a range."""
    page_bytes: int = 2**20
    """Bytes of events in such an answer, but for the last one."""
    max_streams: int = 256
    """Streams of events open at once. Each holds what its transport buffers, 64 KiB, and one event."""
    keepalive: float = 15.0
    """How often a stream on which nothing happens says that it is alive."""
    stall_timeout: float = 30.0
    """How long the client of a stream may read nothing while events wait for it."""
    max_callbacks: int = 64
    allow_private_callbacks: bool = False
    """Whether callbacks may go to addresses that are not public: this host, its network, its provider's services."""
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
    allowed_origin: str | None = None
    """The origin, ``https://example.org``, whose pages may use this node from a browser."""

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if type(value) in (int, float)}
        wrong = [name for name, value in numbers.items() if value <= 0]
        first, most = self.callback_backoff
        if not 0 < first <= most:
            wrong.append("callback_backoff")
        if wrong:
            raise ConfigurationError(f"out of range: {', '.join(wrong)}")
