"""Normalization of everything that a process inherits from its parent."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping

KEPT = (
    "CI",
    "COVERAGE_",  # for runs that measure coverage in subprocesses
    "HOME",
    "JAVA_HOME",
    "LD_LIBRARY_PATH",  # for interpreters built with --enable-shared
    "PATH",
    "PYTHONPATH",
    "PIP_",
    "PYTEST_",
    "SOAK_SECONDS",
    "SSL_CERT_",
    "TMPDIR",
    "USER",
)
"""Environment variables that are kept; a name with a trailing underscore is a prefix."""

FIXED = {"LANG": "C.UTF-8", "TZ": "UTC"}
OPEN_FILES = 4_096
"""Soft limit of open files, whose default is between 256 and a billion depending on the system."""


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a test run: required variables only, none that could change a result."""
    kept = {name: value for name, value in inherited.items() if _is_kept(name)}
    return kept | FIXED


def _is_kept(name: str) -> bool:
    return any(name == kept or (kept.endswith("_") and name.startswith(kept)) for kept in KEPT)


def normalize() -> None:
    """Reset signals, standard streams, umask, resource limits and environment of this process.

    Children inherit all of it. `nohup` ignores SIGHUP, a shell ignores SIGINT in background jobs, a supervisor may
    close standard input or block signals, and a desktop sets a proxy: no test may depend on it.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # Python's default where no signal was ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(lowest, True)
    os.close(lowest)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    os.umask(0o022)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    kept = environment(os.environ)
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    os.environ.update(kept)
