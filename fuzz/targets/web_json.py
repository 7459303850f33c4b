"""Bodies and query parameters of requests."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fuzz.checks import attempt, check_size
from fyrehose_twisted.web.request import MAX_DEPTH, MAX_NUMBER, parse_json, parse_number
from fyrehose_twisted.web.response import HttpError

LONGEST = 8_192


def seeds() -> Iterable[bytes]:
    """Return texts."""
    yield b'{"url":"http://127.0.0.1/","from":1}'
    yield b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    yield b"[" * 2_000
    yield b'["[[[[\\"[[[",{"a":"]"}]'
    yield b"9" * 5_000
    yield from (b"0", b"1", b"9223372036854775807", b"9223372036854775808", b"NaN", b'"\\ud800"')


def one(data: bytes) -> None:
    """Parse a text as JSON and as a number."""
    content, error = attempt(lambda: parse_json(data), ValueError)
    if error is None:
        check_size(content, len(data), factor=8)
        again, error = attempt(lambda: parse_json(json.dumps(content).encode()), ValueError)
        if error is None:  # 1e999 is valid JSON, but Python's value is not.
            assert repr(again) == repr(content)
    value, error = attempt(lambda: parse_number(data, "from"), HttpError)
    if error is None:
        assert 1 <= value <= MAX_NUMBER
        assert int(data) == value
