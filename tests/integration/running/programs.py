"""Programs under test as processes, and waits for what they bring about."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

import pytest

DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""


BIN = Path(sys.executable).parent


class Program:
    """A process under test. Its output is read as it arrives, so that a test can wait for a line."""

    def __init__(self, *command: str, **options: Any) -> None:
        self._changed = threading.Condition()
        self.outputs = {1: b"", 2: b""}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.process = subprocess.Popen(command, **options)
        streams = {1: self.process.stdout, 2: self.process.stderr}
        self._open = len(streams)
        self._threads = [threading.Thread(target=self._read, args=item, daemon=True) for item in streams.items()]
        for thread in self._threads:
            thread.start()

    def _read(self, number: int, stream: IO[bytes] | None) -> None:
        while stream is not None and (data := stream.read1(65_536)):  # type: ignore[attr-defined]
            with self._changed:
                self.outputs[number] += data
                self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    @property
    def out(self) -> str:
        return self.outputs[1].decode(errors="replace")

    @property
    def err(self) -> str:
        return self.outputs[2].decode(errors="replace")

    def __repr__(self) -> str:
        return f"{self.process.args!r}\nstatus {self.process.poll()}\n{self.out[-8_000:]}\n{self.err[-8_000:]}"

    def wait_for(self, pattern: str, *, times: int = 1) -> re.Match[str]:
        """Return the last match of ``pattern`` in standard output once there are ``times``."""

        def matches() -> list[re.Match[str]]:
            return list(re.finditer(pattern, self.out))

        with self._changed:
            found = self._changed.wait_for(lambda: len(matches()) >= times or not self._open, DEADLINE)
            assert found, f"no {pattern!r} ({times} times): {self}"
            assert len(matches()) >= times, f"ended without {pattern!r} ({times} times): {self}"
            return matches()[times - 1]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that the process brings about, by polling."""
        wait_until(condition, lambda: repr(self))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def signal(self, number: int) -> Program:
        self.process.send_signal(number)
        return self

    def finish(self, data: bytes = b"") -> int:
        """Close its input, wait for it and return its exit status."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(data)
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            status = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"did not end: {self}")
        for thread in self._threads:
            thread.join(DEADLINE)
        return status

    def destroy(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(DEADLINE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


Start = Callable[..., Program]


def wait_until(condition: Callable[[], bool], why: Callable[[], object]) -> None:
    """Wait for a condition of another process, by polling."""
    end, never = monotonic() + DEADLINE, threading.Event()
    while not condition():
        assert monotonic() < end, why()
        never.wait(0.02)


AwaitTrue = Callable[..., None]
InTime = Callable[[Any], Any]
