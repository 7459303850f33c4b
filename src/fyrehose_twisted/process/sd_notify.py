"""Notifications to systemd (``Type=notify``).

A service calls ``systemd_notifier.ready(reactor)`` once its state is open and its ports are bound. Reloads, the stop
and the watchdog are then reported automatically.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic_ns
from typing import Any

from twisted.logger import Logger

from fyrehose_twisted.process.repeating import PeriodicCall

SEND_TIMEOUT = 1.0
"""Timeout of a notification, in seconds."""


class SystemdNotifier:
    """Notifier of the service manager that started this process, if any.

    :param environment: environment with ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC``.
    """

    log = Logger()

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._ready = False
        self._failed = False

    def ready(self, reactor: Any, status: str = "") -> None:
        """Report the service as ready. The first of several services in a process counts for all.

        :param status: one line for ``systemctl status``.
        """
        if self._environment.get("NOTIFY_SOCKET"):
            # Before the reactor runs, SIGTERM would kill the process.
            reactor.callWhenRunning(self._notify_ready, reactor, status)

    def failed(self) -> None:
        """Report a failure that ends the process."""
        self._failed = True
        self.notify(STATUS="failed; the log says why")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload for the duration of the context."""
        if not self._ready:
            yield
            return
        self.notify(RELOADING=1, MONOTONIC_USEC=monotonic_ns() // 1_000)
        try:
            yield
        finally:
            self.notify(READY=1)

    def notify(self, **said: object) -> None:
        """Send variables of sd_notify(3). Does nothing without a service manager; errors are logged."""
        path = self._environment.get("NOTIFY_SOCKET")
        if not path:
            return
        lines = [f"{name}={' '.join(str(value).split())}" for name, value in said.items()]
        if path.startswith("@"):
            path = "\0" + path[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
                speaking.settimeout(SEND_TIMEOUT)
                speaking.sendto("\n".join(lines).encode(), path)
        except OSError as error:
            self.log.warn("cannot send {lines} to the supervisor: {error}", lines=lines, error=error)

    def _notify_ready(self, reactor: Any, status: str) -> None:
        if self._ready or self._failed:
            return
        self._ready = True
        self.notify(READY=1, STATUS=status)
        reactor.addSystemEventTrigger("before", "shutdown", self.notify, STOPPING=1, STATUS="stopping")
        interval = self._watchdog_interval()
        if interval is not None:
            PeriodicCall("the watchdog's sign of life", lambda: self.notify(WATCHDOG=1), reactor).start(interval / 2)

    def _watchdog_interval(self) -> float | None:
        """Return the watchdog timeout in seconds, or ``None``."""
        microseconds = self._environment.get("WATCHDOG_USEC", "")
        if not microseconds.isdecimal() or int(microseconds) == 0:
            return None
        if self._environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return int(microseconds) / 1e6


systemd_notifier = SystemdNotifier()
"""Notifier of this process."""
