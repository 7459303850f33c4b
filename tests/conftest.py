"""Fixtures and hooks of all tests."""

from __future__ import annotations

import os
import pty
import shutil
import socket
import subprocess
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from suite.inherited import normalize

pytest_plugins = [
    "pytester",
    "suite.control_node",
    "suite.leaks",
    "suite.native",
    "suite.profiles",
    "suite.report",
    "suite.spark_session",
]

Program = Callable[[str, str], Path]
Browser = Callable[..., list[str]]

# Before anything reads the environment or starts a process.
normalize()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what takes longer than a soak may: ``@pytest.mark.soak(seconds=300)`` says how long it takes."""
    mark = item.get_closest_marker("soak")
    if mark is not None:
        needed, given = mark.kwargs.get("seconds", 0), float(os.environ.get("SOAK_SECONDS", "60"))
        if needed > given:
            pytest.skip(f"it takes about {needed} s, and SOAK_SECONDS is {given:g}")


@pytest.fixture(scope="session")
def free_port() -> Iterator[Callable[[], int]]:
    """Return ports on loopback that nothing uses over TCP or UDP, another one each time.

    They are below the ports that the kernel gives to outgoing connections, in a block that this process has for itself:
    it listens on the first one, so no other test run on this machine takes the block.
    """
    for first in range(10_000, 32_000, 500):
        with suppress(OSError):
            guard = socket.create_server(("127.0.0.1", first))
            break
    else:
        pytest.fail("no block of ports between 10000 and 32000 is free", pytrace=False)

    def found() -> int:
        for port in ports:
            with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp, suppress(OSError):
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port))
                return port
        raise AssertionError("not reached")

    ports = cycle(range(first + 1, first + 500))
    with guard:
        yield found


@pytest.fixture
def program() -> Program:
    """Return the path of a system program, given its name and the Debian package that has it.

    Without it the test is skipped, or fails in CI, where everything has to be there.
    """

    def find(name: str, package: str) -> Path:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
        missing = f"{name} is missing: apt install {package}"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)

    return find


@pytest.fixture
def shown_on_terminal() -> Callable[[Sequence[object]], tuple[int, str, str]]:
    """Run a command whose standard error is a terminal; return its status, its output and what the terminal shows.

    Where the system has no pseudoterminals, the test is skipped.
    """

    def run(command: Sequence[object]) -> tuple[int, str, str]:
        try:
            terminal, ours = pty.openpty()
        except OSError as error:
            pytest.skip(f"there are no pseudoterminals: {error}")
        termios.tcsetwinsize(ours, (24, 100))
        seen = b""
        with TemporaryFile() as output:
            process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=ours)
            os.close(ours)
            with suppress(OSError):  # End of file: no process has the other side open.
                while more := os.read(terminal, 65_536):
                    seen += more
            os.close(terminal)
            status = process.wait()
            output.seek(0)
            return status, output.read().decode(), seen.decode()

    return run


@pytest.fixture
def browser(program: Program, tmp_path: Path) -> Browser:
    """Return a command that opens something in a headless Chromium, which connects to nothing by itself; without one,
    see :func:`program`."""
    chromium, profiles = program("chromium", "chromium"), count()

    def command(*options: str) -> list[str]:
        quiet = ["quic", "background-networking", "component-update", "sync", "gpu"]
        return [
            str(chromium),
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            *(f"--disable-{what}" for what in quiet),
            "--hide-scrollbars",
            "--virtual-time-budget=20000",
            f"--user-data-dir={tmp_path / f'profile-{next(profiles)}'}",
            *options,
        ]

    return command


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port that a socket listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]
