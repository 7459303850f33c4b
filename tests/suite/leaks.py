"""A pytest plugin that fails a test which leaves descriptors, threads, processes, progress bars or unhandled
failures behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import pytest_twisted
from suite.processes import environment
from tqdm import tqdm
from twisted.internet.defer import DebugInfo
from twisted.internet.task import deferLater
from twisted.logger import LogEvent, globalLogPublisher

PATIENCE = 20.0
"""Seconds for the end of resources whose test has ended: threads, orphaned processes, closed sockets."""

SESSION = "FYREHOSE_TEST_SESSION"
"""Environment variable that marks the processes of this session, including orphans."""

SPARK = "spark"
"""Fixture whose connections and threads py4j creates on demand and keeps for the next test."""

S3 = "s3"
"""Fixture of a storage server: the first client in a process opens descriptors that pyarrow keeps."""

LASTING = ("PoolThread-twisted.internet.reactor-", "tqdm_monitor")
"""Name prefixes of threads that a library keeps for the life of the process."""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1)

Left = tuple[str, ...]
"""A resource: kind and identity."""


def descriptors() -> set[Left]:
    """Return the open descriptors of this process, each with its target."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # The descriptor of the listing itself is closed again.
            found.add(("descriptor", number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def threads() -> set[Left]:
    """Return the threads of this process, without those kept by libraries."""
    found = (one for one in threading.enumerate() if not one.name.startswith(LASTING))
    return {("thread", str(one.ident), one.name) for one in found}


def children() -> set[Left]:
    """Return the children of this process, including zombies."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):
            found |= {("process", pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return found


def orphans(session: str) -> set[Left]:
    """Return the processes started by the tests of a session, directly or indirectly."""
    found, mark = set(), f"{SESSION}={session}".encode()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if mark in environment(pid):
                found.add(("process", pid))
    return found - {("process", str(os.getpid()))}


def descends(process: Left, ancestors: set[Left]) -> bool:
    """Return whether a process descends from one of ``ancestors``."""
    _, pid = process
    while pid != "0":
        # The program name is in parentheses and may contain any character.
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if not fields:
            return False
        if ("process", pid := fields[1]) in ancestors:
            return True
    return False


def described(left: set[Left]) -> str:
    """Return a line for each leaked resource."""
    lines = []
    for kind, *rest in sorted(left):
        lines.append(f"\n  {kind} {': '.join(rest)}")
        if kind == "process":
            variables, words = (_read(f"/proc/{rest[0]}/{name}") for name in ("environ", "cmdline"))
            test = re.search(r"(?:^|\0)PYTEST_CURRENT_TEST=([^\0]*) \(", variables)
            lines.append(f" of {test[1] if test else 'no test'}: {words or 'it has ended, and nobody waited for it'}")
    return "".join(lines)


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace").replace("\0", " " if path.endswith("cmdline") else "\0").strip()
    return ""


def signals() -> set[Left]:
    """Return the signal handlers and the wakeup descriptor of the reactor."""
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return {("signal", str(int(one)), repr(signal.getsignal(one))) for one in SIGNALS} | {
        ("signal", "wakeup", str(wakeup))
    }


def resources() -> set[Left]:
    """Return all resources that a test could leak."""
    return descriptors() | threads() | children() | signals()


def turn() -> None:
    """Run one turn of the reactor."""
    from twisted.internet import reactor

    clock: Any = reactor
    pytest_twisted.blockon(deferLater(clock, 0.01))


def after_a_while(look: Callable[[], set[Left]]) -> set[Left]:
    """Return resources that outlast the grace time, and objects that were never closed."""
    left = look()
    unclosed = collected() if left else set()
    until = monotonic() + PATIENCE
    while left and monotonic() < until:
        turn()  # Closed connections end in the reactor.
        left = look()
    return left | unclosed


def collected() -> set[Left]:
    """Collect garbage; return the ResourceWarning of each object that was never closed."""
    told: list[str] = []
    former, sys.unraisablehook = sys.unraisablehook, lambda error: told.append(str(error.exc_value))
    try:
        gc.collect()
    finally:
        sys.unraisablehook = former
    return {("garbage", one) for one in told}


def closed_bars() -> set[Left]:
    """Close open progress bars and return their descriptions. An open bar would shift the next one down."""
    found = list(tqdm._instances)
    for bar in found:
        bar.close()
    return {("open progress bar", str(bar.desc)) for bar in found}


class Leaks:
    """Known resources, and the checks after each test, after each module and at the end."""

    def __init__(self) -> None:
        self.session = f"{os.getpid()}.{monotonic()}"
        os.environ[SESSION] = self.session
        self._opened: dict[pytest.FixtureDef[Any], set[Left]] = {}
        self._kept: set[Left] = set()
        self._before: set[Left] = set()
        self._by_fixtures: list[str] = []
        self._unhandled: set[Left] = set()

    def _hear(self, event: LogEvent) -> None:
        """Record a failure of a garbage-collected Deferred."""
        if event.get("log_namespace") == DebugInfo.__module__ and "log_failure" in event:
            self._unhandled.add(("unhandled", "error in a Deferred", event["log_failure"].getErrorMessage()))

    def pytest_runtestloop(self) -> None:
        """Create resources that libraries keep per process: pipes and a reserved descriptor of the reactor, and the
        resource tracker process of multiprocessing.
        """
        from twisted.internet import tcp

        turn()
        tcp._reservedFD.reserve()
        resource_tracker.ensure_running()
        # The reactor took the signals: it would stop, and all later tests would fail.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._kept |= children() | signals()
        globalLogPublisher.addObserver(self._hear)
        gc.freeze()  # Speeds up the collection of a test's garbage.

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Let fixtures of a module or of the session keep resources beyond one test."""
        before = resources() if fixturedef.scope != "function" else None
        try:
            return (yield)
        finally:
            if before is not None:
                self._opened[fixturedef] = resources() - before
                self._kept |= self._opened[fixturedef]

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Check that a fixture of a module or of the session closed its resources."""
        opened = self._opened.pop(fixturedef, set())
        if left := after_a_while(lambda: resources() & opened):
            self._by_fixtures.append(f"the fixture {fixturedef.argname} leaves behind:{described(left)}")
        self._kept -= opened - left

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Record the resources before a test."""
        self._before = resources()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Fail the test if it leaves resources behind after the teardown of its fixtures."""
        yield
        if {SPARK, S3}.intersection(getattr(item, "fixturenames", ())):
            self._kept |= {one for one in resources() - self._before if one[0] in ("descriptor", "thread")}
        problems = []
        bars = closed_bars()  # Resources in garbage would be closed unnoticed at its collection.
        garbage = bars | collected() | self._unhandled
        self._unhandled.clear()
        if left := garbage | after_a_while(lambda: resources() - self._before - self._kept):
            self._kept |= left  # Report a leak for one test only.
            problems.append(f"the test leaves behind:{described(left)}")
        if nextitem is None or nextitem.path != item.path:
            found = after_a_while(self._orphans)
            self._kept |= found
            problems += [f"a test of this module leaves behind:{described(found)}"] if found else []
            gc.freeze()  # Resources that remain are not checked again.
        problems += self._by_fixtures
        self._by_fixtures = []
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)

    def _orphans(self) -> set[Left]:
        found = orphans(self.session) - self._kept
        return {one for one in found if not descends(one, self._kept)}


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    if os.path.isdir("/proc/self/fd"):
        config.pluginmanager.register(Leaks(), "leaks")
