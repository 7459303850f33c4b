"""Client of a node's control port."""

from __future__ import annotations

import json
import socket
from typing import Any

from integration.running.programs import DEADLINE


class Asking:
    """Connection to a node's control port."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.file = self.socket.makefile("rb")

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send a request and return the next response."""
        self.tell(**question)
        return self.read()

    def tell(self, **question: Any) -> None:
        """Send a request without waiting."""
        self.socket.sendall(json.dumps(question).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        """Return the next response."""
        line = self.file.readline()
        assert line, "the node hung up"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()
