"""Marks in the environment of processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from suite.processes import environment

MARK = b"FYREHOSE_TEST_MARK=here"
HIGHEST = 2**22
"""Upper bound of process ids."""


def test_a_process_keeps_its_mark_after_exec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, value = MARK.decode().split("=")
    monkeypatch.setenv(name, value)
    script = tmp_path / "again.sh"
    script.write_text('exec /bin/sh "$0"')
    process = subprocess.Popen(["/bin/sh", script], stdin=subprocess.DEVNULL)
    try:
        seen = [MARK in environment(process.pid) for _ in range(20_000)]
    finally:
        process.kill()
        process.wait()
    assert seen.count(False) == 0


def test_a_process_without_an_environment_has_no_mark() -> None:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={})
    try:
        assert environment(process.pid) == [b""]
    finally:
        process.communicate()


def test_the_mark_of_a_missing_process_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=f"/proc/{HIGHEST + 1}/"):
        environment(HIGHEST + 1)
