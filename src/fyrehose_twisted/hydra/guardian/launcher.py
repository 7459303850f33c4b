"""The guardian of a node, as the node has it: see :mod:`~fyrehose_twisted.hydra.guardian.process`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

MAX_LINKS = 3
"""Links over which the goodbye goes."""
RESTART = 5.0
"""Seconds after which a guardian that ended is started again."""
PATIENCE = 1.0
"""Seconds that it may take to end when it is told to, before it is killed."""
KINDS = ("tcp:", "tls:", "udp:")
"""Links that it can open beside the node."""


def can_guard() -> bool:
    """Return whether the platform tells one process of the end of another."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


class Guarding(ProcessProtocol):
    """Starts a guardian, again if it ends, and tells it the id.

    :param links: link strings of what the node dials.
    """

    log = Logger()

    def __init__(self, reactor: Any, links: Sequence[str], secret: bytes | None, scale: float) -> None:
        self._reactor = reactor
        self._first = {
            "parent": os.getpid(),
            "secret": None if secret is None else secret.hex(),
            "links": list(links)[:MAX_LINKS],
            "scale": scale,
        }
        self._id: int | None = None
        self._running = False
        self._wanted = False
        self._restart: Any = None
        self._ended: Deferred[None] | None = None
        self._kill: Any = None

    def start(self) -> None:
        """Start it."""
        self._restart = None
        self._wanted = self._running = True
        # What this process imports from has to be found by that one, however it was started.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-P", "-m", "fyrehose_twisted.hydra.guardian.process"]
        self._reactor.spawnProcess(self, sys.executable, command, environment, childFDs={0: "w", 1: 2, 2: 2})
        self._first["parent"] = os.getpid()
        self._tell(self._first)
        self._tell({"id": self._id})

    def use(self, number: int | None) -> None:
        """The node has this id now, or is in no network."""
        if number != self._id:
            self._id = number
            if self._running:
                self._tell({"id": number})

    def stop(self, *, goodbye_said: bool) -> Deferred[None]:
        """End it; the Deferred fires when it has ended.

        :param goodbye_said: without that, it stays, and says it when this process has ended.
        """
        self._wanted = False
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if not self._running or not goodbye_said:
            return succeed(None)
        self._tell({"quit": True})
        self._ended = Deferred()
        self._kill = self._reactor.callLater(PATIENCE, self._take_too_long)
        return self._ended

    def processExited(self, reason: Failure) -> None:  # noqa: N802
        """Twisted: it has ended."""
        self._running = False
        if self._kill is not None:
            self._kill.cancel()
            self._kill = None
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended.callback(None)
        elif self._wanted:
            self.log.warn("the guardian has ended ({why}); another follows", why=reason.getErrorMessage())
            self._restart = self._reactor.callLater(RESTART, self.start)

    def _tell(self, message: dict[str, Any]) -> None:
        transport: Any = self.transport
        # The pipe of a guardian that has died is gone some time before its end is reported.
        with suppress(KeyError):
            transport.writeToChild(0, json.dumps(message).encode() + b"\n")

    def _take_too_long(self) -> None:
        self._kill = None
        transport: Any = self.transport
        with suppress(ProcessExitedAlready):
            transport.signalProcess("KILL")
