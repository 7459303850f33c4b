"""Senders and receivers in C that fyrehose is compared with: bare UDP, OpenPGM and NORM."""

from __future__ import annotations

import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from ctypes.util import find_library
from pathlib import Path
from typing import IO, NamedTuple

from parcels.nodes import Unfit
from race.servers import cpu_seconds, program

from multicast.cores import prepare_receivers, prepare_sender
from multicast.segment import GROUP, GROUP_PORT, SENDER, Namespace, Segment, address

HERE = Path(__file__).parent
BARE, EACH, PGM, NORM = "bare multicast", "bare unicast", "OpenPGM", "NORM"
NAMES = {BARE: "udp", EACH: "each", PGM: "pgm", NORM: "norm"}
"""Names of the systems in the programs."""
PUBLISH_PORT = 2323
PATIENCE = 60.0
"""Seconds within which a program must answer."""
RECEIVED_AGAIN = 0.1
"""Seconds between two reports of receivers."""


class Programs:
    """Compiled programs.

    :ivar missing: libraries that are not installed, with advice, by system.
    """

    def __init__(self, directory: Path) -> None:
        self.missing: dict[str, str] = {}
        self._directory = directory
        self._flags: list[str] = ["-O2", "-Wall", "-Wextra"]
        self._libraries: list[str] = ["-lpthread"]
        self._compiler = program("gcc", "gcc")
        self._use_pgm()
        self._use_norm()

    def compiled(self, name: str) -> str:
        """Compile a program on first use and return its path."""
        target = self._directory / name
        if not target.exists():
            source = HERE / f"{name}.c"
            command = [self._compiler, *self._flags, "-o", str(target), str(source), *self._libraries]
            subprocess.run(command, check=True)
        return str(target)

    def _use_pgm(self) -> None:
        config = shutil.which("pkg-config")
        if config is None:
            self.missing[PGM] = "not installed: apt install pkg-config libpgm-dev"
            return
        found = subprocess.run([config, "--cflags", "--libs", "openpgm-5.3"], capture_output=True, text=True)
        if found.returncode:
            self.missing[PGM] = "not installed: apt install libpgm-dev"
            return
        words = found.stdout.split()
        self._flags += ["-DWITH_PGM", *(word for word in words if not word.startswith(("-l", "-L")))]
        self._libraries += [word for word in words if word.startswith(("-l", "-L"))]

    def _use_norm(self) -> None:
        if find_library("norm") is None:
            self.missing[NORM] = "not installed: apt install libnorm1"
            return
        self._flags.append("-DWITH_NORM")
        self._libraries.append("-l:libnorm.so.1")


class Sender:
    """A running sender that publishes what it receives at :data:`PUBLISH_PORT`.

    :raises Unfit: if it does not start.
    """

    def __init__(self, system: str, segment: Segment, programs: Programs, log: Path) -> None:
        command = [*segment.sender.enter, programs.compiled("sender"), NAMES[system], SENDER, GROUP]
        command += [str(GROUP_PORT), str(PUBLISH_PORT), str(len(segment.subscribers) if system == EACH else 0)]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=prepare_sender
            )
        _wait_until_ready(self._process, system, log)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process."""
        return cpu_seconds(self._process.pid)

    def stop(self) -> None:
        """Kill it."""
        _kill(self._process)


class Counted(NamedTuple):
    """Messages received by all hosts, by the host with the fewest, and by the one with the most."""

    total: int
    fewest: int
    most: int


class Receivers:
    """A process with subscribers.

    :raises Unfit: if it does not start.
    """

    def __init__(self, arguments: Sequence[str], descriptors: Sequence[int], programs: Programs, log: Path) -> None:
        command = [programs.compiled("receiver"), *arguments, *map(str, descriptors)]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                pass_fds=descriptors,
                preexec_fn=prepare_receivers,
            )
        _wait_until_ready(self._process, "receivers", log)

    def received(self) -> Counted:
        """Return the numbers of messages received so far."""
        _stream(self._process.stdin).write("\n")
        _stream(self._process.stdin).flush()
        output = _stream(self._process.stdout)
        if not select.select([output], [], [], PATIENCE)[0] or not (line := output.readline()):
            raise Unfit("the receivers do not answer")
        return Counted(*map(int, line.split()))

    def wait_for(self, messages: int, before: Counted, seconds: float) -> int:
        """Return the number of deliveries since ``before`` once each host has all messages, or after ``seconds``."""
        end = time.monotonic() + seconds
        while True:
            now = self.received()
            if now.fewest - before.fewest >= messages or time.monotonic() > end:
                return now.total - before.total
            time.sleep(RECEIVED_AGAIN)

    def stop(self) -> None:
        """Kill it."""
        _kill(self._process)


def receive_library(system: str, size: int, hosts: Sequence[Namespace], programs: Programs, log: Path) -> Receivers:
    """Start subscribers of OpenPGM or NORM."""
    arguments = [NAMES[system], str(size), GROUP, str(GROUP_PORT), address(2)]
    return Receivers(arguments, [host.fd for host in hosts], programs, log)


def _wait_until_ready(process: subprocess.Popen[str], name: str, log: Path) -> None:
    output = _stream(process.stdout)
    if not select.select([output], [], [], PATIENCE)[0] or output.readline() != "ready\n":
        _kill(process)
        raise Unfit(f"{name} did not start: {log.read_text()[-500:]}")


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
