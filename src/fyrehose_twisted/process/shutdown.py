"""Ending the process from within, so that whoever started it sees that something went wrong."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import Any

from twisted.internet.error import ReactorNotRunning

from fyrehose_twisted.process.sd_notify import systemd_notifier


def exit_with_failure(reactor: Any) -> None:
    """Stop ``reactor``, let services end as they do, and exit with status 1."""
    systemd_notifier.failed()
    # twistd has no way to be told an exit status; this runs after its clean-up, as the last thing.
    reactor.addSystemEventTrigger("after", "shutdown", atexit.register, _exit_after_shutdown)
    if reactor.running:
        with suppress(ReactorNotRunning):  # It is stopping already.
            reactor.stop()
    else:
        reactor.callWhenRunning(reactor.stop)


def _exit_after_shutdown() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
