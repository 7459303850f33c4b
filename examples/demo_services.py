"""Services of the demo: backbone, journals and query service, each a ``twistd`` process."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Protocol

from demo_journals import STREAM
from demo_processes import Process, Processes

from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.reader import JournalReader, open_reader

NAME = STREAM.removeprefix("fyrehose://")
LOOPBACK = "127.0.0.1"
_LISTENING = re.compile(rf"--http: listening on {re.escape(LOOPBACK)}:(\d+)")
_SUMMARY = re.compile(r"JournalService#info\] (messages received: .*)")


def watch_option(name: str, metrics: int) -> str:
    """Return the option by which the dashboard watches a process."""
    return f"--watch={name}=http://{LOOPBACK}:{metrics}/metrics"


class Watched(Protocol):
    """Process with metrics."""

    @property
    def watch(self) -> str:
        """Option by which the dashboard watches it."""


class Service:
    """A service that can be killed and restarted, with its metrics.

    :param metrics: the port of its metrics.
    """

    def __init__(self, processes: Processes, name: str, metrics: int, plugin: str, *options: str) -> None:
        self.name = name
        self.watch = watch_option(name, metrics)
        options = (f"--name={NAME}", f"--metrics=tcp:{metrics}:interface={LOOPBACK}", *options)
        self.process: Process = processes.service(name, plugin, *options)


class Backbone(Service):
    """``twistd fyrehose-backbone``."""

    def __init__(self, processes: Processes, port: int, metrics: int) -> None:
        super().__init__(processes, "backbone", metrics, "fyrehose-backbone", f"--port={port}")
        self._state = processes.directory / f"fyrehose-{NAME}.state"

    def last_number(self) -> int:
        """Return the last assigned number, from the state file."""
        (last,) = struct.unpack_from("=Q", self._state.read_bytes(), 16)
        return int(last)


class Relay(Service):
    """``twistd fyrehose-relay``."""

    def __init__(self, processes: Processes, port: int, metrics: int, backbone: str) -> None:
        super().__init__(processes, "relay", metrics, "fyrehose-relay", f"--port={port}", f"--backbone={backbone}")


class Client:
    """Worker that is a client, with its metrics.

    :param server: address of the backbone or relay that serves it.
    """

    def __init__(self, processes: Processes, name: str, metrics: int, script: str, server: str) -> None:
        self.watch = watch_option(name, metrics)
        self.worker = processes.worker(name, script, server, metrics)


class Journal(Service):
    """``twistd fyrehose-journal``, with a directory of its own."""

    def __init__(self, processes: Processes, name: str, metrics: int, backbone: str) -> None:
        self.directory = processes.directory / name
        self.directory.mkdir()
        options = f"--backbone={backbone}", f"--directory={self.directory}", "--from=1"
        super().__init__(processes, name, metrics, "fyrehose-journal", *options)

    def stop(self) -> str:
        """Stop the journal cleanly, and return its summary."""
        self.process.stop()
        return self.process.said(_SUMMARY)[-1]

    def reader(self) -> JournalReader:
        """Return a reader, as for any process on this machine. :raises JournalError: if it is too early."""
        try:
            return open_reader(self.directory / directory_name(STREAM))
        except FileNotFoundError as error:
            raise JournalError("there is no journal yet") from error

    def next(self) -> int:
        """Return the watermark: the first number that is not durable yet."""
        try:
            reader = self.reader()
        except JournalError:
            return 1
        bounds = reader.bounds(0)
        reader.close()
        return 1 if bounds is None else bounds.next


def start_dashboard(processes: Processes, journal: Journal, watched: Iterable[Watched]) -> str:
    """Start ``twistd fyrehose-query`` on a journal; return the address of its page."""
    options = f"--directory={journal.directory}", f"--http=tcp:0:interface={LOOPBACK}", *(one.watch for one in watched)
    dashboard = processes.service("dashboard", "fyrehose-query", *options)
    dashboard.start()
    processes.wait_for(lambda: bool(dashboard.said(_LISTENING)), "the dashboard")
    return f"http://{LOOPBACK}:{dashboard.said(_LISTENING)[-1]}/"


def free_ports(kinds: Iterable[socket.SocketKind]) -> list[int]:
    """Return a free port on loopback for each kind of socket, no two of them the same."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for kind in kinds]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]
