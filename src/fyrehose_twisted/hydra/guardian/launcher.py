"""Launcher of the guardian process :mod:`~fyrehose_twisted.hydra.guardian.process`."""

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
"""Number of links of a guardian."""
RESTART_DELAY = 5.0
"""Seconds before a guardian that exited is restarted."""
KILL_TIMEOUT = 1.0
"""Seconds that a guardian may take to exit before it is killed."""


def can_guard() -> bool:
    """Return whether the platform reports the exit of one process to another (``pidfd_open``)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


class GuardianProcess(ProcessProtocol):
    """The guardian process of a node, restarted if it exits.

    :param links: link strings that the node dials.
    """

    log = Logger()

    def __init__(self, reactor: Any, links: Sequence[str], secret: bytes | None, scale: float) -> None:
        self._reactor = reactor
        self._settings = {
            "parent": os.getpid(),
            "secret": None if secret is None else secret.hex(),
            "links": list(links)[:MAX_LINKS],
            "scale": scale,
        }
        self._id: int | None = None
        self._running = False
        self._keep_running = False
        self._restart_timer: Any = None
        self._exited: Deferred[None] | None = None
        self._kill_timer: Any = None

    def start(self) -> None:
        """Start the guardian."""
        self._restart_timer = None
        self._keep_running = self._running = True
        # The child needs the import path of this process, however it was set.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-P", "-m", "fyrehose_twisted.hydra.guardian.process"]
        self._reactor.spawnProcess(self, sys.executable, command, environment, childFDs={0: "w", 1: 2, 2: 2})
        self._settings["parent"] = os.getpid()
        self._send(self._settings)
        self._send({"id": self._id})

    def set_node_id(self, node_id: int | None) -> None:
        """Send the id of the node to the guardian; ``None`` outside of a network."""
        if node_id != self._id:
            self._id = node_id
            if self._running:
                self._send({"id": node_id})

    def set_secret(self, secret: bytes) -> None:
        """Replace the secret for later dials."""
        self._settings["secret"] = secret.hex()
        if self._running:
            self._send({"new_secret": secret.hex()})

    def stop(self, *, goodbye_sent: bool) -> Deferred[None]:
        """Stop the guardian; the Deferred fires when it has exited.

        :param goodbye_sent: whether the node sent its DROP. If not, the guardian stays and sends it once this process
            has exited.
        """
        self._keep_running = False
        if self._restart_timer is not None:
            self._restart_timer.cancel()
            self._restart_timer = None
        if not self._running or not goodbye_sent:
            return succeed(None)
        self._send({"quit": True})
        self._exited = Deferred()
        self._kill_timer = self._reactor.callLater(KILL_TIMEOUT, self._kill_process)
        return self._exited

    def processExited(self, reason: Failure) -> None:  # noqa: N802
        """Twisted: handle the exit of the guardian."""
        self._running = False
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None
        if self._exited is not None:
            ended, self._exited = self._exited, None
            ended.callback(None)
        elif self._keep_running:
            self.log.warn("the guardian exited ({why}); restarting it", why=reason.getErrorMessage())
            self._restart_timer = self._reactor.callLater(RESTART_DELAY, self.start)

    def _send(self, message: dict[str, Any]) -> None:
        transport: Any = self.transport
        # The pipe of a dead guardian closes some time before its exit is reported.
        with suppress(KeyError):
            transport.writeToChild(0, json.dumps(message).encode() + b"\n")

    def _kill_process(self) -> None:
        self._kill_timer = None
        transport: Any = self.transport
        with suppress(ProcessExitedAlready):
            transport.signalProcess("KILL")
