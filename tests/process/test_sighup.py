"""Limits files and their reload on SIGHUP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.process.sighup import (
    ReloadOnHup,
    diff,
    integer_between,
    limit_checks,
    non_empty_strings,
    positive_number,
    read_limits,
    with_limits,
)

KNOWN = {"count": integer_between(1, 10), "rate": positive_number, "names": non_empty_strings}


def written(path: Path, text: str) -> Path:
    (path / "limits").write_text(text)
    return path / "limits"


def test_a_limits_file_is_parsed(tmp_path: Path) -> None:
    path = written(tmp_path, 'count = 3 # three\nrate = 2\nnames = ["a", "b"]\n')
    assert read_limits(path, KNOWN) == {"count": 3, "rate": 2.0, "names": ["a", "b"]}
    assert read_limits(written(tmp_path, ""), KNOWN) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("count = 11", "count is a whole number from 1 to 10, and not 11"),
        ("count = 0", "count is"),
        ("count = true", "count is"),
        ("count = 1.0", "count is"),
        ('count = "1"', "count is"),
        ("rate = 0", "rate is a number above 0"),
        ("rate = inf", "rate is"),
        ("rate = nan", "rate is"),
        ("names = 5", "names is a list of texts"),
        ("names = [5]", "names is"),
        ("names = []", "names is a list of texts"),
        ("other = 1", "there is no limit 'other'; there are count, rate, names"),
        ("[count]\na = 1", "count is"),
        ("count", "is not TOML"),
        ("count = 1\ncount = 2", "is not TOML"),
        ("a = " + "[" * 10_000, "is not TOML"),
        ("# " + "x" * 2**20, "is longer than"),
    ],
)
def test_an_invalid_limits_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_limits(written(tmp_path, text), KNOWN)


def test_an_unreadable_limits_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_limits(tmp_path / "none", KNOWN)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_limits(tmp_path, KNOWN)
    (tmp_path / "limits").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not TOML"):
        read_limits(tmp_path / "limits", KNOWN)


@dataclass(frozen=True)
class Limits:
    max_things: int = 5
    rate: float = 1.0
    secret: str = field(default="", repr=False)


def test_limits_of_a_file_replace_dataclass_fields(tmp_path: Path) -> None:
    known = limit_checks(Limits(), "max_things", "rate")
    assert with_limits(Limits(), None, known) == Limits()
    assert with_limits(Limits(), written(tmp_path, "max-things = 7"), known) == Limits(7)
    with pytest.raises(ConfigurationError, match="there are max-things, rate"):
        with_limits(Limits(), written(tmp_path, 'secret = "x"'), known)


def test_logged_changes_hide_secrets() -> None:
    assert diff(Limits(), Limits()) == []
    assert diff(Limits(5, 1, "hush"), Limits(6, 1, "psst")) == ["max-things 5 -> 6"]


class Now:
    """A reactor that runs calls from threads at once."""

    def callFromThread(self, call: Any) -> None:  # noqa: N802
        call()


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["default", "ignored"])
def left(request: pytest.FixtureRequest) -> Iterator[signal.Handlers]:
    """Return the inherited disposition of SIGHUP, which nohup ignores."""
    before = signal.signal(signal.SIGHUP, request.param)
    yield request.param
    signal.signal(signal.SIGHUP, before)


def test_sighup_reloads_and_logs_changes(left: signal.Handlers) -> None:
    applied: list[int] = []

    def apply(value: int) -> list[str]:
        applied.append(value)
        return [f"now {value}"] if value < 3 else []

    first, second = ReloadOnHup(lambda: 1, apply, Now()), ReloadOnHup(lambda: 3, apply, Now())
    nothing: ReloadOnHup[int] = ReloadOnHup(None, apply, Now())
    for one in (first, second, nothing):
        one.start()
    with capturedLogs() as logs:
        signal.raise_signal(signal.SIGHUP)
    assert applied == [1, 3]
    assert [log.get("changes") for log in logs] == ["now 1", "no changes", None]
    first.stop()
    first.stop()
    signal.raise_signal(signal.SIGHUP)
    assert applied == [1, 3, 3]
    for one in (second, nothing):
        one.stop()
    assert signal.getsignal(signal.SIGHUP) == left


def test_sighup_is_ignored_by_a_service_without_reload(left: signal.Handlers) -> None:
    nothing = ReloadOnHup.ignore(Now())
    nothing.start()
    try:
        with capturedLogs() as logs:
            signal.raise_signal(signal.SIGHUP)
    finally:
        nothing.stop()
    assert [log["log_format"] for log in logs] == ["SIGHUP: there is nothing to reload"]
    assert signal.getsignal(signal.SIGHUP) == left


def test_a_sighup_handler_of_the_application_is_kept() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
    nothing = ReloadOnHup.ignore(Now())
    nothing.start()
    try:
        signal.raise_signal(signal.SIGHUP)
        assert came == [signal.SIGHUP]
    finally:
        nothing.stop()
        signal.signal(signal.SIGHUP, before)


def test_sighup_is_not_handled_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGHUP)
    nothing = ReloadOnHup.ignore(Now())

    def embedded() -> None:
        nothing.start()
        nothing.stop()

    with ThreadPoolExecutor(1) as somewhere:
        somewhere.submit(embedded).result()
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_failed_reload_changes_nothing() -> None:
    def read() -> int:
        raise ConfigurationError("that will not do")

    applied: list[int] = []
    reloading = ReloadOnHup(read, lambda value: applied.append(value) or [], Now())  # type: ignore[func-returns-value]
    with capturedLogs() as logs:
        reloading.reload()
    assert applied == []
    assert [(log["log_level"], str(log["error"])) for log in logs] == [(LogLevel.error, "that will not do")]
