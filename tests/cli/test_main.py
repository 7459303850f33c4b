"""Behaviour common to all subcommands of ``fyrehose``."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_closed_output_pipe_ends_a_command_without_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from fyrehose_twisted.cli.main import main; main()", "simulate", "--list"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
