"""Hosts on a bridge, each a network namespace, and the packet filter between them."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import IO

from suite.spaces import Space

BIN = Path(sys.executable).parent
DISK = 64 * 2**20
"""Size of a small disk in bytes."""
STARTED = 60.0
"""Seconds within which a process must print awaited output."""


class Deadline(AssertionError):
    """An operation did not complete within its bound."""


class Process:
    """A process on a host whose output goes to a file.

    :param command: command line.
    :param log: file that its output is appended to.
    :param cwd: working directory.
    """

    def __init__(self, command: Iterable[object], log: Path, cwd: Path) -> None:
        self.log = log
        self._start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def input(self) -> IO[bytes]:
        """Return its standard input."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def output(self) -> str:
        """Return the output of this process."""
        with self.log.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    @property
    def ended(self) -> bool:
        """Return whether it has exited."""
        return self.process.poll() is not None

    def wait_for(self, pattern: str, seconds: float = STARTED) -> re.Match[str]:
        """Return the first match of ``pattern`` in its output.

        :raises Deadline: if there is none within ``seconds``, or the process exited without one.
        """
        end = monotonic() + seconds
        while True:
            over = self.ended or monotonic() > end
            if found := re.search(pattern, self.output):
                return found
            if over:
                raise Deadline(f"{self.log.name} has no {pattern!r}")
            Event().wait(0.02)

    def pause(self) -> None:
        """Suspend it with SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL and wait for its exit."""
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):
            self.input.close()

    def finish(self, seconds: float) -> int:
        """Close its standard input and return its exit status.

        :raises Deadline: if it runs longer than ``seconds``.
        """
        with suppress(BrokenPipeError, ValueError):
            self.input.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Deadline(f"{self.log.name} did not end within {seconds:g} s") from None


class Host:
    """A namespace with one address on the bridge.

    :ivar name: name in the fault plan.
    :ivar address: IPv4 address.
    :ivar port: device at the bridge.
    :ivar disk: small disk, if it has one.
    """

    def __init__(self, name: str, number: int, directory: Path) -> None:
        self.name = name
        self.address = f"10.9.0.{number}"
        self.port = f"port{number}"
        self.directory = directory / name
        self.directory.mkdir()
        self.space = Space()
        self.processes: list[Process] = []
        self.disk: Path | None = None

    def start(self, program: str, *arguments: object, log: str | None = None, ours: bool = True) -> Process:
        """Start a program; one of the package is found beside the interpreter."""
        command = (*self.space.enter, BIN / program if ours else program, *arguments)
        process = Process(command, self.directory / f"{log or program}.log", self.directory)
        self.processes.append(process)
        return process

    def add_disk(self) -> Path:
        """Mount a disk of :data:`DISK` bytes and return its path."""
        self.disk = self.space.mount_disk(self.directory / "disk", DISK)
        return self.disk

    def fill_disk(self) -> None:
        """Fill its disk."""
        assert self.disk is not None
        with suppress(OSError), (self.disk / "filler").open("wb", buffering=0) as filler:
            for size in (2**20, 2**12):
                with suppress(OSError):
                    while filler.write(bytes(size)) == size:
                        pass

    def free_disk(self) -> None:
        """Free its disk again."""
        assert self.disk is not None
        (self.disk / "filler").unlink()

    def close(self) -> None:
        """Kill its processes and end the namespace. The contents of its disk are copied to its directory."""
        for process in self.processes:
            process.kill()
        if self.disk is not None:
            # The disk ends with the namespace, and a kept history needs its files.
            shutil.copytree(self.disk, self.directory / "disk", dirs_exist_ok=True)
        self.space.close()


class Bridge:
    """A namespace in the middle with a bridge, and the hosts on it.

    A packet that the filter drops is dropped without an answer. ARP is let through, so no kernel reports a host as
    unreachable.

    :param directory: where each host gets a directory for its files and logs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.hosts: dict[str, Host] = {}
        self.middle = Space()
        self.middle.run("ip", "link", "add", "name", "bridge0", "type", "bridge")
        self.middle.run("ip", "link", "set", "bridge0", "up")
        self._cuts: set[tuple[str, str]] = set()
        self._loss = 0.0
        self._deaf: list[str] = []

    def add(self, name: str) -> Host:
        """Add a host."""
        host = self.hosts[name] = Host(name, len(self.hosts) + 2, self._directory)
        peer = ("peer", "name", "eth", "netns", str(host.space.pid))
        self.middle.run("ip", "link", "add", "name", host.port, "mtu", "1500", "type", "veth", *peer)
        self.middle.run("ip", "link", "set", host.port, "master", "bridge0")
        self.middle.prepare_device(host.port)
        host.space.prepare_device("eth", f"{host.address}/24")
        return host

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Drop packets from the first host of each pair to the second one, and no others."""
        self._cuts = set(pairs)
        self._filter()

    def lose(self, share: float) -> None:
        """Drop this share of all packets at random, from 0 to 1."""
        self._loss = share
        self._filter()

    def drop_groups(self, *names: str) -> None:
        """Drop packets to multicast groups on their way to these hosts, and to no others."""
        self._deaf = list(names)
        self._filter()

    def _filter(self) -> None:
        rules = [
            f'iifname "{self.hosts[source].port}" oifname "{self.hosts[target].port}" ether type ip drop'
            for source, target in sorted(self._cuts)
        ]
        rules += [f'oifname "{self.hosts[name].port}" ip daddr 224.0.0.0/4 drop' for name in self._deaf]
        if self._loss:
            rules.append(f"ether type ip numgen random mod 1000 < {round(1000 * self._loss)} drop")
        chain = ["chain pass {", "type filter hook forward priority 0; policy accept;", *rules, "}"]
        table = "table bridge faults {"
        text = "\n".join([table, "}", "delete table bridge faults", table, *chain, "}", ""])
        self.middle.run("nft", "-f", "-", text=text)

    def close(self) -> None:
        """Kill all processes and end all namespaces."""
        for host in self.hosts.values():
            host.close()
        self.middle.close()
