"""Streams of server-sent events, as parsed by clients."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import check_stream
from fyrehose_twisted.web.sse import FrameReader, MalformedStream, comment, frame, position


def seeds() -> Iterable[bytes]:
    """Return streams."""
    yield b"\x07" + frame(b'{"sequence":1}', b"1") + frame(b"x", b"2", b"gap") + position(b"9") + comment(b"still here")
    yield b"\x01data: a\r\ndata\r\rid: \xc3\xbc\n\n:\n"
    yield b"\x03\xef\xbb\xbfdata:a\nretry: 10\nevent\n\n"
    yield b"\x02data: \xff\n\n"


def one(data: bytes) -> None:
    """Parse a stream."""
    check_stream(FrameReader, data, MalformedStream, keeps=False)
