"""Decompression of request bodies."""

from __future__ import annotations

import zlib
from http import HTTPStatus

from fyrehose_twisted.web.response import HttpError, bad_request, too_large

CODINGS = frozenset((b"gzip", b"x-gzip"))
"""Supported content codings."""

MAX_MEMBERS = 64
"""Limit of the gzip members in a body."""

_HEADER = 16 + zlib.MAX_WBITS
"""Window bits that tell zlib to expect a gzip header."""


def decompress(body: bytes, coding: bytes, limit: int) -> bytes:
    """Decompress a body.

    :param coding: value of ``Content-Encoding``; empty for none.
    :param limit: limit of the decompressed bytes. No more are ever in memory.
    :raises HttpError: if the coding is unknown, the body does not match it, or the body is too long.
    """
    coding = coding.strip().lower()
    if not body or coding in (b"", b"identity"):
        return body
    if coding not in CODINGS:
        message = "the coding of the body is not supported; send gzip or no coding"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown-coding", message, ((b"Accept-Encoding", b"gzip"),))
    parts: list[bytes] = []
    remaining = limit + 1
    try:
        while body and remaining:
            if len(parts) == MAX_MEMBERS:
                raise bad_request(f"the body has more than {MAX_MEMBERS} gzip members")
            decompressor = zlib.decompressobj(_HEADER)
            part = decompressor.decompress(body, remaining)
            parts.append(part)
            remaining -= len(part)
            if remaining and not decompressor.eof:
                raise bad_request("the body is truncated: its gzip data has no end")
            body = decompressor.unused_data
    except zlib.error as error:
        raise bad_request(f"the body is not gzip: {error}") from None
    if not remaining:
        raise too_large(limit)
    return b"".join(parts)
