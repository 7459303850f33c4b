from __future__ import annotations

import json

import pytest

from fyrehose_twisted.cli.doctor.finding import (
    DoctorFinding,
    Level,
    exit_status,
    format_findings,
    ok,
    unknown,
    warn,
    wrong,
)


def test_findings_are_aligned_and_counted() -> None:
    findings = [ok("clock", "right"), warn("disk room", "little", "make more"), wrong("fsync", "no", "buy another")]
    assert list(format_findings(findings)) == [
        "ok    clock      right",
        "warn  disk room  little",
        "      do: make more",
        "wrong fsync      no",
        "      do: buy another",
        "3 checks: 1 ok, 1 to look at, 1 wrong.",
    ]


def test_control_characters_of_findings_are_escaped() -> None:
    (line, total) = format_findings([ok("ports", "in use by \x1b[2Jevil\r\n")])
    assert line == "ok    ports  in use by ?[2Jevil??"
    assert total == "1 check: 1 ok, 0 to look at, 0 wrong."


@pytest.mark.parametrize(
    ("level", "strict", "expected"),
    [
        (Level.OK, False, 0),
        (Level.OK, True, 0),
        (Level.WARN, False, 0),
        (Level.WARN, True, 1),
        (Level.WRONG, False, 1),
        (Level.WRONG, True, 1),
    ],
)
def test_the_exit_status_follows_the_worst_finding(level: Level, strict: bool, expected: int) -> None:
    assert exit_status([ok("clock", "right"), DoctorFinding("x", level, "y")], strict=strict) == expected


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (OSError(13, "Permission denied", "/proc/net/snmp"), "/proc/net/snmp: Permission denied"),
        (OSError(1, "Operation not permitted"), "Operation not permitted"),
        (OSError("only Linux is asked"), "only Linux is asked"),
        ("nobody says", "nobody says"),
    ],
)
def test_an_unknown_result_is_a_warning_with_its_reason(reason: object, said: str) -> None:
    assert unknown("clock", reason, "look") == ("clock", Level.WARN, f"cannot be known: {said}", "look")


def test_findings_can_be_encoded_as_json() -> None:
    assert json.loads(json.dumps(ok("clock", "right")._asdict())) == {
        "check": "clock",
        "level": "ok",
        "found": "right",
        "advice": None,
    }
