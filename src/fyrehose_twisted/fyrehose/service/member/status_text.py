"""Status of a member in one line, for ``systemctl status``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fyrehose_twisted.fyrehose.node.member.status import MemberStatus
from fyrehose_twisted.process.repeating import PeriodicCall
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.wording import pluralize

UPDATE_INTERVAL = 10.0
"""Seconds between two updates of the number of clients."""


def format_status_text(status: MemberStatus, clients: int) -> str:
    """Return the status of a member in a few words."""
    if status.leads:
        return f"leads term {status.term:,}, {pluralize(clients, 'client')}"
    does = "votes" if status.witness else "stands by"
    return f"{does}; no member leads" if status.leader is None else f"{does} for {status.leader}"


class StatusNotifier:
    """Notifier of the service manager about the status of a member.

    :param describe: returns the status in one line, ``None`` while the member does not run.
    """

    def __init__(
        self,
        describe: Callable[[], str | None],
        reactor: Any,
        notify: Callable[..., object] = systemd_notifier.notify,
    ) -> None:
        self._describe = describe
        self._notify = notify
        self._told: str | None = None
        self._updates = PeriodicCall("the status notification", self.update, reactor)

    def start(self) -> None:
        """Start to notify of changes; the service itself reports its start."""
        self._updates.start(UPDATE_INTERVAL, now=False)

    def stop(self) -> None:
        """Stop, so that the service manager keeps the status of a service that stops."""
        self._updates.stop()

    def update(self) -> None:
        """Notify if the status has changed."""
        text = self._describe() if self._updates.running else None
        if text is not None and text != self._told:
            self._told = text
            self._notify(STATUS=text)
