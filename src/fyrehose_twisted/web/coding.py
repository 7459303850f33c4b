"""Bodies of requests that clients have compressed."""

from __future__ import annotations

import zlib
from http import HTTPStatus

from fyrehose_twisted.web.response import HttpError, bad_request, too_large

CODINGS = frozenset((b"gzip", b"x-gzip"))
"""Codings of a body that are unpacked."""

MAX_MEMBERS = 64
"""Parts, each gzip of its own, of which a body may consist."""

_HEADER = 16 + zlib.MAX_WBITS
"""Tells zlib that there is the header of gzip."""


def decompress(body: bytes, coding: bytes, limit: int) -> bytes:
    """Return a body without its coding.

    :param coding: value of ``Content-Encoding``; empty for none.
    :param limit: bytes that it may have unpacked; no more are ever in memory.
    :raises Problem: if the coding is unknown, if the body is not what it says, or if it is too long.
    """
    coding = coding.strip().lower()
    if not body or coding in (b"", b"identity"):
        return body
    if coding not in CODINGS:
        message = "the body is compressed in a way that is not known here; send gzip, or nothing compressed"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown-coding", message, ((b"Accept-Encoding", b"gzip"),))
    parts: list[bytes] = []
    left = limit + 1
    try:
        while body and left:
            if len(parts) == MAX_MEMBERS:
                raise bad_request(f"the body has more than {MAX_MEMBERS} members of gzip")
            unpacking = zlib.decompressobj(_HEADER)
            part = unpacking.decompress(body, left)
            parts.append(part)
            left -= len(part)
            if left and not unpacking.eof:
                raise bad_request("the body is cut: its gzip has no end")
            body = unpacking.unused_data
    except zlib.error as error:
        raise bad_request(f"the body is not gzip: {error}") from None
    if not left:
        raise too_large(limit)
    return b"".join(parts)
