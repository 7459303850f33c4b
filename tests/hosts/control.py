"""Client of a node's control socket, which speaks JSON lines."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class Control:
    """A connection to a control socket.

    :param path: the Unix socket.
    :raises OSError: if no process listens there.
    """

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(1)
        self._rest = b""
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, what: str, **more: Any) -> None:
        """Send a request.

        :raises OSError: if the connection is closed, or the node does not read.
        """
        self._socket.sendall(json.dumps({"ask": what, **more}).encode() + b"\n")

    def answers(self, seconds: float = 0.2) -> list[Answer]:
        """Return received responses, empty if none arrives within ``seconds``.

        :raises OSError: if the connection is closed.
        """
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(65_536)
        except TimeoutError:
            return []
        if not data:
            raise ConnectionError("the node closed its control connection")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]
