"""Description of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from race.servers import Missing, program

NOT_THERE = "not installed"


def describe() -> dict[str, str]:
    """Return machine, kernel and versions."""
    facts = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "nats-server": _output("nats-server", "--version", lambda text: text.split(":")[-1].strip()),
        "redis-server": _output("redis-server", "--version", lambda text: text.split("v=")[-1].split()[0]),
        "gcc": _output("gcc", "-dumpfullversion", str.strip),
        "libzmq": _libzmq(),
    }
    for package in ("Twisted", "numpy", "nats-py", "redis", "hiredis", "pyzmq"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = NOT_THERE
    return facts


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def _output(command: str, option: str, meaning: Callable[[str], str]) -> str:
    try:
        path = program(command, command)
    except Missing:
        return NOT_THERE
    return meaning(subprocess.run([path, option], capture_output=True, text=True, check=True).stdout)


def _libzmq() -> str:
    try:
        import zmq
    except ImportError:
        return NOT_THERE
    return zmq.zmq_version()
