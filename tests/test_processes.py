"""A mark in the environment of a process is found whatever the process does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from suite.processes import environment

MARK = b"FYREHOSE_TEST_MARK=here"
HIGHEST = 2**22
"""No process has a higher number."""


def test_a_process_that_executes_a_program_keeps_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_one_without_variables_has_none() -> None:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={})
    try:
        assert environment(process.pid) == [b""]
    finally:
        process.communicate()


def test_there_has_to_be_a_process() -> None:
    with pytest.raises(FileNotFoundError, match=f"/proc/{HIGHEST + 1}/"):
        environment(HIGHEST + 1)
