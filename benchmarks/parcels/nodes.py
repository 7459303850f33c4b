"""Processes of a cluster, each in a process group of its own, and their CPU time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any
from urllib.request import Request, urlopen

from race.servers import cpu_seconds

PATIENCE = 25.0
"""Seconds within which any process must start or reach its state."""


class Unfit(Exception):
    """A measurement is invalid, for the reason in the message."""


def free_ports(count: int) -> list[int]:
    """Return distinct TCP ports that were free a moment ago."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def fetch(url: str, body: object = None, timeout: float = 5.0) -> Any:
    """Return the JSON at a URL, or the JSON response to ``body``."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=timeout) as answer:
        return json.load(answer)


def wait_until(true: Callable[[], Any], what: str, nodes: Iterable[Node] = (), patience: float = PATIENCE) -> Any:
    """Return the first true result of ``true``, polled.

    :raises Unfit: if a node exits meanwhile, or it takes too long.
    """
    deadline = time.monotonic() + patience
    while True:
        with suppress(OSError, ValueError):
            if answer := true():
                return answer
        for node in nodes:
            node.check()
        if time.monotonic() > deadline:
            raise Unfit(f"not within {patience:g} s: {what}")
        time.sleep(0.02)


class Node:
    """A process whose whole group is killed when it is stopped.

    :ivar input: its standard input, with ``pipes``.
    :ivar output: its standard output, with ``pipes``.
    """

    def __init__(self, name: str, command: Sequence[str], directory: Path, *, pipes: bool = False) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else log,
                stderr=log,
                cwd=directory,
                start_new_session=True,
            )
        self.input: IO[bytes] | None = self.process.stdin
        self.output: IO[bytes] | None = self.process.stdout

    @property
    def pid(self) -> int:
        """Return the id of the process and of its group."""
        return self.process.pid

    def check(self) -> None:
        """:raises Unfit: if it has exited."""
        if self.process.poll() is not None:
            raise Unfit(f"{self.name} ended: {self._log.read_text(errors='replace')[-1_500:]}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its group, which exists until it is waited for."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def stop(self) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.input, self.output):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def cpu_of(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes, in user and system mode."""
    return sum(map(cpu_seconds, pids))


class Cluster:
    """Nodes of one cluster.

    :ivar leader: index of the leader.
    """

    def __init__(self, size: int, directory: Path) -> None:
        self.size = size
        self.directory = directory
        self.nodes: list[Node] = []
        self.leader = 0

    @property
    def pids(self) -> list[int]:
        """Return the ids of all nodes."""
        return [node.pid for node in self.nodes]

    @property
    def others(self) -> list[int]:
        """Return the indexes of the followers."""
        return [index for index in range(self.size) if index != self.leader]

    def start(self) -> None:
        """Start all nodes and wait until they work."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop all nodes."""
        for node in self.nodes:
            node.signal(signal.SIGKILL)
        for node in self.nodes:
            node.stop()
        self.nodes.clear()

    def __enter__(self) -> Any:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
