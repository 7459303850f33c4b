"""Many subscribers of the library at the relays of a tree, and at one backbone alone."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from parcels.nodes import Unfit
from race.bulk import bare_socket
from race.servers import LOOPBACK, Broker

from fyrehose_twisted.fyrehose.wire.codec import encode_push
from relay.subscribers import INDEX, Receipts, SubscriberProcess
from relay.trees import Servers, address_of, cpu_of, resident_of

TREE, ALONE = "tree", "one backbone"
LAYOUTS = (TREE, ALONE)
POLL = 0.05
"""Seconds between two reports of the subscribers."""
MOST_BEHIND = 1.0
"""Seconds within which the last subscriber must receive a message, for the rate to count as kept up with."""
DRAIN = 5.0
"""Seconds without a receipt after which the missing deliveries count as lost."""
SETTLE = 3.0
"""Seconds for servers and subscribers to finish what the connections have begun."""
LOWEST_RATE, HIGHEST_RATE = 1.0, 256.0
"""Range of the rates that are tried, doubled from one to the next."""
BISECTIONS = 3
"""Steps between the highest rate that works and its double."""


class Size(NamedTuple):
    """Size of the crowd.

    :ivar processes: processes with subscribers.
    """

    relays: int
    subscribers: int
    processes: int
    payload: int


class Step(NamedTuple):
    """Messages at a fixed rate.

    :ivar missing: deliveries that never came, and messages out of order.
    :ivar repaired: deliveries that were repairs.
    :ivar behind: seconds from the publication of a message to its last receipt: the longest.
    :ivar spread: median of the seconds from the first to the last receipt of a message.
    :ivar cpu: CPU seconds of the backbone, of the relays and of the subscribers.
    """

    rate: float
    messages: int
    missing: int
    repaired: int
    behind: float
    spread: float
    cpu: tuple[float, float, float]

    @property
    def loses_nothing(self) -> bool:
        """Whether all messages arrived, without repair and in time."""
        return not self.missing and not self.repaired and self.behind <= MOST_BEHIND


class Crowd:
    """Servers and connected subscribers."""

    def __init__(
        self, size: Size, backbone: Broker, relays: Sequence[Broker], processes: list[SubscriberProcess]
    ) -> None:
        self.size = size
        self.backbone = backbone
        self.relays = relays
        self._processes = processes
        self._publisher = bare_socket()
        self._publisher.connect((LOOPBACK, backbone.ports[0]))
        self._index = 0

    def connect(self) -> None:
        """Publish until every subscriber has received a message. :raises Unfit: if one does not."""
        for process in self._processes:
            process.wait()
        for _ in range(20):
            if not self._finish(self._publish(1, 1.0)).missing:
                time.sleep(SETTLE)
                return
        raise Unfit("not all subscribers receive the stream")

    def rest(self, seconds: float) -> tuple[float, float, float]:
        """Return the CPU seconds of a second without messages."""
        begin = self._cpu()
        time.sleep(seconds)
        backbone, relays, subscribers = (b - a for a, b in zip(begin, self._cpu(), strict=True))
        return backbone / seconds, relays / seconds, subscribers / seconds

    def run(self, rate: float, seconds: float) -> Step:
        """Publish single messages at a rate, and wait until all have arrived."""
        return self._finish(self._publish(max(round(rate * seconds), 1), rate))

    def highest_rate(self, seconds: float) -> Step | None:
        """Return the step at the highest rate at which nothing is lost; ``None`` if there is none.

        A small crowd ends at :data:`HIGHEST_RATE`.
        """
        rate, best = LOWEST_RATE, None
        while rate <= HIGHEST_RATE and (step := self.run(rate, seconds)).loses_nothing:
            best, rate = step, 2 * rate
        if best is None or rate > HIGHEST_RATE:
            return best
        factor = 2.0
        for _ in range(BISECTIONS):
            factor **= 0.5
            step = self.run(best.rate * factor, seconds)
            if step.loses_nothing:
                best = step
        return best

    def close(self) -> None:
        """Close the socket of the publisher."""
        self._publisher.close()

    def _cpu(self) -> tuple[float, float, float]:
        subscribers = sum(process.cpu_seconds() for process in self._processes)
        return cpu_of([self.backbone]), cpu_of(self.relays), subscribers

    def _publish(self, messages: int, rate: float) -> tuple[float, list[int], tuple[float, float, float]]:
        for process in self._processes:
            process.report()  # Without what came late.
        cpu, published = self._cpu(), []
        start = time.monotonic()
        for number in range(messages):
            time.sleep(max(start + number / rate - time.monotonic(), 0.0))
            data = INDEX.pack(self._index + number) + bytes(self.size.payload - INDEX.size)
            published.append(time.monotonic_ns())
            self._publisher.send(encode_push(data))
        return rate, published, cpu

    def _finish(self, publication: tuple[float, list[int], tuple[float, float, float]]) -> Step:
        rate, published, cpu = publication
        found, expected = Receipts(), len(published) * self.size.subscribers
        changed, seen = time.monotonic(), -1
        while True:
            for process in self._processes:
                found.merge(process.report())
            own = [found.counts.get(self._index + number, 0) for number in range(len(published))]
            if sum(own) != seen:
                changed, seen = time.monotonic(), sum(own)
            if sum(own) >= expected or time.monotonic() > changed + DRAIN:
                break
            time.sleep(POLL)
        used = tuple(b - a for a, b in zip(cpu, self._cpu(), strict=True))
        indexes = [self._index + number for number, count in enumerate(own) if count]
        last = [found.last[index] - published[index - self._index] for index in indexes]
        spread = [found.last[index] - found.first[index] for index in indexes]
        self._index += len(published)
        return Step(
            rate,
            len(published),
            expected - sum(own) + found.faults,
            found.repaired,
            max(last, default=0) / 1e9,
            median(spread or [0]) / 1e9,
            (used[0], used[1], used[2]),
        )


class Found(NamedTuple):
    """Result of one round with one layout.

    :ivar rest: CPU seconds of backbone, relays and subscribers in a second without messages.
    :ivar calm: messages at a low rate.
    :ivar highest: messages at the highest rate at which nothing is lost, if there is one.
    :ivar resident: bytes of resident memory of the backbone, or of a relay.
    """

    rest: tuple[float, float, float]
    calm: Step
    highest: Step | None
    resident: int


@contextmanager
def running(layout: str, size: Size, directory: Path) -> Iterator[Crowd]:
    """Start servers and subscribers of a layout, and connect them."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with Servers(directory) as servers:
        backbone = servers.backbone()
        relays = [servers.relay(backbone) for _ in range(size.relays if layout == TREE else 0)]
        serving = [address_of(server) for server in relays or [backbone]]
        places = [serving[number * len(serving) // size.subscribers] for number in range(size.subscribers)]
        processes: list[SubscriberProcess] = []
        try:
            for number in range(size.processes):
                processes.append(SubscriberProcess(places[number :: size.processes]))
            crowd = Crowd(size, backbone, relays, processes)
            try:
                crowd.connect()
                yield crowd
            finally:
                crowd.close()
        finally:
            for process in processes:
                process.stop()


def measure(
    directory: Path, rounds: int, size: Size, seconds: float, rate: float, progress: Callable[[], object]
) -> dict[str, list[Found]]:
    """Return the results of all rounds by layout. ``progress`` is called after each of them."""
    found: dict[str, list[Found]] = {layout: [] for layout in LAYOUTS}
    for number in range(rounds):
        for layout in LAYOUTS[:: -1 if number % 2 else 1]:
            with running(layout, size, directory) as crowd:
                rest = crowd.rest(2 * seconds)
                calm = crowd.run(rate, 2 * seconds)
                resident = resident_of((crowd.relays or [crowd.backbone])[0])
                found[layout].append(Found(rest, calm, crowd.highest_rate(seconds), resident))
            progress()
    return found
