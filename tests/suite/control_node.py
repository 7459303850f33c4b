"""Scripted control port of a node, for tests of commands."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

Reply = Callable[[dict[str, Any]], Sequence[Any]]
PlayNode = Callable[[Reply], "ControlNode"]


class ControlNode:
    """A control port for one client.

    :param reply: called with each request; returns the responses. Bytes are sent as they are, ``None`` ends the
        connection.
    :ivar place: endpoint description of the port.
    :ivar asked: the requests.
    """

    def __init__(self, reply: Reply) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(120.0)
        self.place = f"tcp:{self._listening.getsockname()[1]}"
        self.asked: list[dict[str, Any]] = []
        self._reply = reply
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    self.asked.append(json.loads(line))
                    for response in self._reply(self.asked[-1]):
                        if response is None:
                            return
                        raw = isinstance(response, bytes)
                        connection.sendall(response if raw else json.dumps(response).encode() + b"\n")

    def close(self) -> None:
        """Close the port and wait for the thread."""
        self._listening.close()
        self._thread.join(120.0)


@pytest.fixture
def play() -> Iterator[PlayNode]:
    """Return a function that opens a control port."""
    nodes: list[ControlNode] = []

    def opened(reply: Reply) -> ControlNode:
        nodes.append(ControlNode(reply))
        return nodes[-1]

    yield opened
    for node in nodes:
        node.close()


def run_command(*arguments: str, data: bytes = b"", cwd: Path | None = None) -> tuple[int, str, str]:
    """Run ``fyrehose``; return its exit status, standard output and standard error."""
    program = f"from fyrehose_twisted.cli.main import main\nmain({list(arguments)!r})"
    ran = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, timeout=60, check=False, cwd=cwd
    )
    return ran.returncode, ran.stdout.decode(errors="surrogateescape"), ran.stderr.decode()
