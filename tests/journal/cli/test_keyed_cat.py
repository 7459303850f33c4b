"""Selection of the records that ``fyrehose journal cat`` prints by the keys of their messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.journal.cli import cat
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.record import Record

STREAM = "fyrehose://ticks"
MESSAGES = [(b"a", b"1"), (b"ab", b"2"), (None, b"3"), (b"a", b"4"), (b"\xff", b"5"), (b"b", b"6"), (b"ab", b"7")]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """Return a journal of messages 1 to 7, of which 8 repeats 1."""
    payloads = [
        wrap(b"someones", counter, data if key is None else add_key(data, key))
        for counter, (key, data) in enumerate(MESSAGES)
    ]
    with closing(open_journal(tmp_path, STREAM)) as journal:
        journal.append(
            [Record(STREAM, 0, number, number, data) for number, data in enumerate([*payloads, payloads[0]], 1)]
        )
    return tmp_path


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ("", "1234567"),
        ("--key a", "14"),
        ("--key-prefix a", "1247"),
        ("--key ab --key-prefix a", "27"),
        ("--key c", ""),
        ("--key-prefix a --count 3", "124"),
        ("--key b --count 1", "6"),
        ("--key-prefix a --from 2 --to 4", "24"),
        ("--key a --repeats", "141"),
        ("--latest", "4567"),
        ("--latest --to 5", "245"),
        ("--latest --from 2 --to 2", "2"),
        ("--latest --key-prefix a", "47"),
        ("--latest --count 2", "45"),
        ("--latest --repeats --key a", "1"),
    ],
)
def test_records_are_selected_by_key(run: Run, keyed: Path, options: str, printed: str) -> None:
    assert run("cat", keyed, *options.split()) == (0, "".join(f"{one}\n" for one in printed), "")


def test_few_records_are_found_among_many(run: Run, keyed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cat, "FILTERED_ROWS", 1)
    assert run("cat", keyed, "--key-prefix", "a", "--count", 3)[1] == "1\n2\n4\n"


def test_json_shows_keys(run: Run, keyed: Path) -> None:
    lines = [json.loads(line) for line in run("cat", keyed, "--format", "json")[1].splitlines()]
    assert [(line.get("key"), line.get("key_encoding")) for line in lines] == [
        *(("a", None), ("ab", None), (None, None), ("a", None)),
        *(("/w==", "base64"), ("b", None), ("ab", None)),
    ]


def test_the_number_of_keys_is_limited(run: Run, keyed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cat, "MAX_LATEST_KEYS", 3)
    status, out, err = run("cat", keyed, "--latest")
    assert (status, out) == (1, "")
    assert "more than 3 keys; select fewer with --key-prefix" in err
    assert run("cat", keyed, "--latest", "--key-prefix", "a")[:2] == (0, "4\n7\n")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--latest --follow", "--latest cannot be combined with --follow"),
        ("--raw --latest", "--raw prints payloads as received, with their keys"),
        ("--raw --key a", "--raw prints payloads as received, with their keys"),
    ],
)
def test_contradicting_options_are_refused(run: Run, keyed: Path, options: str, reason: str) -> None:
    status, out, err = run("cat", keyed, *options.split())
    assert (status, out) == (2, "")
    assert reason in err
