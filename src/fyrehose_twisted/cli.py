"""The ``fyrehose`` command: publish, subscribe and measure from a shell."""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from errno import EBADF, EISDIR
from stat import S_ISDIR, S_ISFIFO, S_ISSOCK
from typing import Any

from tqdm import tqdm
from twisted.internet import stdio
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import react
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import FyrehoseError, MessageTooLarge
from fyrehose_twisted.fyrehose.client_tap import parse_start
from fyrehose_twisted.fyrehose.config import ClientConfig, Start
from fyrehose_twisted.fyrehose.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE
from fyrehose_twisted.fyrehose.options import read_secret
from fyrehose_twisted.fyrehose.outbox import OutboxConfig
from fyrehose_twisted.fyrehose.protocol import ClientProtocol, PublisherProtocol, SubscriberProtocol
from fyrehose_twisted.fyrehose.service import DEFAULT_BACKBONE, join


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 for success, 1 for failure, 2 for wrong usage."""
    if sys.stderr is None:  # Closed by whoever started us; print() would take standard output instead.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    options = _parser().parse_args(arguments)
    tqdm.monitor_interval = 0  # Its thread would outlive the reactor.
    outcome = 1

    def run(reactor: Any) -> Deferred[Any]:
        running: Deferred[Any] = Deferred.fromCoroutine(_run(options, reactor))

        def finish(status: int) -> None:
            nonlocal outcome
            outcome = status

        running.addCallback(finish)
        # On SIGINT the reactor stops; the command gets the chance to leave in order.
        reactor.addSystemEventTrigger("before", "shutdown", _cancel, running)
        return running

    try:
        react(run)
    except SystemExit:
        # Whatever was printed by then may still wait in a pipe that nobody reads any more.
        sys.exit(_flush(outcome))
    except KeyboardInterrupt:  # Before the reactor ran.
        sys.exit(_complain("interrupted"))


def _cancel(running: Deferred[Any]) -> Deferred[None]:
    done: Deferred[None] = Deferred()
    running.addBoth(lambda result: done.callback(None))
    running.cancel()
    return done


def _flush(status: int) -> int:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return _complain(f"standard output: {error.strerror}")
    return status


def _complain(problem: object) -> int:
    print(f"fyrehose: {problem}", file=sys.stderr)
    return 1


async def _run(options: argparse.Namespace, reactor: Any) -> int:
    command: Callable[[argparse.Namespace, Any], Coroutine[Any, Any, int]] = options.command
    try:
        return await command(options, reactor)
    except FyrehoseError as error:
        return _complain(error)
    except OSError as error:
        return _complain(f"{error.filename or 'input or output'}: {error.strerror}")
    except CancelledError:
        return _complain("interrupted")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fyrehose", description="Publish to a fyrehose backbone and subscribe to it.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., Any], description: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=description, description=description)
        made.add_argument(
            "-b", "--backbone", default=DEFAULT_BACKBONE, metavar="HOST:PORT", help="the backbone [%(default)s]"
        )
        made.add_argument("--secret-file", metavar="FILE", help="file with the backbone's secret")
        made.add_argument(
            "--connect-timeout", type=_positive, default=10.0, metavar="S", help="wait S seconds for it [%(default)g]"
        )
        made.set_defaults(command=run)
        return made

    publish = command("pub", _publish, "Publish a message a line.")
    publish.add_argument("file", nargs="?", metavar="FILE", help="where to read; standard input if not given or -")
    publish.add_argument("--raw", action="store_true", help="no envelope: for subscribers that do not know it")
    publish.add_argument(
        "--timeout", type=_positive, default=30.0, metavar="S", help="give a message up after S seconds [%(default)g]"
    )
    subscribe = command("sub", _subscribe, "Print messages in order, gaps repaired.")
    subscribe.add_argument(
        "--from",
        dest="start",
        type=_start,
        default=Start.LIVE,
        metavar="WHERE",
        help="live, oldest or a sequence number [live]",
    )
    subscribe.add_argument("--count", type=_count, metavar="N", help="stop after N messages")
    subscribe.add_argument("--format", choices=("lines", "json"), default="lines", help="what to print [%(default)s]")
    subscribe.add_argument(
        "--raw", action="store_true", help="print messages as they are on the wire, repeats included"
    )
    ping = command("ping", _ping, "Measure round trips to the backbone with KEEPALIVEs.")
    ping.add_argument("--count", type=_count, default=10, metavar="N", help="how many [%(default)s]")
    ping.add_argument(
        "--interval", type=_interval, default=0.2, metavar="S", help="seconds between them, 0.1 to 1 [%(default)g]"
    )
    return parser


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def _positive(text: str) -> float:
    value = _seconds(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0")
    return value


def _interval(text: str) -> float:
    value = _seconds(text)
    if not 0.1 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is outside 0.1 to 1")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _start(text: str) -> Start | int:
    try:
        return parse_start(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _secret(options: argparse.Namespace) -> bytes | None:
    return read_secret(options.secret_file) if options.secret_file else None


class _LinePublisher(Protocol):
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


async def _publish(options: argparse.Namespace, reactor: Any) -> int:
    descriptor = _input(options.file)
    config = ClientConfig(outbox=OutboxConfig(raw=options.raw, timeout=options.timeout), secret=_secret(options))
    publisher = await join(reactor, PublisherProtocol(config), options.backbone, timeout=options.connect_timeout)
    lines = _LinePublisher(publisher)
    publisher.stopped.addErrback(lambda failure: lines.stop(failure.value))
    # What reads standard input must leave standard output alone: it would be closed at the end of the input.
    _standard_io(lines, descriptor, os.open(os.devnull, os.O_WRONLY), reactor)
    try:
        await lines.done
    except CancelledError:
        lines.stop("interrupted")
    missing = lines.seen - lines.published
    await publisher.leave()
    if lines.problem is not None:
        return _complain(f"{missing:,} of {lines.seen:,} messages not published: {lines.problem}")
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


class _Printer(SubscriberProtocol):
    """Prints what it receives on standard output, no faster than that takes it."""

    def __init__(self, config: ClientConfig, count: int | None, format_message: Callable[[Message], bytes]) -> None:
        super().__init__(config)
        self.done: Deferred[None] = Deferred()
        self.output: Any = None
        self._left = count
        self._format = format_message

    def messages_received(self, messages: Sequence[Message]) -> None:
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self.output.write(b"".join(map(self._format, messages)))
        if self._left == 0 and not self.done.called:
            self.done.callback(None)

    def messages_lost(self, first: int, last: int) -> None:
        print(f"fyrehose: lost {first} to {last}: nobody has them, or they were never given", file=sys.stderr)


@implementer(IHalfCloseableProtocol)
class _Output(Protocol):
    """Standard output as a consumer. ``closed`` fires when nobody reads it any more."""

    def __init__(self) -> None:
        self.closed: Deferred[None] = Deferred()

    async def emptied(self, reactor: Any, patience: float | None) -> None:
        """Wait, no longer than ``patience`` seconds, until what was written is out of our hands."""
        if not self.closed.called:
            gone: Deferred[None] = Deferred()
            self.closed.addCallback(gone.callback)
            if patience is not None:
                gone.addTimeout(patience, reactor)
            with suppress(DeferredTimeout, CancelledError):
                await gone

    def readConnectionLost(self) -> None:
        """Twisted: there is no input, which is no reason to stop."""

    def writeConnectionLost(self) -> None:
        """Twisted: it is closed."""
        self.connectionLost()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Twisted: it is closed."""
        if not self.closed.called:
            self.closed.callback(None)


