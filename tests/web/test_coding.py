"""Decompression of request bodies."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.web.coding import MAX_MEMBERS, decompress
from fyrehose_twisted.web.response import HttpError


@pytest.mark.parametrize("coding", [b"gzip", b"x-gzip", b" GZip "])
@pytest.mark.parametrize("body", [b"", b"x", b"y" * 1_000])
def test_gzip_body_is_decompressed_up_to_the_limit(coding: bytes, body: bytes) -> None:
    assert decompress(gzip.compress(body), coding, 1_000) == body


def test_gzip_members_are_concatenated() -> None:
    assert decompress(gzip.compress(b"one, ") + gzip.compress(b"") + gzip.compress(b"two"), b"gzip", 100) == b"one, two"


@pytest.mark.parametrize("coding", [b"", b"identity", b"gzip", b"br"])
def test_empty_body_is_accepted_with_any_coding(coding: bytes) -> None:
    assert decompress(b"", coding, 10) == b""


@pytest.mark.parametrize(
    ("body", "coding", "code", "error"),
    [
        (b"x", b"br", 415, "unknown-coding"),
        (b"x", b"gzip,gzip", 415, "unknown-coding"),
        (zlib.compress(b"x"), b"gzip", 400, "bad-request"),
        (b"no gzip at all", b"gzip", 400, "bad-request"),
        (gzip.compress(b"x" * 100)[:-1], b"gzip", 400, "bad-request"),
        (gzip.compress(b"x" * 100) + b"rest", b"gzip", 400, "bad-request"),
        (gzip.compress(b"x" * 101), b"gzip", 413, "too-large"),
        (gzip.compress(bytes(2**28), 1), b"gzip", 413, "too-large"),
        (gzip.compress(b"x" * 60) * 2, b"gzip", 413, "too-large"),
        (gzip.compress(b"") * (MAX_MEMBERS + 1), b"gzip", 400, "bad-request"),
    ],
)
def test_invalid_compressed_body_is_rejected(body: bytes, coding: bytes, code: int, error: str) -> None:
    with pytest.raises(HttpError) as refused:
        decompress(body, coding, 100)
    assert (refused.value.code, refused.value.content["error"]) == (code, error)
    accepted = dict(refused.value.headers).get(b"Accept-Encoding")
    assert accepted == (b"gzip" if code == 415 else None)


@given(st.binary(max_size=200))
def test_any_bytes_are_decompressed_or_rejected(body: bytes) -> None:
    try:
        found = decompress(b"\x1f\x8b\x08\x00" + body, b"gzip", 100)
    except HttpError:
        return
    assert len(found) <= 100
