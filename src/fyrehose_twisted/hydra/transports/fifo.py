"""Streams of lines between two processes of one machine, over two named pipes.

Each link has its own directory. Side 0 writes to ``0to1`` and side 1 to ``1to0``; a lock on ``side0`` or ``side1``
assigns the sides. A pipe and its unread data outlive the processes at its ends. Each opening therefore has a random
session id, which it announces in a session line,

    NUL ``FIFO`` session-of-the-writer session-of-the-reader-or-hyphen

and repeats, once it was read, until the other side has answered with both ids. Data before it is discarded; data after
it belongs to these two sessions. A session line with another id of the writer, or with ``-`` instead, ends the stream.
NUL occurs in no other line, so a session line is found even after a truncated one.

A line must fit an atomic write to the pipe, 4,096 bytes on Linux. An empty line is a keepalive.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from select import PIPE_BUF
from typing import Any

from twisted.internet import error
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IProtocol,
    IProtocolFactory,
    IReadWriteDescriptor,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.hydra.transports.fifo_pair import READ_SIZE, FifoPair
from fyrehose_twisted.hydra.transports.transport import ProducerTransport

CALL_INTERVAL = 0.5
"""Seconds between session lines while the stream opens."""
CHECK_INTERVAL = 1.0
"""Longest interval, in seconds, between checks that the pipes still exist."""
LINGER = 1.0
"""Seconds without progress after which unread data of a closed stream is given up."""


@implementer(IAddress)
@dataclass(frozen=True)
class FifoAddress:
    """Address of one side of a directory with pipes."""

    directory: str
    side: int

    @property
    def host(self) -> str:
        """Host part, for logs and limits."""
        return self.directory

    @property
    def port(self) -> int:
        """Port part, for logs."""
        return self.side


@implementer(ITransport, IConsumer)
class FifoTransport(ProducerTransport):
    """Transport of one stream, from its first session line to its end.

    :param on_opened: called once both sides know each other's session.
    :param on_failed: called if the stream cannot be opened.
    :ivar session: session id of this side.
    """

    log = Logger()

    def __init__(self, reactor: Any, pair: FifoPair, max_ping: float, on_opened: Any, on_failed: Any) -> None:
        super().__init__()
        self.session = secrets.token_hex(8).encode()
        self.peer: bytes | None = None
        """Session id of the other side, once known."""
        self.protocol: Any = None
        self._finished = False
        self._reactor = reactor
        self._pair = pair
        self._max_ping = max_ping
        self._on_opened = on_opened
        self._on_failed = on_failed
        self._control = bytearray()
        """Pending session line, written before any data."""
        self._waiting = bytearray()
        self._rest = b""
        self._closing_since: float | None = None
        self._last_received_at = self._last_sent_at = self._last_call_at = float(reactor.seconds())
        self._reader = FifoDescriptor(pair.incoming, self._read)
        self._writer = FifoDescriptor(pair.outgoing, self._write)
        self._writing = False
        self._timer: Any = None
        reactor.addReader(self._reader)
        self._send_session_line(b"-")
        self._schedule_tick()

    # Interface of the transport

    def write(self, data: bytes) -> None:
        """Twisted: send lines; a partial line is buffered until it is complete."""
        if not self.connected or self.disconnecting or not data:
            return
        self._waiting += data
        self._start_writing()
        self._update_producer()

    def abortConnection(self) -> None:
        """Twisted: abort the stream."""
        if self.connected:
            self.disconnecting = True
            self._waiting.clear()
            self._reactor.callLater(0, self.end, error.ConnectionAborted())

    def getPeer(self) -> FifoAddress:
        """Twisted: return the address of the peer."""
        return FifoAddress(self._pair.directory, 1 - self._pair.side)

    def getHost(self) -> FifoAddress:
        """Twisted: return the local address."""
        return FifoAddress(self._pair.directory, self._pair.side)

    def end(self, problem: Exception) -> None:
        """End the stream."""
        if self._finished:
            return
        self._finished = True
        # Tell the other side if the pipe has space; otherwise it notices the silence.
        if self.peer is not None:
            with suppress(OSError):
                os.write(self._pair.outgoing, self._control + _session_line(b"-", self.peer))
        self._reactor.removeReader(self._reader)
        self._reactor.removeWriter(self._writer)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._pair.close()
        if not self.connected:
            self._on_failed(problem)
            return
        self._stop_producer()
        self.protocol.connectionLost(Failure(problem))

    # Receiving

    def _read(self) -> None:
        try:
            data = os.read(self._pair.incoming, READ_SIZE)
        except BlockingIOError:
            return
        except OSError as problem:
            self.end(error.ConnectionLost(problem.strerror))
            return
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if b"\0" not in data:
            self._deliver(data[:end])
        else:
            self._split_session_lines(data[:end])
        if len(self._rest) > READ_SIZE:
            self.end(error.ConnectionLost("received an overlong line"))

    def _split_session_lines(self, data: bytes) -> None:
        start = 0
        while not self._finished and (found := data.find(b"\0", start)) >= 0:
            end = data.find(b"\n", found) + 1
            if not end:  # The session line is incomplete: it stays in the buffer.
                break
            whole = data.rfind(b"\n", start, found) + 1
            self._deliver(data[start : max(whole, start)])
            words = data[found + 1 : end].split()
            if len(words) == 3 and words[0] == b"FIFO":
                self._session_line_received(words[1], words[2])
            start = end
        if not self._finished:
            self._deliver(data[start:])

    def _session_line_received(self, theirs: bytes, ours: bytes) -> None:
        """Handle the session line of the other side."""
        if self._finished or theirs == self.session:
            return
        if self.connected:
            if theirs == b"-":
                if ours == self.session:
                    self.end(error.ConnectionDone())
            elif theirs != self.peer:
                self.end(error.ConnectionLost("the other side reopened the pipes"))
            return
        if theirs == b"-":
            return
        self.peer = theirs
        # Written before any data, as the other side assigns what follows to this session.
        self._send_session_line(theirs)
        if ours == self.session:
            self.connected = True
            self._last_received_at = float(self._reactor.seconds())
            self._on_opened()

    def _deliver(self, data: bytes) -> None:
        if not data or not self.connected or self._finished:
            return
        self._last_received_at = float(self._reactor.seconds())
        try:
            self.protocol.dataReceived(data)
        except Exception:
            self.log.failure("the protocol of a link over named pipes failed")
            self.end(error.ConnectionAborted())

    # Sending

    def _send_session_line(self, theirs: bytes) -> None:
        self._last_call_at = float(self._reactor.seconds())
        self._control[:] = _session_line(self.session, theirs)  # Replaces an unwritten session line.
        self._write()

    def _start_writing(self) -> None:
        if not self._writing and not self._finished:
            self._writing = True
            self._reactor.addWriter(self._writer)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self._writer)

    def _write(self) -> None:
        """Write whole lines in chunks that fit an atomic write."""
        waiting = self._waiting
        try:
            if self._control:
                os.write(self._pair.outgoing, self._control)
                self._control.clear()
                self._last_sent_at = float(self._reactor.seconds())
            while waiting:
                end = waiting.rfind(b"\n", 0, PIPE_BUF) + 1
                if not end:
                    if len(waiting) >= PIPE_BUF:
                        self._reactor.callLater(0, self.end, error.ConnectionLost("a line is too long for a pipe"))
                        waiting.clear()
                    break
                os.write(self._pair.outgoing, waiting[:end])
                del waiting[:end]
                self._last_sent_at = float(self._reactor.seconds())
        except BlockingIOError:
            self._start_writing()
            self._update_producer()
            return
        except OSError as problem:
            self._reactor.callLater(0, self.end, error.ConnectionLost(problem.strerror))
        self._stop_writing()
        self._update_producer()
        if self._closing_since is not None:
            self.end(error.ConnectionDone())

    def _close(self) -> None:
        self._closing_since = float(self._reactor.seconds())
        self._start_writing()

    def _unsent(self) -> int:
        return len(self._waiting)

    # Timers

    def _schedule_tick(self) -> None:
        every = min(CHECK_INTERVAL, self._max_ping / 4)
        self._timer = self._reactor.callLater(every if self.connected else min(every, CALL_INTERVAL), self._tick)

    def _tick(self) -> None:
        now = float(self._reactor.seconds())
        missing = self._pair.find_replaced()
        if missing is not None:
            self.end(error.ConnectionLost(f"{missing} was removed or replaced"))
        elif self.connected and now >= self._last_received_at + self._max_ping:
            self.end(error.TimeoutError())
        elif self._closing_since is not None and now >= max(self._closing_since, self._last_sent_at) + LINGER:
            self.end(error.ConnectionDone())
        else:
            if not self.connected and now >= self._last_call_at + CALL_INTERVAL and not self._pair.unread_bytes():
                self._send_session_line(self.peer or b"-")
            elif self.connected and not self._control and now >= self._last_sent_at + self._max_ping / 4:
                self._control += b"\r\n"
                self._write()
            if not self._finished:
                self._schedule_tick()


@implementer(IReadWriteDescriptor)
class FifoDescriptor:
    """Reactor descriptor of one pipe."""

    def __init__(self, number: int, ready: Any) -> None:
        self._number = number
        self._ready = ready

    def fileno(self) -> int:
        """Twisted: return the file descriptor."""
        return self._number

    def logPrefix(self) -> str:
        """Twisted: return the log prefix."""
        return "named pipe"

    def doRead(self) -> None:
        """Twisted: read from the pipe."""
        self._ready()

    def doWrite(self) -> None:
        """Twisted: write to the pipe."""
        self._ready()

    def connectionLost(self, reason: Any) -> None:
        """Twisted: handle the stop of the reactor."""


@implementer(IStreamClientEndpoint)
class FifoEndpoint:
    """Endpoint of one side of a directory with two pipes; both sides dial.

    :param directory: directory, created with its pipes if missing; its parent must exist.
    :param side: 0 or 1; by default the first free side.
    :param max_ping: seconds of silence after which the stream ends.
    """

    def __init__(self, reactor: Any, directory: str, side: int | None = None, max_ping: float = 10.0) -> None:
        if side not in (None, 0, 1):
            raise ConfigurationError(f"side {side} of a named pipe is not 0 or 1")
        self._reactor = reactor
        self._directory = directory
        self._side = side
        self._max_ping = max_ping

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Twisted: open the stream. This waits for the other side without a limit."""

        def give_up(dial: Deferred[IProtocol]) -> None:
            transport.end(error.ConnectingCancelledError(transport.getPeer()))

        def opened() -> None:
            try:
                protocol = factory.buildProtocol(transport.getPeer())
            except Exception:
                protocol = None
                transport.log.failure("the protocol of a link over named pipes could not be created")
            if protocol is None:
                transport.connected = False
                transport.end(error.ConnectionAborted())
                return
            transport.protocol = protocol
            protocol.makeConnection(transport)
            dial.callback(protocol)

        dial: Deferred[IProtocol] = Deferred(give_up)
        try:
            pipes = FifoPair(self._directory, self._side)
        except FyrehoseError:
            return fail(Failure())
        transport = FifoTransport(self._reactor, pipes, self._max_ping, opened, dial.errback)
        return dial


def _session_line(ours: bytes, theirs: bytes) -> bytes:
    return b"\0FIFO %b %b\r\n" % (ours, theirs)