def _standard_io(protocol: Protocol, read: int, write: int, reactor: Any) -> Any:
    make: Any = stdio.StandardIO  # Its type depends on the platform.
    return make(protocol, stdin=read, stdout=write, reactor=reactor)


def _as_line(message: Message) -> bytes:
    return message.data + b"\n"


def _as_json(message: Message) -> bytes:
    fields: dict[str, object] = {"sequence": message.sequence, "received_at": message.received_at}
    try:
        fields["data"] = message.data.decode()
    except UnicodeDecodeError:
        fields |= {"data": base64.b64encode(message.data).decode(), "encoding": "base64"}
    return json.dumps(fields).encode() + b"\n"


async def _subscribe(options: argparse.Namespace, reactor: Any) -> int:
    if sys.stdout is None:
        raise OSError(EBADF, "it is closed", "standard output")
    mode = os.fstat(sys.stdout.fileno()).st_mode
    config = ClientConfig(start=options.start, raw=options.raw, secret=_secret(options))
    printer = _Printer(config, options.count, _as_json if options.format == "json" else _as_line)
    output = _Output()
    # A command in the background must not touch the terminal's input.
    printer.output = _standard_io(output, os.open(os.devnull, os.O_RDONLY), sys.stdout.fileno(), reactor)
    await join(reactor, printer, options.backbone, timeout=options.connect_timeout)
    printer.output.registerProducer(printer, True)
    ended: Deferred[object] = Deferred()

    def end(problem: object) -> None:
        if not ended.called:
            ended.callback(problem)

    printer.done.addCallback(end)
    printer.stopped.addCallbacks(end, lambda failure: end(failure.value))
    # A pipe that nobody reads any more is the way to say "enough"; a file that takes no more is not.
    unreadable = None if S_ISFIFO(mode) or S_ISSOCK(mode) else "standard output takes no more; is the disk full?"
    output.closed.addCallback(lambda ignored: end(unreadable))
    try:
        problem, patience = await ended, None
    except CancelledError:
        problem, patience = None, 1.0
    if not output.closed.called:
        printer.output.unregisterProducer()
        printer.output.loseConnection()
    await printer.leave()
    await output.emptied(reactor, patience)
    return 0 if problem is None else _complain(problem)


class _Pinger(ClientProtocol):
    def __init__(self, config: ClientConfig, count: int) -> None:
        super().__init__(config)
        self.done: Deferred[None] = Deferred()
        self.round_trips: list[float] = []
        self._count = count

    def acknowledged(self, round_trip: float) -> None:
        self.round_trips.append(round_trip)
        if len(self.round_trips) == self._count:
            self.done.callback(None)


async def _ping(options: argparse.Namespace, reactor: Any) -> int:
    config = ClientConfig(subscribe=False, journal=False, keepalive_interval=options.interval, secret=_secret(options))
    pinger = await join(reactor, _Pinger(config, options.count), options.backbone, timeout=options.connect_timeout)
    pinger.done.addTimeout(options.count * options.interval + 5, reactor)
    try:
        await pinger.done
    except Exception:
        if not pinger.round_trips:
            raise
    await pinger.leave()
    times = sorted(1e3 * seconds for seconds in pinger.round_trips)
    columns = [f"{name} {times[round(share * (len(times) - 1))]:.3f}" for name, share in _PERCENTILES]
    print(f"{len(times)} of {options.count} answered by {options.backbone}, round trip in ms: {', '.join(columns)}")
    return 0 if len(times) == options.count else 1


_PERCENTILES = (("min", 0.0), ("median", 0.5), ("90%", 0.9), ("99%", 0.99), ("max", 1.0))
