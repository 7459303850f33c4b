"""Limits and permissions of a web site."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.errors import ConfigurationError


@dataclass(frozen=True)
class SiteConfig:
    """Limits of everything that clients could make grow. Times are in seconds.

    :raises ConfigurationError: if a limit is out of range.
    """

    max_body: int = 2**20
    """Bytes of a request body."""
    max_connections: int = 1_024
    """Concurrent connections. Beyond that, the oldest idle connection is closed, or the new one if none is idle."""
    request_timeout: float = 30.0
    """Time for the head and body of a request to arrive."""
    idle_timeout: float = 60.0
    """Time for which a connection may be idle between requests, and its last response may wait to be read."""
    max_streams: int = 256
    """Concurrent streams. Each holds the 64 KiB buffer of its transport, and little more."""
    keepalive: float = 15.0
    """Interval of keepalives on an idle stream."""
    stall_timeout: float = 30.0
    """Time for which a stream client may read nothing while data is pending."""
    allowed_origin: str | None = None
    """Origin, such as ``https://example.org``, whose pages may use this site from a browser."""
    hosts: tuple[str, ...] = ()
    """Host names accepted without a token, in addition to ``localhost`` and addresses."""
    any_name_off_loopback: bool = False
    """Whether connections that are not over loopback may use any host name; for sites that only show counters."""

    def __post_init__(self) -> None:
        self._check()

    def _check(self, *more: str) -> None:
        numbers = {name: value for name, value in vars(self).items() if type(value) in (int, float)}
        wrong = [name for name, value in numbers.items() if value <= 0]
        wrong += more
        if wrong:
            raise ConfigurationError(f"out of range: {', '.join(wrong)}")
