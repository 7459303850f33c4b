"""CPU time of a sender for each message, with each subscriber in a network namespace of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from parcels.nodes import Unfit

from fyrehose_twisted.fyrehose.wire.codec import encode_push
from multicast.ours import MULTICAST, UNICAST, Backbone, BareSubscribers
from multicast.rivals import BARE, EACH, NORM, PGM, PUBLISH_PORT, Counted, Programs, Sender, receive_library
from multicast.segment import SENDER, Segment

SYSTEMS = (MULTICAST, UNICAST, BARE, EACH, PGM, NORM)
OURS = (MULTICAST, UNICAST)
TOGETHER = "bare multicast, one core"
"""Bare UDP to the group, where the network takes the time of the sender."""
WITH_TIMERS = (MULTICAST, UNICAST, PGM, NORM)
"""Systems that do something without messages."""
REST_BYTES = 100
"""Bytes of the messages before a rest."""
WARM_UP = 1.0
DRAIN = 2.0
"""Seconds after the last message within which all must arrive."""
TIMELY = 0.5
"""The same, for a rate to count as reached."""
MAX_RATE = 65_536.0
MIN_SHARE = 0.9
"""Share of a rate that the publisher must have kept, for the rate to count as reached."""


class Load(NamedTuple):
    """Load of a measurement.

    :ivar rate: messages/s.
    """

    rate: float
    seconds: float


class Cost(NamedTuple):
    """Result of a measurement.

    :ivar message: microseconds of CPU time of the sender for each message.
    :ivar lost: deliveries that did not arrive.
    :ivar rate: messages/s published.
    """

    message: float
    lost: int
    rate: float


class Publishes(Protocol):
    """Process that passes on what it receives."""

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process."""

    def stop(self) -> None:
        """Stop it."""


class Receives(Protocol):
    """Process with subscribers."""

    def received(self) -> Counted:
        """Return the numbers of messages received so far."""

    def wait_for(self, messages: int, before: Counted, seconds: float) -> int:
        """Return the number of deliveries once each host has all messages, or after ``seconds``."""

    def stop(self) -> None:
        """Stop it."""


class Stage:
    """A sender with its subscribers in a segment, and a publisher.

    :raises Unfit: if something does not start, or not all subscribers receive.
    """

    def __init__(self, system: str, segment: Segment, size: int, programs: Programs, directory: Path) -> None:
        self._stack = ExitStack()
        self._hosts = len(segment.subscribers)
        data = bytes(size)
        self._message = encode_push(data) if system in OURS else data
        try:
            sender, receivers = self._start(system, segment, size, programs, directory)
            self._sender, self._receivers = sender, receivers
            self._publisher = segment.sender.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._stack.callback(self._publisher.close)
            self._publisher.connect((SENDER, PUBLISH_PORT))
            self._connect(system)
        except BaseException:
            self.close()
            raise

    def run(self, load: Load, drain: float = DRAIN) -> Cost:
        """Publish single messages at a rate."""
        count = max(round(load.rate * load.seconds), 1)
        before, cpu, start = self._receivers.received(), self._sender.cpu_seconds(), time.monotonic()
        for number in range(count):
            ahead = start + number / load.rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            self._publisher.send(self._message)
        took = time.monotonic() - start
        arrived = self._receivers.wait_for(count, before, drain)
        used = self._sender.cpu_seconds() - cpu
        return Cost(used / count * 1e6, max(count * self._hosts - arrived, 0), count / max(took, 1 / load.rate))

    def rest(self, seconds: float) -> float:
        """Return the CPU seconds of the sender in a second without messages."""
        cpu, start = self._sender.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self._sender.cpu_seconds() - cpu) / (time.monotonic() - start)

    def highest_rate(self, load: Load) -> float:
        """Return the highest rate at which all receive everything in time: the given one times a power of two."""
        best = 0.0
        while load.rate <= MAX_RATE:
            cost = self.run(load, TIMELY)
            if cost.lost or cost.rate < MIN_SHARE * load.rate:
                break
            best, load = load.rate, load._replace(rate=2 * load.rate)
        return best

    def close(self) -> None:
        """Stop everything."""
        self._stack.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(
        self, system: str, segment: Segment, size: int, programs: Programs, directory: Path
    ) -> tuple[Publishes, Receives]:
        receivers: Receives
        sender: Publishes
        log = directory / "receivers.log"
        if system in (PGM, NORM):
            receivers = receive_library(system, size, segment.subscribers, programs, log)
        else:
            receivers = BareSubscribers(
                segment, size, programs, log, group=system in (MULTICAST, BARE), backbone=system in OURS
            )
        self._stack.callback(receivers.stop)
        if system in OURS:
            backbone = sender = Backbone(segment, directory, group=system == MULTICAST)
            self._stack.callback(sender.stop)
            backbone.wait_for("listeners" if system == MULTICAST else "subscribers", len(segment.subscribers))
        else:
            sender = Sender(system, segment, programs, directory / "sender.log")
            self._stack.callback(sender.stop)
        return sender, receivers

    def _connect(self, system: str) -> None:
        """Publish until all receive everything. Receivers of OpenPGM and NORM have to learn of their sender first."""
        for _ in range(10):
            if not self.run(Load(100.0, WARM_UP)).lost:
                return
        raise Unfit(f"not all subscribers of {system} receive everything")


