"""Input of commands that publish lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.fdesc import setNonBlocking
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError, MessageTooLarge
from fyrehose_twisted.process.progress import ProgressBar

READ_BYTES = 65_536
"""Bytes read at once: all that a pipe holds by default. Twisted's standard I/O reads 8 KiB."""


class InputReader(FileDescriptor):
    """Transport that reads a file, a pipe or a terminal.

    :param protocol: receives the data. Its ``connectionLost`` is called at the end of the input.
    """

    def __init__(self, protocol: Protocol, descriptor: int, reactor: Any) -> None:
        super().__init__(reactor)
        self.connected = True
        self._protocol = protocol
        self._descriptor = descriptor
        setNonBlocking(descriptor)
        protocol.makeConnection(self)
        self.startReading()

    def fileno(self) -> int:
        """Twisted: return the descriptor."""
        return self._descriptor

    def doRead(self) -> Exception | None:
        """Twisted: the descriptor is readable, or at its end."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self._protocol.dataReceived(data)
        return None

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the input has ended."""
        super().connectionLost(reason)
        self._protocol.connectionLost(reason)


class LinePublisher(Protocol):
    """Base class of protocols that publish each input line, with backpressure.

    :param limit: maximum bytes of a line.
    :param unit: noun for a line in the progress bar.
    :param batch: maximum number of lines that are published at once.
    :ivar done: fires when every line was published or has failed.
    :ivar lines_read: number of lines read.
    :ivar published: number of lines published.
    :ivar problem: first error, or ``None``.
    """

    def __init__(self, limit: int, unit: str, batch: int = 1) -> None:
        self.done: Deferred[None] = Deferred()
        self.lines_read = 0
        self.published = 0
        self.problem: object = None
        self._limit = limit
        self._batch = batch
        self._lines: list[bytes | MessageTooLarge] = []
        self._rest = b""
        self._oversized_bytes = 0
        self._in_flight = 0
        self._ended = False
        self._stopped = False
        self._pumping = False
        self._progress = ProgressBar(
            desc=f"{unit} published",
            unit=f" {unit}",
            bar_format="{desc}: {n_fmt} [{elapsed}, {rate_noinv_fmt}]",
            file=sys.stderr,
            mininterval=0.5,
        )

    async def when_room(self) -> None:
        """Wait until another batch of lines may be published."""
        raise NotImplementedError

    def publish(self, line: bytes) -> Deferred[int]:
        """Publish a line; return a Deferred of its number."""
        raise NotImplementedError

    def publish_lines(self, lines: Sequence[bytes], first: int) -> None:
        """Publish a batch of lines, none of which is too long, and report the outcome of each.

        :param first: number of the first line.
        :raises FyrehoseError: if none of the lines is published.
        """
        for number, line in enumerate(lines, first):
            self.publish(line).addCallbacks(
                lambda sequence, line=number: self.line_published(line, sequence),
                lambda failure, line=number: self.line_failed(line, failure.value),
            )

    def acknowledged(self, line: int, sequence: int) -> None:
        """Handle the acknowledgement of a line, counted from 1."""

    def failed(self, line: int, error: BaseException | None) -> None:
        """Handle a line that was not published."""
        self.problem = self.problem or error

    def print_message(self, text: str) -> None:
        """Print a line on standard error above the progress bar. A closed pipe is no error."""
        self._progress.clear()
        with suppress(OSError):
            print(f"fyrehose: {text}", file=sys.stderr, flush=True)
        self._progress.refresh()

    def read(self, descriptor: int, reactor: Any) -> Deferred[None]:
        """Start to read a descriptor; return :attr:`done`."""
        InputReader(self, descriptor, reactor)
        return self.done

    def dataReceived(self, data: bytes) -> None:
        """Twisted: process input."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._rest = line
            self._end_line()
        self._rest = rest
        if len(rest) > self._limit:
            # The line is too long; only its length matters now.
            self._oversized_bytes += len(rest)
            self._rest = b""
        self._pump()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Twisted: the input has ended."""
        if not self._ended:
            self._ended = True
            if self._rest or self._oversized_bytes:
                self._end_line()
            if reason is not None and not isinstance(reason.value, ConnectionDone):
                self.problem = self.problem or "the input could not be read to its end"
            self._pump()

    def end(self, problem: object) -> None:
        """Stop reading because of ``problem`` and wait for lines in flight."""
        self.problem = self.problem or problem
        self._ended = self._stopped = True
        self._lines.clear()
        self._check_done()

    def stop(self, problem: object) -> None:
        """Stop at once because of ``problem``."""
        self.end(problem)
        self._finish()

    def _end_line(self) -> None:
        size = self._oversized_bytes + len(self._rest)
        self._lines.append(MessageTooLarge(size, self._limit) if size > self._limit else self._rest)
        self._rest, self._oversized_bytes = b"", 0

    def _pump(self) -> None:
        if not self._pumping:
            self._pumping = True
            Deferred.fromCoroutine(self._publish_lines()).addErrback(lambda failure: self.stop(failure.value))

    async def _publish_lines(self) -> None:
        transport: Any = self.transport
        transport.pauseProducing()
        while self._lines:
            lines, self._lines = self._lines, []
            for batch in _batches(lines, self._batch):
                await self.when_room()
                if self._stopped:
                    break
                self._publish(batch)
        self._pumping = False
        if not self._ended:
            transport.resumeProducing()
        self._check_done()

    def _publish(self, batch: MessageTooLarge | Sequence[bytes]) -> None:
        first = self.lines_read + 1
        size = 1 if isinstance(batch, MessageTooLarge) else len(batch)
        self.lines_read += size
        self._in_flight += size
        try:
            if isinstance(batch, MessageTooLarge):
                raise batch
            self.publish_lines(batch, first)
        except FyrehoseError as error:
            self._in_flight -= size
            self.problem = self.problem or f"line {first:,}: {error}"

    def line_published(self, line: int, sequence: int) -> None:
        """Record that a line was published."""
        self._in_flight -= 1
        self.published += 1
        self._progress.update()
        self.acknowledged(line, sequence)
        self._check_done()

    def line_failed(self, line: int, error: BaseException | None) -> None:
        """Record that a line was not published."""
        self._in_flight -= 1
        self.failed(line, error)
        self._check_done()

    def _check_done(self) -> None:
        if self._ended and not self._pumping and not self._in_flight:
            self._finish()

    def _finish(self) -> None:
        self._progress.close()
        if not self.done.called:
            self.done.callback(None)


def _batches(lines: Sequence[bytes | MessageTooLarge], most: int) -> Iterator[MessageTooLarge | Sequence[bytes]]:
    """Yield lines in batches of at most ``most``, and each one that is too long alone."""
    for kind, group in groupby(lines, type):
        if kind is bytes:
            run: list[Any] = list(group)
            yield from (run[start : start + most] for start in range(0, len(run), most))
        else:
            yield from group  # type: ignore[misc]  # All of one type.
