"""Process exit with a failure status."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import Any

from twisted.internet.error import ReactorNotRunning

from fyrehose_twisted.process.sd_notify import systemd_notifier


def exit_with_failure(reactor: Any) -> None:
    """Stop ``reactor``, shut the services down, and exit with status 1."""
    systemd_notifier.failed()
    # twistd accepts no exit status, so this runs after its clean-up.
    reactor.addSystemEventTrigger("after", "shutdown", atexit.register, _exit_after_shutdown)
    if reactor.running:
        with suppress(ReactorNotRunning):  # The reactor is stopping already.
            reactor.stop()
    else:
        reactor.callWhenRunning(reactor.stop)


def _exit_after_shutdown() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
