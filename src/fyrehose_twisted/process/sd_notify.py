"""Telling a supervisor how a service fares, in the way of systemd's ``Type=notify``.

A service calls ``systemd_notifier.ready(reactor)`` when it does what it is for: its state is opened, and its ports are
bound. All else follows: that it reads its limits anew, that it stops, and that it still turns, if a watchdog is set.
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
"""Seconds to wait for a supervisor that takes nothing."""


class SystemdNotifier:
    """Whoever started this process, if it wants to be told.

    :param environment: where ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC`` are, if at all.
    """

    log = Logger()

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._ready = False
        self._failed = False

    def ready(self, reactor: Any, status: str = "") -> None:
        """The service runs. The first of several in one process speaks for all.

        :param status: one line for ``systemctl status``.
        """
        if self._environment.get("NOTIFY_SOCKET"):
            # Before the reactor runs, the signal to stop would just kill the process.
            reactor.callWhenRunning(self._notify_ready, reactor, status)

    def failed(self) -> None:
        """The process ends, because something went wrong: if it is not ready yet, it never will be."""
        self._failed = True
        self.notify(STATUS="failed; the log says why")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Inside, limits are read anew."""
        if not self._ready:
            yield
            return
        self.notify(RELOADING=1, MONOTONIC_USEC=monotonic_ns() // 1_000)
        try:
            yield
        finally:
            self.notify(READY=1)

    def notify(self, **said: object) -> None:
        """Send what sd_notify(3) lists. Without a supervisor nothing happens; one that is gone is logged."""
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
            self.log.warn("the supervisor was not told {lines}: {error}", lines=lines, error=error)

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
        """Return after how many seconds of silence this process is killed."""
        microseconds = self._environment.get("WATCHDOG_USEC", "")
        if not microseconds.isdecimal() or int(microseconds) == 0:
            return None
        if self._environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        return int(microseconds) / 1e6


systemd_notifier = SystemdNotifier()
"""That of this process."""
