"""Checker of fyrehose histories, on handwritten histories."""

from __future__ import annotations

import pytest
from hosts.checkers.fyrehose import check
from hosts.history import Entry

BEGAN: list[Entry] = [{"at": 0, "client": name, "what": "began"} for name in ("r1", "r2")]


def published(line: str, sequence: int | None, kept: int = 0) -> list[Entry]:
    asked = {"at": 1, "client": "p", "what": "asked", "line": line}
    told = {"at": 2, "client": "p", "what": "told", "line": line, "sequence": sequence, "kept": kept}
    return [asked] if sequence is None else [asked, told]


def read(reader: str, *messages: tuple[int, str], journal: bool = False) -> list[Entry]:
    more = {"journal": True} if journal else {}
    began = [{"at": 3, "client": reader, "what": "began", **more}] if journal else []
    return began + [
        {"at": 3, "client": reader, "what": "read", "sequence": number, "line": line, **more}
        for number, line in messages
    ]


BOTH = published("x", 1) + published("y", 2)
KEPT = published("x", 1, kept=1) + published("y", 2)


@pytest.mark.parametrize(
    "history",
    [
        BOTH + read("r1", (1, "x"), (2, "y")) + read("r2", (1, "x"), (2, "y")),
        published("x", 1) + published("z", None) + read("r1", (1, "x"), (5, "z")) + read("r2", (1, "x")),
        KEPT + read("r1", (1, "x"), (2, "y")) + read("r2", (1, "x"), (2, "y")) + read("j", (1, "x"), journal=True),
    ],
)
def test_valid_fyrehose_history_passes(history: list[Entry]) -> None:
    assert check(BEGAN + history) == []


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        (BOTH + read("r1", (1, "x"), (2, "y")) + read("r2", (2, "y")), "lost: r2 has not x"),
        (published("x", 1) + read("r1", (1, "x")), "lost: r2 has not x"),
        (BOTH + read("r1", (1, "x"), (2, "y")) + read("r2", (2, "y"), (1, "x")), "out of order: r2"),
        (published("x", None) + read("r1", (1, "x"), (2, "x")), "twice: r1 has x as 1 and 2"),
        (published("x", 1) + read("r1", (1, "x")) + read("r2", (2, "x")), "renumbered: r2 has x as 2"),
        (published("x", None) + published("y", None) + read("r1", (1, "x")) + read("r2", (1, "y")), "two messages: 1"),
        (read("r1", (1, "x")), "read and never published: x"),
        (
            KEPT + read("r1", (1, "x"), (2, "y")) + read("r2", (1, "x"), (2, "y")) + read("j", (2, "y"), journal=True),
            "lost: j has not x",
        ),
        (
            KEPT + read("r1", (1, "x"), (2, "y")) + read("r2", (1, "x"), (2, "y")) + read("j", journal=True),
            "lost: j has not x",
        ),
    ],
)
def test_violation_in_a_fyrehose_history_is_found(history: list[Entry], violation: str) -> None:
    (found,) = check(BEGAN + history)
    assert found.startswith(violation)
