"""Standard input, output and errors of commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from errno import EBADF, EISDIR
from stat import S_ISDIR, S_ISFIFO, S_ISSOCK
from typing import Any

from twisted.internet import stdio
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.process.secret import read_secret

MAX_UNWRITTEN = 65_536
"""Unwritten bytes above which a producer is paused."""


def print_error(problem: object) -> int:
    """Print an error in one line on standard error; return the exit status 1."""
    print(f"fyrehose: {problem}", file=sys.stderr)
    return 1


def print_hint(text: str) -> None:
    """Print a hint in one line on standard error if that is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"fyrehose: {text}", file=sys.stderr)


def print_output(text: str) -> None:
    """Print on standard output. A closed pipe is no error."""
    with suppress(BrokenPipeError):
        print(text, flush=True)


def sanitize(text: str) -> str:
    """Replace unprintable characters, so that foreign text is safe on a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterable[str]:
    """Yield the lines of a table with aligned columns."""
    lines = [head, *(list(map(str, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def secret_from_options(options: argparse.Namespace) -> bytes | None:
    """Return the secret of ``--secret-file``, if given. :raises ConfigurationError: if the file has no valid secret."""
    return read_secret(options.secret_file) if options.secret_file else None


def standard_io(protocol: Protocol, read: int, write: int, reactor: Any) -> Any:
    """Connect ``protocol`` to two file descriptors; return its transport."""
    make: Any = stdio.StandardIO  # Its type depends on the platform.
    return make(protocol, stdin=read, stdout=write, reactor=reactor)


def open_input(path: str | None) -> int:
    """Open a file, or standard input for ``None`` or ``-``; return the descriptor.

    :raises OSError: if the input cannot be read.
    """
    if path is not None and path != "-":
        descriptor = os.open(path, os.O_RDONLY)
    elif sys.stdin is None:
        raise OSError(EBADF, "it is closed", "standard input")
    else:
        descriptor = sys.stdin.fileno()
    if S_ISDIR(os.fstat(descriptor).st_mode):
        raise IsADirectoryError(EISDIR, "it is a directory", path or "standard input")
    return descriptor


@implementer(IHalfCloseableProtocol)
class StandardOutput(Protocol):
    """Standard output as a consumer.

    :ivar closed: fires when the output is closed: with ``None`` for a closed pipe, otherwise with an error.
    """

    def __init__(self) -> None:
        self.closed: Deferred[str | None] = Deferred()
        self._output: Any = None
        self._problem: str | None = None
        self._drain_producer: _DrainProducer | None = None

    def open(self, reactor: Any) -> None:
        """Open standard output. :raises OSError: if it is closed."""
        if sys.stdout is None:
            raise OSError(EBADF, "it is closed", "standard output")
        mode = os.fstat(sys.stdout.fileno()).st_mode
        # A closed pipe is a normal end; a file that accepts no more data is an error.
        if not (S_ISFIFO(mode) or S_ISSOCK(mode)):
            self._problem = "standard output takes no more; is the disk full?"
        # A background command must not touch the input of the terminal.
        self._output = standard_io(self, os.open(os.devnull, os.O_RDONLY), sys.stdout.fileno(), reactor)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes written since the output was last drained; 0 without ``on_drained``."""
        return 0 if self._drain_producer is None else self._drain_producer.unwritten_bytes

    def write(self, data: bytes) -> None:
        """Write data. A registered producer is paused if too much is unwritten."""
        self._output.write(data)
        if self._drain_producer is not None and data:
            self._drain_producer.wrote(len(data))

    def register(self, producer: Any, on_drained: Callable[[], object] | None = None) -> None:
        """Pause ``producer`` while too much data is unwritten.

        :param on_drained: called whenever all data has been written.
        """
        if on_drained is None:
            self._output.registerProducer(producer, True)
        else:
            self._drain_producer = _DrainProducer(producer, on_drained)
            self._output.registerProducer(self._drain_producer, False)

    async def wait_drained(self, reactor: Any, timeout: float | None) -> None:
        """Wait at most ``timeout`` seconds until all data is written or the output is closed."""
        if self.unwritten_bytes and self._drain_producer is not None and not self.closed.called:
            done = self._drain_producer.when_drained()
            self.when_closed(lambda problem: None if done.called else done.callback(None))
            if timeout is not None:
                done.addTimeout(timeout, reactor)
            with suppress(DeferredTimeout, CancelledError):
                await done

    def when_closed(self, call: Callable[[str | None], object]) -> None:
        """Call ``call`` with the error, or ``None``, when the output is closed."""

        def tell(problem: str | None) -> str | None:
            call(problem)
            return problem

        self.closed.addCallback(tell)

    def end(self) -> None:
        """Close the output after pending writes."""
        if not self.closed.called:
            self._output.unregisterProducer()
            self._output.loseConnection()

    async def wait_closed(self, reactor: Any, timeout: float | None) -> None:
        """Wait at most ``timeout`` seconds until the output is closed."""
        if not self.closed.called:
            gone: Deferred[None] = Deferred()

            def tell(problem: str | None) -> None:
                if not gone.called:
                    gone.callback(None)

            self.when_closed(tell)
            if timeout is not None:
                gone.addTimeout(timeout, reactor)
            with suppress(DeferredTimeout, CancelledError):
                await gone

    def readConnectionLost(self) -> None:
        """Twisted: ignore the end of the input."""

    def writeConnectionLost(self) -> None:
        """Twisted: handle a closed output."""
        self.connectionLost()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Twisted: handle a closed output."""
        if not self.closed.called:
            self.closed.callback(self._problem)


class _DrainProducer:
    """Pull producer that reports when the output is drained and pauses a push producer."""

    def __init__(self, producer: Any, on_drained: Callable[[], object]) -> None:
        self.unwritten_bytes = 0
        self._producer = producer
        self._on_drained = on_drained
        self._paused = False
        self._done: list[Deferred[None]] = []

    def wrote(self, size: int) -> None:
        """Count written bytes."""
        self.unwritten_bytes += size
        if self.unwritten_bytes > MAX_UNWRITTEN and not self._paused:
            self._paused = True
            self._producer.pauseProducing()

    def when_drained(self) -> Deferred[None]:
        """Return a Deferred that fires when all data is written."""
        self._done.append(Deferred())
        return self._done[-1]

    def resumeProducing(self) -> None:
        """Twisted: handle a drained output."""
        self.unwritten_bytes = 0
        self._on_drained()
        done, self._done = self._done, []
        for one in done:
            if not one.called:
                one.callback(None)
        if self._paused:
            self._paused = False
            self._producer.resumeProducing()

    def stopProducing(self) -> None:
        """Twisted: stop the producer."""
        self._producer.stopProducing()
