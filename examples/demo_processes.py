"""Processes of the demo, which end together with it in any case."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
POLL_INTERVAL = 0.1
PATIENCE = 180.0
"""Timeout in seconds without progress. The machine may be slow."""
LINGERING = 10.0
"""Seconds within which killed processes must exit."""
TAIL = 15
"""Number of log lines shown for a process that died."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ProcessT = TypeVar("ProcessT", bound="Process")


class DemoError(Exception):
    """The demo cannot continue."""


class Interrupted(BaseException):
    """A signal interrupted the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class Process:
    """A process of the demo, with its output in a log.

    :param command: the program and its arguments.
    :ivar log: what it said, of all of its lives.
    """

    answers = False
    """Whether the process reads commands from a pipe."""

    def __init__(self, processes: Processes, name: str, command: list[str]) -> None:
        self.name = name
        self.log = processes.directory / f"{name}.log"
        self._processes = processes
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the process with additional arguments."""
        pipe = subprocess.PIPE if self.answers else None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
                cwd=self._processes.directory,
                # What it leaves behind goes with the directory.
                env={**os.environ, "TMPDIR": str(self._processes.directory)},
                process_group=0,
            )

    def check(self) -> None:
        """Check that the process is running, unless it was stopped. :raises DemoError: with the end of its log."""
        if self._process is not None and (status := self._process.poll()) is not None:
            self._process = None
            ended = f"signal {-status}" if status < 0 else f"status {status}"
            raise DemoError(f"{self.name} has ended with {ended}. {self.tail()}")

    def said(self, what: re.Pattern[str]) -> list[str]:
        """Return the matches of a pattern in the log."""
        found: list[str] = what.findall(self.log.read_text("utf-8", errors="replace"))
        return found

    def tail(self) -> str:
        """Return the end of the log."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-TAIL:]
        return "\n  ".join(["The end of its log:", *lines]) if lines else "Its log is empty."

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL, if it is still running."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def stop(self) -> None:
        """Stop the process cleanly."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process = process
                raise DemoError(f"{self.name} does not end when it is told to. {self.tail()}") from None


class Worker(Process):
    """A script of the demo that reads commands and answers with lines of JSON."""

    answers = True

    def __init__(self, processes: Processes, name: str, script: str, *arguments: object) -> None:
        super().__init__(processes, name, [sys.executable, str(HERE / script), *map(str, arguments)])
        self._read = b""

    def order(self, order: object) -> None:
        """Send a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # It has died, which is found out when it has to answer.
            self._process.stdin.write(f"{order}\n".encode())
            self._process.stdin.flush()

    def answer(self, patience: float = PATIENCE) -> Any:
        """Return the next answer. :raises DemoError: if the process died, or on a timeout."""
        self._processes.wait_for(self._has_line, f"an answer of {self.name}", patience)
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def ask(self, order: object, patience: float = PATIENCE) -> Any:
        """Send a command and return the answer."""
        self.order(order)
        return self.answer(patience)

    def _has_line(self) -> bool:
        if b"\n" not in self._read and self._process is not None and self._process.stdout is not None:
            output = self._process.stdout.fileno()
            if select.select([output], [], [], POLL_INTERVAL)[0]:
                self._read += os.read(output, 2**20)
        return b"\n" in self._read


class Processes:
    """All processes of the demo, in separate process groups: Ctrl-C reaches only the demo, which ends them.

    :param directory: for their logs and what they keep.
    :ivar on_wait: called now and then while something is waited for, if it is there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.on_wait: Callable[[], object] | None = None
        self._all: list[Process] = []
        self._signal: int | None = None

    def service(self, name: str, plugin: str, *options: str) -> Process:
        """Return a process of ``twistd``, not started yet."""
        twistd = str(Path(sys.executable).parent / "twistd")
        return self._add(Process(self, name, [twistd, "-n", "--pidfile=", plugin, *options]))

    def worker(self, name: str, script: str, *arguments: object) -> Worker:
        """Start a script of the demo."""
        worker = self._add(Worker(self, name, script, *arguments))
        worker.start()
        return worker

    def _add(self, process: ProcessT) -> ProcessT:
        self._all.append(process)
        return process

    def wait_for(self, there: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait until ``there`` returns a true value.

        :raises DemoError: if a process dies, or it takes too long.
        :raises Interrupted: if a signal came, then or before.
        """
        until = time.monotonic() + patience
        while self._signal is None and not there():
            for process in self._all:
                process.check()
            if time.monotonic() > until:
                raise DemoError(f"gave up waiting for {what} after {patience:g} s")
            if self.on_wait is not None:
                self.on_wait()
            time.sleep(POLL_INTERVAL / 10)
        if self._signal is not None:
            raise Interrupted(self._signal)

    def __enter__(self) -> Processes:
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, and shells in the background, ignore some.
                signal.signal(number, self._caught)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._all):
            process.kill()
        # Spark's Java has started more, in process groups of their own; the directory is about to go.
        until = time.monotonic() + LINGERING
        while (left := self._left()) and time.monotonic() < until:
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            time.sleep(POLL_INTERVAL / 10)

    def _left(self) -> list[int]:
        """Return the processes that still run in the directory, if the system lists them."""
        left, directory = [], self.directory.resolve()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # It has ended, or is none of our business.
                if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                    left.append(int(process.name))
        return left

    def _caught(self, number: int, _: object) -> None:
        # What is raised here could hide a process that is just being started, and Python drops it in a finalizer.
        self._signal = self._signal or number
