"""Checker of parcels histories, on handwritten histories."""

from __future__ import annotations

import pytest
from hosts.checkers.parcels import check
from hosts.history import Entry

BEGAN: list[Entry] = [{"at": 0, "client": name, "what": "began"} for name in ("r1", "r2")]


def asked(at: float, key: str) -> Entry:
    return {"at": at, "client": "p", "what": "asked", "key": key, "line": f"line {key}"}


def told(at: float, key: str, sequence: int) -> Entry:
    return {"at": at, "client": "p", "what": "told", "key": key, "sequence": sequence}


def read(reader: str, *keys: str, first: int = 1) -> list[Entry]:
    return [
        {"at": 9, "client": reader, "what": "read", "sequence": number, "line": f"line {key}"}
        for number, key in enumerate(keys, first)
    ]


def both(*keys: str) -> list[Entry]:
    return read("r1", *keys) + read("r2", *keys)


TWO = [asked(1, "x"), told(2, "x", 1), asked(3, "y"), told(4, "y", 2)]
SIDE_BY_SIDE = [asked(1, "x"), asked(1.5, "y"), told(2, "x", 2), told(4, "y", 1)]


@pytest.mark.parametrize(
    "history",
    [
        [],
        TWO + both("x", "y"),
        SIDE_BY_SIDE + both("y", "x"),
        [asked(1, "x"), asked(2, "x"), told(3, "x", 1), told(4, "x", 1), *both("x")],
        [asked(1, "x"), *both("x")],
        [asked(1, "x")],
        [asked(1, "x"), *read("r1", "x")],
    ],
)
def test_valid_parcels_history_passes(history: list[Entry]) -> None:
    assert check(BEGAN + history) == []


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        ([asked(1, "x"), told(2, "x", 2), asked(3, "y"), told(4, "y", 1), *both("y", "x")], "against time: y has 1"),
        ([asked(1, "x"), told(2, "x", 1), told(3, "x", 2), *both("x")], "two numbers: key x got 1 and 2"),
        ([asked(1, "x"), *both("x", "x")[:2]], "twice: r1 has line x as 1 and 2"),
        ([asked(1, "x"), *read("r1", "x", first=2)], "gap or repeat: r1 has 2 where 1 is due"),
        ([asked(1, "x"), asked(1, "y"), *read("r1", "x"), *read("r2", "y")], "two events: 1 is line y at r2"),
        (TWO + read("r1", "x", "y") + read("r2", "x"), "lost: r2 has line y as None, acknowledged as 2"),
        (read("r1", "z"), "read and never published: line z"),
    ],
)
def test_violation_in_a_parcels_history_is_found(history: list[Entry], violation: str) -> None:
    (found,) = check(BEGAN + history)
    assert found.startswith(violation)


def test_one_sequence_number_for_two_events_is_a_violation() -> None:
    found = check([*BEGAN, asked(1, "x"), asked(1, "y"), told(2, "x", 1), told(2, "y", 1), *both("x")])
    assert found[0].startswith("one number for two: 1")
    assert all("lost" in violation for violation in found[1:])
