"""Parser of link strings."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import attempt, check_size
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.transports.link_url import EXAMPLES, parse_link

_MORE = (
    "tcp:[::1]:6174:legacy=yes",
    "tls:node.example.org:6174:timeout=3:certificate=/x\\:y",
    "irc:irc.example.org:6667:ivan:boris:tls=yes:rate=0.5:password-file=/x",
    "fifo:/run/a\\:b:side=1",
    "tcp:[fe80\\::1%eth0]:1",
)


def seeds() -> Iterable[bytes]:
    """Return link strings."""
    return [text.encode() for text in (*EXAMPLES.values(), *_MORE)]


def one(data: bytes) -> None:
    """Parse a link string: it is valid, or a ConfigurationError is raised."""
    text = data.decode("utf-8", "surrogateescape")
    spec, error = attempt(lambda: parse_link(text), ConfigurationError)
    if error is None:
        assert spec.text == text
        assert spec.kind == "fifo" or (spec.host and 1 <= spec.port <= 65_535)
        check_size(spec, len(data))
