"""``fyrehose pub``: publish a message a line."""

from __future__ import annotations

import argparse
import os
import sys
from errno import EBADF, EISDIR
from stat import S_ISDIR
from typing import Any

from tqdm import tqdm
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError, MessageTooLarge
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE
from fyrehose_twisted.fyrehose.outbox import OutboxConfig
from fyrehose_twisted.fyrehose.protocol import PublisherProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.fyrehose.terminal import complain, secret_of, standard_io


class LinePublisher(Protocol):
    """Publishes each line that arrives, no faster than the publisher has room.

    :ivar done: fires when every line was published or given up.
    """

    def __init__(self, publisher: PublisherProtocol) -> None:
        self.done: Deferred[None] = Deferred()
        self.seen = 0
        self.published = 0
        self.problem: object = None
        self._publisher = publisher
        self._limit = MAX_DELIVERABLE if publisher.config.outbox.raw else MAX_ENVELOPED
        self._lines: list[bytes | MessageTooLarge] = []
        self._rest = b""
        self._cut = 0
        self._ended = False
        self._pumping = False
        self._progress = tqdm(unit=" messages", desc="published", file=sys.stderr, mininterval=0.5)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: more input."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._rest = line
            self._end_line()
        self._rest = rest
        if len(rest) > self._limit:
            # It is too long already; what matters of it is how long.
            self._cut += len(rest)
            self._rest = b""
        self._pump()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Twisted: the input has ended."""
        if not self._ended:
            self._ended = True
            if self._rest or self._cut:
                self._end_line()
            if reason is not None and reason.check(ConnectionDone) is None:
                self.problem = self.problem or "the input could not be read to its end"
            self._pump()

    def stop(self, problem: object) -> None:
        """Do no more, because of ``problem``."""
        self.problem = self.problem or problem
        self._ended = True
        self._lines.clear()
        self._progress.close()
        if not self.done.called:
            self.done.callback(None)

    def _end_line(self) -> None:
        size = self._cut + len(self._rest)
        self._lines.append(MessageTooLarge(size, self._limit) if self._cut else self._rest)
        self._rest, self._cut = b"", 0

    def _pump(self) -> None:
        if not self._pumping:
            self._pumping = True
            Deferred.fromCoroutine(self._publish_lines()).addErrback(lambda failure: self.stop(failure.value))

    async def _publish_lines(self) -> None:
        transport: Any = self.transport
        transport.pauseProducing()
        while self._lines:
            lines, self._lines = self._lines, []
            for line in lines:
                await self._publisher.when_room()
                self._publish(line)
        self._pumping = False
        if not self._ended:
            transport.resumeProducing()
        self._check_done()

    def _publish(self, line: bytes | MessageTooLarge) -> None:
        self.seen += 1
        try:
            if isinstance(line, MessageTooLarge):
                raise line
            self._publisher.publish(line).addCallbacks(self._came_back, self._failed)
        except FyrehoseError as error:
            self.problem = self.problem or f"line {self.seen:,}: {error}"

    def _came_back(self, sequence: int) -> None:
        self.published += 1
        self._progress.update()
        self._check_done()

    def _failed(self, failure: Failure) -> None:
        self.problem = self.problem or failure.value
        self._check_done()

    def _check_done(self) -> None:
        if self._ended and not self._pumping and not self._publisher.pending and not self.done.called:
            self._progress.close()
            self.done.callback(None)


async def publish(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    descriptor = _input(options.file)
    config = ClientConfig(outbox=OutboxConfig(raw=options.raw, timeout=options.timeout), secret=secret_of(options))
    publisher = await join(reactor, PublisherProtocol(config), options.backbone, timeout=options.connect_timeout)
    lines = LinePublisher(publisher)
    publisher.stopped.addErrback(lambda failure: lines.stop(failure.value))
    # What reads standard input must leave standard output alone: it would be closed at the end of the input.
    standard_io(lines, descriptor, os.open(os.devnull, os.O_WRONLY), reactor)
    try:
        await lines.done
    except CancelledError:
        lines.stop("interrupted")
    missing = lines.seen - lines.published
    await publisher.leave()
    if lines.problem is not None:
        return complain(f"{missing:,} of {lines.seen:,} messages not published: {lines.problem}")
    return 0


def _input(path: str | None) -> int:
    if path is not None and path != "-":
        descriptor = os.open(path, os.O_RDONLY)
    elif sys.stdin is None:
        raise OSError(EBADF, "it is closed", "standard input")
    else:
        descriptor = sys.stdin.fileno()
    if S_ISDIR(os.fstat(descriptor).st_mode):
        raise IsADirectoryError(EISDIR, "it is a directory", path or "standard input")
    return descriptor
