"""Queries of record requests: ranges, times and filters on arbitrary payloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs

from fuzz.checks import attempt, check_size
from fuzz.choices import Choices, piece
from fyrehose_twisted.journal.coverage import Coverage
from fyrehose_twisted.query.records.query_params import FOLLOW_PARAMS, RANGE_PARAMS, EpochPosition, parse_record_query
from fyrehose_twisted.query.records.record_json import RecordView
from fyrehose_twisted.web.response import HttpError

LONGEST = 2_048
FILTER = 256
"""Maximum number of characters of a filter."""
PAGE = 100

_QUERIES = (
    (b"from", b"5", b"to", b"0:9", b"limit", b"3"),
    (b"since", b"2026-01-31T12:00:00Z", b"until", b"1700000000.5", b"encoding", b"base64"),
    (b"since", b"0001-01-01T00:00:00+23:59", b"until", b"9999-12-31T23:59:59-23:59"),
    (b"last", b"7", b"where", b"temperature > `20` && contains(tags, 'a')"),
    (b"where", b"items[?n==`1`].keys(@) | [0][-1:2:-1] | length(@)", b"from", b"1:18446744073709551614"),
    (b"where", b"sum(values(@)) > avg(a) || !not_null(b, `{}`) || max(x[]) == floor(y)"),
    (b"where", b"(" * 200),
)
_PAYLOADS = (b'{"temperature":21.5,"tags":["a"]}', b'{"items":[{"n":1}],"a":[1,2],"x":[[1e308],[2]],"y":-0.5}', b"\xff")


def seeds() -> Iterable[bytes]:
    """Return queries, each followed by a payload."""
    for query in _QUERIES:
        for payload in _PAYLOADS:
            yield bytes((len(query) // 2,)) + b"".join(map(piece, query)) + payload


def one(data: bytes) -> None:
    """Parse a query, apply its filter to a record, and parse the query of the next page."""
    choices = Choices(data)
    query = {}
    for _ in range(choices.number() % 8):
        name, value = choices.piece(), choices.piece()
        if name in RANGE_PARAMS or name in FOLLOW_PARAMS:
            query[name] = value
    payload = choices.rest()
    contents: Any = Coverage("stream", 0)
    selection, error = attempt(lambda: parse_record_query(query, contents, longest=FILTER, page=PAGE), HttpError)
    item = RecordView(b'"stream"', 0, 1, 1, 1_700_000_000_000_000, payload)
    for plain in (False, True):
        check_size(item.text(plain), len(payload), factor=8)
    if error is not None:
        return
    if selection.where is not None:
        assert selection.where.matches(item) in (False, True)
    for time in (selection.since, selection.until):
        assert time is None or 0 <= time < 2**63
    following = parse_qs(selection.next_query(EpochPosition(0, 7)), keep_blank_values=True)
    again = {name.encode(): values[0].encode("utf-8", "surrogatepass") for name, values in following.items()}
    further, error = attempt(lambda: parse_record_query(again, contents, longest=FILTER, page=PAGE), HttpError)
    assert error is None, f"{again} goes on from {query}: {error}"
    assert (further.since, further.until, further.last) == (selection.since, selection.until, selection.last)
