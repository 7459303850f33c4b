"""Log observer for JSON lines: ``twistd --logger=fyrehose_twisted.process.logs.json_lines SERVICE``."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from getopt import GetoptError, getopt
from typing import Any

from twisted.logger import FileLogObserver, ILogObserver, LogEvent, formatEvent
from twisted.python import logfile

MAX_TEXT = 4_096
"""Maximum characters of a value, which a peer may control."""

MAX_TRACEBACK = 16_384
"""Maximum characters of a traceback. The end, which contains the exception, is kept."""

MAX_FIELDS = 64
"""Maximum fields of one event."""

_LogFile: Any = logfile.LogFile
"""Class of Twisted, which has no annotations."""

_RESERVED_FIELDS = ("time", "level", "namespace", "message", "failure")
_LEGACY_FIELDS = frozenset((*_RESERVED_FIELDS, "system", "isError", "format", "printed", "why", "logLevel"))
"""Fields that Twisted's legacy logger adds to an event."""


def json_lines() -> ILogObserver:
    """Return a log observer for ``--logger`` that writes to the log file of ``twistd``.

    Other applications create a :class:`~twisted.logger.FileLogObserver` with a file and :func:`format_event`.

    ``twistd`` ignores ``--logfile`` if ``--logger`` is given and does not pass it on, so this function reads the
    command line. Files rotate at 1,000,000 bytes and on SIGUSR1, as those of ``twistd`` do.

    :raises SystemExit: if a daemon would log to standard output, or with ``--syslog``, which takes text.
    """
    return FileLogObserver(_log_file(sys.argv[1:]), format_event)


def format_event(event: LogEvent) -> str:
    """Return an event as a JSON object on one line of ASCII.

    It has ``time`` (ISO 8601, UTC), ``level``, ``namespace``, ``message``, the fields of the event that are strings,
    numbers, booleans or null, and ``failure`` with a traceback if there is one. A field with one of these names gets an
    underscore appended.
    """
    at, level = event.get("log_time"), event.get("log_level")
    entry: dict[str, Any] = {
        "time": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
        "level": None if level is None else level.name,
        "namespace": _text(str(event.get("log_namespace", "-"))),
        "message": _text(formatEvent(event)),
    }
    left_out = _LEGACY_FIELDS if event.get("log_namespace") == "log_legacy" else frozenset[str]()
    names = [name for name in event if not name.startswith("log_") and name not in left_out]
    for name in names:
        if isinstance(event[name], str | int | float | None) and len(entry) < len(_RESERVED_FIELDS) + MAX_FIELDS:
            entry[f"{name}_" if name in _RESERVED_FIELDS else _text(name)] = _value(event[name])
    if event.get("log_failure") is not None:
        entry["failure"] = _traceback(event["log_failure"])
    return json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n"


def _value(value: str | int | float | None) -> str | int | float | None:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool):
        return value
    # Readers hold numbers in 64 bits, and Python refuses to format very long ones.
    return int(value) if -(2**63) <= value < 2**64 else _text(hex(value))


def _text(text: str) -> str:
    """Return text that UTF-8 can encode, of limited length."""
    kept = text[:MAX_TEXT].encode("utf-8", "backslashreplace").decode()
    return kept if len(text) <= MAX_TEXT else f"{kept}... (cut; {len(text):,} characters)"


def _traceback(failure: Any) -> str:
    try:
        text = str(failure.getTraceback())
    except Exception as error:  # The line must be written in any case.
        text = f"a failure that cannot be shown: {type(error).__name__}"
    kept = text[-MAX_TRACEBACK:].encode("utf-8", "backslashreplace").decode()
    return kept if len(text) <= MAX_TRACEBACK else f"({len(text):,} characters; cut) ...{kept}"


def _log_file(arguments: Sequence[str]) -> Any:
    """Return the log file of ``twistd`` with these arguments."""
    given = _twistd_options(arguments)
    name = given.get("logfile", "")
    if "syslog" in given:
        raise SystemExit(
            "fyrehose_twisted.process.logs.json_lines: --syslog takes text; leave out --syslog, or --logger"
        )
    foreground = "nodaemon" in given or "debug" in given
    if name == "-" and not foreground:
        raise SystemExit(
            "fyrehose_twisted.process.logs.json_lines: a daemon cannot log to standard output; use --nodaemon"
        )
    if foreground and name in ("", "-"):
        return sys.stdout
    file = _LogFile.fromFullPath(name or "twistd.log")
    if not signal.getsignal(signal.SIGUSR1):

        def rotate(number: int, frame: object) -> None:
            from twisted.internet import reactor

            reactor.callFromThread(file.rotate)  # type: ignore[attr-defined]

        signal.signal(signal.SIGUSR1, rotate)
    return file


def _twistd_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options of ``twistd`` before the name of the service, by their long names."""
    from twisted.scripts import twistd

    twisted_options: Any = vars(twistd)["ServerOptions"]
    known = twisted_options()
    try:
        found, _ = getopt(list(arguments), known.shortOpt, known.longOpt)
    except GetoptError:
        return {"nodaemon": ""}  # The program is not twistd.
    return {known.synonyms[option.lstrip("-")]: value for option, value in found}
