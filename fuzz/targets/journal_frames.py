"""Frames and segment headers at the start of arbitrary bytes."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import attempt, check_size
from fyrehose_twisted.journal.format import segment_header
from fyrehose_twisted.journal.format.frames import (
    HEADER,
    BadFrame,
    FrameKind,
    FramePosition,
    check_body,
    lost_frame,
    read_header,
    read_pairs,
    read_records,
    records_frame,
    start_frame,
)
from fyrehose_twisted.journal.format.segment_header import BadHeader, SegmentHeader, UnsupportedVersion, decode

_PLACE = FramePosition(1, 64, 7)


def seeds() -> Iterable[bytes]:
    """Return frames of each kind, and segment headers."""
    frames = (
        records_frame(_PLACE, 0, [5, 6, 7], [10, 11, 12], [b"a", b"", b"ccc"]),
        records_frame(_PLACE, 3, [5, 9, 70], [10, 9, 12], [b"a", b"", b"ccc"]),
        records_frame(_PLACE, 0, [2**48], [0], [b"x" * 300]),
        lost_frame(_PLACE, 0, [(1, 4), (9, 9)], 11),
        start_frame(_PLACE, [(0, 1), (1, 50)]),
    )
    yield from (bytes(data) for _, data in frames)
    yield segment_header.encode(SegmentHeader(1, "fyrehose://127.0.0.1:2323", 0, 5, 7))
    yield segment_header.encode(SegmentHeader(2**32 - 1, "", 2**48, -1, 0))


def one(data: bytes) -> None:
    """Read a frame and a header."""
    header, error = attempt(lambda: read_header(data), BadFrame)
    if error is None:
        body = memoryview(data)[HEADER.size :]
        _, error = attempt(lambda: check_body(header, body), BadFrame)
        if error is None:
            if header.kind is FrameKind.RECORDS:
                block = read_records(header, body, "stream")
                assert len(block) == header.entries
                check_size(block.payloads(), len(data))
            else:
                assert len(read_pairs(header, body)) == header.entries
    whose, error = attempt(lambda: decode(data), BadHeader, UnsupportedVersion)
    if error is None:
        again = decode(segment_header.encode(whose))
        assert again.length <= whose.length  # A header may be longer than required.
        assert again == whose._replace(length=again.length)
