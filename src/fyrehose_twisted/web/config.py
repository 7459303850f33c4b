"""The limits of a web site, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.errors import ConfigurationError


@dataclass(frozen=True)
class SiteConfig:
    """Everything that a client could make grow has a limit here. Times are in seconds.

    :raises ConfigurationError: if one is out of range.
    """

    max_body: int = 2**20
    """Bytes of a request's body."""
    max_connections: int = 1_024
    """When there are more, one that asks nothing is closed: the one that came first; without such, the new one."""
    request_timeout: float = 30.0
    """How long the head and the body of one request may take to arrive."""
    idle_timeout: float = 60.0
    """How long a connection may say nothing between requests, and how long its last answer may wait to be read."""
    max_streams: int = 256
    """Streams open at once. Each holds what its transport buffers, 64 KiB, and little more."""
    keepalive: float = 15.0
    """How often a stream on which nothing happens says that it is alive."""
    stall_timeout: float = 30.0
    """How long the client of a stream may read nothing while something waits for it."""
    allowed_origin: str | None = None
    """The origin, ``https://example.org``, whose pages may use this site from a browser."""
    hosts: tuple[str, ...] = ()
    """Names by which the site may be asked without a token, beside ``localhost`` and addresses."""
    any_name_off_loopback: bool = False
    """Whether any name will do for those who do not come over loopback: for what only shows counters."""

    def __post_init__(self) -> None:
        self._check()

    def _check(self, *more: str) -> None:
        numbers = {name: value for name, value in vars(self).items() if type(value) in (int, float)}
        wrong = [name for name, value in numbers.items() if value <= 0]
        wrong += more
        if wrong:
            raise ConfigurationError(f"out of range: {', '.join(wrong)}")
