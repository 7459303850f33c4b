"""Behaviour common to all subcommands of ``fyrehose``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_a_closed_output_pipe_ends_a_command_without_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from fyrehose_twisted.cli.main import main; main()", "simulate", "--list"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts the threads in /proc")
def test_commands_start_no_threads_for_matrices() -> None:
    program = """
import os, sys
from fyrehose_twisted.cli.main import main
try:
    main(["--help"])
except SystemExit:
    import numpy
    print(len(os.listdir("/proc/self/task")), file=sys.stderr)
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "1\n"
