"""Checker of freenet histories, on handwritten histories."""

from __future__ import annotations

import pytest
from hosts.checkers.freenet import check
from hosts.history import Entry


def entry(at: float, client: str, what: str, **more: object) -> Entry:
    return {"at": at, "client": client, "what": what, **more}


def published(at: float, line: str) -> list[Entry]:
    return [entry(at, "p", "asked", line=line), entry(at + 1, "p", "told", line=line, number=ord(line))]


def read(client: str, *lines: str, number: int | None = None) -> list[Entry]:
    return [entry(30, client, "read", line=line, number=number or ord(line)) for line in lines]


def failed(line: str, why: str) -> list[Entry]:
    return [entry(2, "p", "failed", answer={"id": line, "error": "not published", "why": why})]


RENUMBERED = [entry(30, "a/1", "noticed", answer={"change": "Renumbered"})]
ATTACHED = [entry(30, "a/1", "noticed", answer={"change": "Attached"})]
ASKED = [entry(1, "p", "asked", line="x"), entry(1, "p", "asked", line="y")]
BEGAN = [entry(0, "a/1", "began"), entry(0, "b/1", "began")]
ONE = [entry(20, "harness", "one")]


@pytest.mark.parametrize(
    "history",
    [
        published(1, "x") + read("a/1", "x") + ONE,
        ONE + published(21, "x") + read("a/1", "x") + read("b/1", "x"),
        [*ONE, *published(21, "x"), *read("a/1", "x"), entry(19, "b/1", "ended")],
        [*ONE, entry(21, "p", "asked", line="x"), *read("a/1", "x")],
        ASKED + read("a/1", "x", number=7) + RENUMBERED + read("a/1", "y", number=7),
        ASKED + read("a/1", "x", number=7) + read("b/1", "y", number=7),
        ASKED + read("a/1", "x", number=7) + read("b/1", "x", number=7) + ONE,
        ASKED + failed("x", "uncertain") + read("a/1", "x"),
        ASKED + failed("x", "timed-out") + read("a/1", "x"),
        ASKED + failed("x", "no-subscribers") + read("a/1", "y"),
        [*published(1, "x"), *read("a/1", "x"), entry(2, "a/1", "ended"), entry(3, "a/2", "began"), *read("a/2", "x")],
    ],
)
def test_valid_freenet_history_passes(history: list[Entry]) -> None:
    assert check(BEGAN + history) == []


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        (published(1, "x") + read("a/1", "x", "x"), "read 2 times: a/1 has x"),
        (read("a/1", "x"), "read and never published: x"),
        (ASKED + read("a/1", "x", "y", number=7), "two packets: 7 is x and y at a/1"),
        (
            ASKED + read("a/1", "x", number=7) + ATTACHED + read("a/1", "y", number=7),
            "two packets: 7 is x and y at a/1",
        ),
        (
            ONE + published(21, "x") + read("a/1", "x", number=7) + read("b/1", "x"),
            "renumbered: a/1 has x as 7, and it was told as 120",
        ),
        (published(1, "x") + read("a/1", "x", number=7) + ONE, "renumbered: a/1 has x as 7, and it was told as 120"),
        (
            ASKED + read("a/1", "x", number=7) + read("b/1", "x", number=8),
            "renumbered: b/1 has x as 8, and it was read by a/1 as 7",
        ),
        (ASKED + failed("x", "collision") + read("a/1", "x"), "refused and read: x (collision)"),
        (ONE + published(21, "x") + read("a/1", "x"), "lost: b/1 has not x"),
        (
            [*ONE, entry(2, "b/1", "ended"), entry(3, "b/2", "began"), *published(21, "x"), *read("a/1", "x")],
            "lost: b/2 has not x",
        ),
    ],
)
def test_violation_in_a_freenet_history_is_found(history: list[Entry], violation: str) -> None:
    (found,) = check(BEGAN + history)
    assert found.startswith(violation)
