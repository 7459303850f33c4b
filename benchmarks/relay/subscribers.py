"""Processes with many subscribers of the library, on sockets and in one reactor each."""

from __future__ import annotations

import multiprocessing
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parcels.children import run_in_reactor
from parcels.nodes import Unfit
from race.servers import cpu_seconds

INDEX = struct.Struct(">Q")
"""Index of a message, with which its payload begins."""
JOIN_TIMEOUT = 30.0
PATIENCE = 60.0


@dataclass
class Receipts:
    """What the subscribers of a process have received.

    :ivar counts: number of subscribers that have received a message, by its index.
    :ivar first: monotonic nanoseconds of the first of them, by index.
    :ivar last: monotonic nanoseconds of the last of them, by index.
    :ivar faults: messages that were given up, or that came out of order.
    :ivar repaired: messages that arrived as repairs.
    :ivar completed: indexes of messages with which a delivery began once a repair had arrived.
    """

    counts: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    faults: int = 0
    repaired: int = 0
    completed: set[int] = field(default_factory=set)

    def add(self, data: bytes, now: int) -> None:
        """Record a message."""
        (index,) = INDEX.unpack_from(data)
        self.counts[index] = self.counts.get(index, 0) + 1
        self.first.setdefault(index, now)
        self.last[index] = now

    def merge(self, other: Receipts) -> None:
        """Add the receipts of another process."""
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
            self.first[index] = min(self.first.get(index, other.first[index]), other.first[index])
            self.last[index] = max(self.last.get(index, 0), other.last[index])
        self.faults += other.faults
        self.repaired += other.repaired
        self.completed |= other.completed


class SubscriberProcess:
    """A forked process with subscribers.

    :param servers: ``HOST:PORT`` for each subscriber.
    :param hosts: for each subscriber, enters the network namespace in which it opens sockets; empty to stay.
    :param options: of the configuration of each subscriber.
    """

    def __init__(self, servers: Sequence[str], hosts: Sequence[Callable[[], object]] = (), **options: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._pipe, theirs, servers, hosts, options))
        self._process.start()
        theirs.close()

    def wait(self) -> None:
        """Wait until all subscribers are connected. :raises Unfit: if one cannot connect."""
        self._answer()

    def report(self) -> Receipts:
        """Return what was received since the last call."""
        self._pipe.send("report")
        found = self._answer()
        assert isinstance(found, Receipts)
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process."""
        assert self._process.pid is not None
        return cpu_seconds(self._process.pid)

    def stop(self) -> None:
        """End the subscriptions and the process."""
        try:
            if self._process.is_alive():
                self._pipe.send("stop")
                self._process.join(PATIENCE)
        except OSError:
            pass
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._pipe.close()

    def _answer(self) -> Any:
        try:
            if not self._pipe.poll(PATIENCE):
                raise Unfit(f"subscribers did not answer within {PATIENCE:g} s")
            answer = self._pipe.recv()
        except EOFError:
            raise Unfit("a process of subscribers died") from None
        if isinstance(answer, str):
            raise Unfit(answer)
        return answer


def _serve(
    parents: Any, pipe: Any, servers: Sequence[str], hosts: Sequence[Callable[[], object]], options: dict[str, Any]
) -> None:
    parents.close()  # Otherwise the pipe would not end with the parent.
    try:
        run_in_reactor(lambda reactor: _subscribe(reactor, pipe, servers, hosts, options))
    except BaseException:
        pipe.send(traceback.format_exc())


async def _subscribe(
    reactor: Any, pipe: Any, servers: Sequence[str], hosts: Sequence[Callable[[], object]], options: dict[str, Any]
) -> None:
    from twisted.internet.defer import Deferred

    from fyrehose_twisted.fyrehose import ClientConfig, Message, SubscriberProtocol, join

    receipts = Receipts()
    repaired = 0

    class Subscriber(SubscriberProtocol):
        expected: int | None = None
        repaired = 0

        def __init__(self, enter: Callable[[], object] | None) -> None:
            super().__init__(ClientConfig(**options))
            self.enter = enter

        def batch_received(self, batch: Any) -> None:
            if self.enter is not None:  # It may open a socket for a multicast group.
                self.enter()
            super().batch_received(batch)

        def messages_received(self, messages: Sequence[Message]) -> None:
            now = time.monotonic_ns()
            repaired = self.node.counters.repaired if self.node is not None else 0
            if repaired > self.repaired:
                receipts.completed.add(INDEX.unpack_from(messages[0].data)[0])
                self.repaired = repaired
            for message in messages:
                receipts.faults += self.expected not in (None, message.sequence)
                self.expected = message.sequence + 1
                receipts.add(message.data, now)

        def messages_lost(self, first: int, last: int) -> None:
            receipts.faults += last - first + 1
            self.expected = last + 1

    class Commands:
        """Reader of the pipe."""

        def __init__(self) -> None:
            self.stopped: Deferred[None] = Deferred()

        def fileno(self) -> int:
            return int(pipe.fileno())

        def logPrefix(self) -> str:
            return "commands"

        def connectionLost(self, reason: object) -> None:
            pass

        def doRead(self) -> None:
            nonlocal receipts, repaired
            try:
                command = pipe.recv()
            except EOFError:
                command = "stop"
            if command == "stop":
                reactor.removeReader(self)
                self.stopped.callback(None)
                return
            total = sum(each.node.counters.repaired for each in subscribers if each.node is not None)
            receipts.repaired, repaired = total - repaired, total
            pipe.send(receipts)
            receipts = Receipts()

    subscribers = []
    for number, server in enumerate(servers):
        enter = hosts[number] if hosts else None
        if enter is not None:
            enter()
        subscribers.append(await join(reactor, Subscriber(enter), server, timeout=JOIN_TIMEOUT))
    commands = Commands()
    pipe.send(None)
    reactor.addReader(commands)
    await commands.stopped
    for subscriber in subscribers:
        await subscriber.leave(at_once=True)
