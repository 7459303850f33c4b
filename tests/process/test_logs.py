"""JSON log lines, for events with any content."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import FileLogObserver, ILogObserver, Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure
from twisted.python.log import LogPublisher as LegacyPublisher

from fyrehose_twisted.process import logs

JSON_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


def entry(event: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of an event, which must be one ASCII line."""
    written = logs.format_event(event)
    assert written.isascii()
    assert written.endswith("\n")
    assert len(written.splitlines()) == 1
    read: dict[str, Any] = json.loads(written, parse_constant=pytest.fail)
    return read


def logged(*arguments: Any, level: str = "warn", **fields: Any) -> dict[str, Any]:
    """Return the entry of a call of a logger."""
    events: list[dict[str, Any]] = []
    publisher = LogPublisher(events.append)
    getattr(Logger("orders.desk", observer=publisher), level)(*arguments, **fields)
    return entry(events[0])


@pytest.fixture
def usr1() -> Iterator[None]:
    """Restore the disposition of SIGUSR1."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_a_json_log_line_has_the_fields_of_its_event() -> None:
    said = logged("dropped ({reason}) from {host}:{port}", reason="token", host="192.0.2.1", port=7, late=True, by=None)
    at = said.pop("time")
    assert at.endswith("Z")
    assert len(at) == len("2026-01-01T00:00:00.000000Z")
    assert said == {
        "level": "warn",
        "namespace": "orders.desk",
        "message": "dropped (token) from 192.0.2.1:7",
        "reason": "token",
        "host": "192.0.2.1",
        "port": 7,
        "late": True,
        "by": None,
    }


@pytest.mark.parametrize(
    ("at", "told"),
    [(0.0, "1970-01-01T00:00:00.000000Z"), (1_700_000_000.25, "2023-11-14T22:13:20.250000Z"), (None, None)],
)
def test_log_times_are_utc(at: float | None, told: str | None) -> None:
    assert entry({"log_time": at, "log_level": LogLevel.info, "log_format": "x"})["time"] == told


def test_event_fields_do_not_overwrite_standard_fields() -> None:
    said = logged("{namespace} at {time}", namespace="high", time=3.5)
    assert said["message"] == "high at 3.5"
    assert (said["namespace_"], said["time_"], said["namespace"]) == ("high", 3.5, "orders.desk")


def test_event_fields_that_are_no_scalars_appear_only_in_the_message() -> None:
    said = logged("{error} of {peer} in {data}", error=ValueError("bad"), peer=("a", 1), data=b"\0")
    assert said["message"] == "bad of ('a', 1) in b'\\x00'"
    assert {"error", "peer", "data"}.isdisjoint(said)


def test_a_logged_failure_has_its_traceback() -> None:
    try:
        raise RuntimeError("on\nfire")
    except RuntimeError:
        said = logged("stopping", failure=Failure(), level="failure")
    assert said["level"] == "critical"
    assert said["message"] == "stopping"
    assert said["failure"].startswith("Traceback (most recent call last):\n")
    assert said["failure"].rstrip().endswith("on\nfire")


def test_a_failure_that_cannot_be_formatted_is_logged() -> None:
    assert entry({"log_failure": object()})["failure"] == "a failure that cannot be shown: AttributeError"


def test_a_long_traceback_is_cut_at_its_beginning() -> None:
    try:
        raise RuntimeError("x" * 100_000 + "the end")
    except RuntimeError:
        said = logged("stopping", failure=Failure(), level="failure")
    assert "cut" in said["failure"][:40]
    assert said["failure"].rstrip().endswith("the end")
    assert len(said["failure"]) < logs.MAX_TRACEBACK + 100


def test_an_event_that_cannot_be_formatted_is_logged() -> None:
    assert "Unable to format event" in logged("{missing}")["message"]


@pytest.mark.parametrize(
    "text", ["\n\r\v\f\x1c\x85\u2028\u2029", "\0\x1b[2J\x9b\x7f", '"}\n{"level":"info', "😀\u202e"]
)
def test_control_characters_do_not_break_a_log_line(text: str) -> None:
    said = logged("{detail}", detail=text)
    assert said["detail"] == said["message"] == text


def test_a_surrogate_is_escaped_in_a_log_line() -> None:
    assert logged("x", line=b"\xff!".decode("utf-8", "surrogateescape"))["line"] == "\\udcff!"


@pytest.mark.parametrize("length", [logs.MAX_TEXT, logs.MAX_TEXT + 1, 10_000_000])
def test_long_log_values_are_cut_with_a_note(length: int) -> None:
    said = logged("{detail}", detail="x" * length)
    for text in (said["detail"], said["message"]):
        if length == logs.MAX_TEXT:
            assert text == "x" * length
        else:
            assert text == "x" * logs.MAX_TEXT + f"... (cut; {length:,} characters)"


def test_the_number_of_log_fields_is_limited() -> None:
    assert len(entry({f"field{number}": number for number in range(1_000)})) <= logs.MAX_FIELDS + 5


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, "0x10000000000000000"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (1.5, 1.5),
    ],
)
def test_numbers_are_logged_as_json_numbers_or_text(number: float, told: object) -> None:
    assert entry({"number": number})["number"] == told


def test_a_huge_integer_is_logged_in_hexadecimal() -> None:
    assert entry({"number": 1 << 1_000_000})["number"].startswith("0x1000")


@given(st.dictionaries(st.text(), JSON_SCALARS | st.binary() | st.tuples(st.text())))
def test_every_event_is_one_log_line(fields: dict[str, Any]) -> None:
    fields = {name: value for name, value in fields.items() if not name.startswith("log_")}
    said = entry({**fields, "log_format": "x", "log_level": LogLevel.info, "log_time": 1.0})
    assert said["message"] == "x"


def test_events_of_the_legacy_logger_are_formatted() -> None:
    lines: list[dict[str, Any]] = []
    publisher: Any = LegacyPublisher()
    new = publisher._publishPublisher
    new.addObserver(lambda event: lines.append(entry(event)))
    publisher.msg("started", port=7)
    assert lines[0].keys() == {"time", "level", "namespace", "message", "port"}
    assert (lines[0]["message"], lines[0]["namespace"], lines[0]["level"]) == ("started", "log_legacy", "info")


@pytest.mark.parametrize("arguments", [["-n", "x"], ["-n", "--logfile=-", "x"], ["--debug", "x"], ["--unknown"]])
def test_the_json_log_of_a_foreground_process_goes_to_standard_output(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twistd", *arguments])
    observer: Any = logs.json_lines()
    assert ILogObserver.providedBy(observer)
    assert isinstance(observer, FileLogObserver)
    assert vars(observer)["_outFile"] is sys.stdout


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-n", "--logfile=a.log", "x", "--logfile=b.log"], "a.log"),
        (["-l", "a.log", "x"], "a.log"),
        (["--pidfile=", "x", "-n"], "twistd.log"),
    ],
)
def test_the_json_log_file_is_that_of_twistd(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usr1: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["twistd", *arguments])
    observer: Any = logs.json_lines()
    assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
    file = vars(observer)["_outFile"]
    event = {"log_time": 1.0, "log_level": LogLevel.info, "log_format": "x" * 1_000}
    for _ in range(file.rotateLength // 1_000 + 1):
        observer(event)
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"{name}.1"]
    written = [json.loads(text) for path in tmp_path.iterdir() for text in path.read_text().splitlines()]
    assert len(written) == file.rotateLength // 1_000 + 1


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["--logfile=-", "x"], "a daemon cannot log to standard output"),
        (["-n", "--syslog", "x"], "--syslog takes text"),
    ],
)
def test_json_logs_to_an_unusable_destination_are_refused(
    arguments: list[str], refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twistd", *arguments])
    with pytest.raises(SystemExit, match=refusal):
        logs.json_lines()
