from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.framing import KeyFilter, make_key_filter
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, has_envelope, wrap
from fyrehose_twisted.fyrehose.wire.message_key import (
    KEY_MAGIC,
    KEY_OVERHEAD,
    add_key,
    add_key_of_line,
    escape_payloads,
    may_have_keys,
    split_key,
)
from fyrehose_twisted.fyrehose.wire.run_codec import NUMPY_MINIMUM
from fyrehose_twisted.payloads import strip_framing

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "key.json").read_text())

keys = st.binary(min_size=1, max_size=255)
tricky = st.binary(max_size=8).map(lambda rest: KEY_MAGIC + rest)
payloads = st.binary(max_size=40) | tricky


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_vectors_are_read(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["data"])
    expected = None if vector["key"] is None else bytes.fromhex(vector["key"]), bytes.fromhex(vector["payload"])
    assert (split_key(data, ENVELOPE_SIZE) if has_envelope(data) else (None, data)) == expected
    unframed = strip_framing("fyrehose://ticks", [data])
    assert (None if unframed.keys is None else unframed.keys[0], unframed.data[0]) == expected


@pytest.mark.parametrize("vector", VECTORS[:-2], ids=lambda vector: str(vector["name"]))
def test_vectors_are_written(vector: dict[str, Any]) -> None:
    data, payload = bytes.fromhex(vector["data"]), bytes.fromhex(vector["payload"])
    made = payload if vector["key"] is None else add_key(payload, bytes.fromhex(vector["key"]))
    assert data == data[:ENVELOPE_SIZE] + escape_payloads([made])[0]


@given(st.lists(st.tuples(keys | st.none(), payloads), max_size=6))
def test_what_is_published_is_what_is_read(messages: list[tuple[bytes | None, bytes]]) -> None:
    given_payloads = [payload if key is None else add_key(payload, key) for key, payload in messages]
    assert [split_key(payload) for payload in escape_payloads(given_payloads)] == messages


@given(st.lists(st.binary(max_size=40).filter(lambda data: not data.startswith(KEY_MAGIC))))
def test_payloads_without_keys_are_published_as_they_are(plain: list[bytes]) -> None:
    assert list(escape_payloads(plain)) == plain
    assert [split_key(payload) for payload in plain] == [(None, payload) for payload in plain]


@given(keys, st.binary(max_size=9), st.integers(0, 30))
def test_reading_at_an_offset_is_reading_what_follows(key: bytes, payload: bytes, offset: int) -> None:
    data = bytes(offset) + add_key(payload, key)
    assert split_key(data, offset) == (key, payload)


@given(keys, st.binary(max_size=9))
@example(b"k", b"")
def test_a_header_that_is_cut_off_is_data(key: bytes, payload: bytes) -> None:
    header = add_key(payload, key)[: KEY_OVERHEAD + len(key)]
    for size in range(len(header)):
        assert split_key(header[:size]) == (None, header[:size])


@given(st.binary(max_size=30) | tricky, st.integers(0, 8))
def test_any_bytes_can_be_read(data: bytes, offset: int) -> None:
    key, payload = split_key(data, offset)
    assert data[offset:].endswith(payload)
    assert key is None or 1 <= len(key) <= 255


@pytest.mark.parametrize("key", [b"", b"k" * 256])
def test_a_key_has_1_to_255_bytes(key: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"key of [0-9]+ bytes; give 1 to 255 bytes"):
        add_key(b"", key)
    with pytest.raises(ConfigurationError):
        make_key_filter(None, key)


@pytest.mark.parametrize("count", [1, 3, NUMPY_MINIMUM, NUMPY_MINIMUM + 1])
@pytest.mark.parametrize("size", [0, 3, 5, 8, 300])
def test_a_keyed_message_is_found_among_others(count: int, size: int) -> None:
    plain = [wrap(b"someones", counter, bytes(size)) for counter in range(count)]
    assert not may_have_keys(plain, ENVELOPE_SIZE)
    for row in {0, count // 2, count - 1}:
        keyed = list(plain)
        keyed[row] = wrap(b"someones", row, add_key(bytes(max(0, size - KEY_OVERHEAD - 1)), b"k"))
        assert may_have_keys(keyed, ENVELOPE_SIZE)


def test_a_line_is_split_at_the_first_separator() -> None:
    assert split_key(add_key_of_line(b"user 7: a: b", b": ")) == (b"user 7", b"a: b")
    assert split_key(add_key_of_line(b"user:", b":")) == (b"user", b"")
    for line, reason in ((b"no separator", "the separator is missing"), (b":x", "key of 0 bytes")):
        with pytest.raises(ConfigurationError, match=reason):
            add_key_of_line(line, b":")


def test_a_filter_selects_by_key_and_by_prefix() -> None:
    given_keys = [None, b"a", b"ab", b"b"]
    for selection, expected in (
        (KeyFilter(b"a"), [b"a"]),
        (KeyFilter(None, b"a"), [b"a", b"ab"]),
        (KeyFilter(b"ab", b"a"), [b"ab"]),
        (KeyFilter(b"b", b"a"), []),
        (KeyFilter(), [b"a", b"ab", b"b"]),
    ):
        assert [key for key in given_keys if selection.matches(key)] == expected
    assert make_key_filter(None, None) is None