class Costs(NamedTuple):
    """Results of all rounds, by number of subscribers, size and system.

    :ivar rates: highest rates that were reached.
    """

    messages: dict[tuple[int, int, str], list[float]]
    rates: dict[tuple[int, int, str], list[float]]
    lost: int
    failures: list[str]


def jobs(rounds: int, sizes: Sequence[int], systems: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield size and system of each measurement in a segment; the systems alternate."""
    for number in range(rounds):
        for size in sizes:
            for system in systems[:: -1 if number % 2 else 1]:
                yield size, system


def measure(
    directory: Path,
    rounds: int,
    fan_outs: Sequence[int],
    sizes: Sequence[int],
    load: Load,
    programs: Programs,
    systems: Sequence[str],
    progress: Callable[[], object],
    *,
    rates: bool = False,
) -> Costs:
    """Return the costs of all rounds. ``progress`` is called after each measurement.

    :param rates: whether to look for the highest rates, too.
    """
    costs = Costs({}, {}, 0, [])
    for fan_out in fan_outs:
        for apart in (True, False):
            chosen = systems if apart else [system for system in systems if system == BARE]
            with Segment(fan_out, apart=apart) as segment:
                for size, system in jobs(rounds, sizes, chosen):
                    name = system if apart else TOGETHER
                    try:
                        with Stage(system, segment, size, programs, directory) as stage:
                            cost = stage.run(load)
                            costs.messages.setdefault((fan_out, size, name), []).append(cost.message)
                            costs = costs._replace(lost=costs.lost + cost.lost)
                            if rates and apart:
                                reached = stage.highest_rate(load._replace(seconds=load.seconds / 4))
                                costs.rates.setdefault((fan_out, size, name), []).append(reached)
                    except Unfit as failure:
                        costs.failures.append(f"{name}, {fan_out} subscribers, {size} bytes: {failure}")
                    progress()
    return costs


def measure_rest(
    directory: Path,
    rounds: int,
    fan_outs: Sequence[int],
    seconds: float,
    programs: Programs,
    systems: Sequence[str],
    progress: Callable[[], object],
) -> dict[tuple[int, str], list[float]]:
    """Return the CPU seconds of a second without messages, by number of subscribers and system, of all rounds."""
    found: dict[tuple[int, str], list[float]] = {}
    for fan_out in fan_outs:
        with Segment(fan_out) as segment:
            for size, system in jobs(rounds, [REST_BYTES], systems):
                with Stage(system, segment, size, programs, directory) as stage:
                    found.setdefault((fan_out, system), []).append(stage.rest(seconds))
                progress()
    return found
