"""Log events of this library as records of the standard library's ``logging``."""

from __future__ import annotations

import logging
import sys
from functools import cache

from twisted.logger import ILogObserver, LogEvent, STDLibLogObserver, globalLogBeginner
from zope.interface import implementer

PACKAGE = "fyrehose_twisted"


@implementer(ILogObserver)
class _Observer:
    """Observer that logs under the name of the module that the event comes from."""

    def __init__(self) -> None:
        self._observers: dict[str, STDLibLogObserver] = {}

    def __call__(self, event: LogEvent) -> None:
        name = str(event.get("log_namespace", ""))
        if not name.startswith(PACKAGE):
            name = "twisted"
        if name not in self._observers:
            self._observers[name] = STDLibLogObserver(name)
        self._observers[name](event)


@cache
def use_standard_logging() -> None:
    """Send Twisted's log events to ``logging``, once, unless this process runs Twisted's reactor, which has a log."""
    if "twisted.internet.reactor" not in sys.modules:
        logging.getLogger(PACKAGE).addHandler(logging.NullHandler())
        globalLogBeginner.beginLoggingTo([_Observer()], redirectStandardIO=False, discardBuffer=True)
