"""Selection of records by the keys of their messages, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from query.bench import Bench

from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.payloads import envelope_finder, strip_framing

KEYS = [b"a", b"ab", None, b"a", b"\xff", b"b"]


@pytest.fixture
def keyed(bench: Bench) -> Any:
    """Return a bench whose stream has records 1 to 6 with :data:`KEYS`."""
    bench.make(bare=strip_framing, envelopes=envelope_finder)
    payloads = [b'{"n": %d}' % number for number in range(1, 7)]
    messages = [data if key is None else add_key(data, key) for key, data in zip(KEYS, payloads, strict=True)]
    bench.put(*(wrap(b"someones", counter, message) for counter, message in enumerate(messages)))
    return bench


def test_records_are_shown_with_their_keys(keyed: Bench, records: str) -> None:
    shown = keyed.ask(records).json
    assert [record.get("key") for record in shown] == ["a", "ab", None, "a", None, "b"]
    assert [record.get("key_data") for record in shown] == [None] * 4 + ["/w==", None]
    assert [record["json"]["n"] for record in shown] == [1, 2, 3, 4, 5, 6]
    plain = keyed.ask(f"{records}?encoding=base64").json
    assert [record.get("key_data") for record in plain] == ["YQ==", "YWI=", None, "YQ==", "/w==", "Yg=="]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("key=a", [1, 4]),
        ("key_prefix=a", [1, 2, 4]),
        ("key=ab&key_prefix=a", [2]),
        ("key=%FF", [5]),
        ("key=c", []),
        ("key=a&where=n%3D%3D%604%60", [4]),
        ("key_prefix=a&last=2", [2, 4]),
        ("key_prefix=a&from=2", [2, 4]),
    ],
)
def test_records_are_selected_by_key(keyed: Bench, records: str, query: str, numbers: list[int]) -> None:
    assert keyed.ask(f"{records}?{query}").numbers == numbers


def test_pages_keep_the_selection(keyed: Bench, records: str) -> None:
    page = keyed.ask(f"{records}?key_prefix=a&limit=1")
    found = []
    while True:
        found += page.numbers
        if page.next is None:
            break
        page = keyed.ask(page.next)
    assert found == [1, 2, 4]


@pytest.mark.parametrize("query", ["key=", "key_prefix=", f"key={'k' * 256}"])
def test_a_key_of_a_wrong_size_is_refused(keyed: Bench, records: str, query: str) -> None:
    answer = keyed.ask(f"{records}?{query}")
    assert answer.code == 400
    assert "give 1 to 255 bytes" in answer.json["message"]
