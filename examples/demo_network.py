"""Network of the demo: all its processes except Spark, with methods to publish and to read results."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from socket import SOCK_DGRAM, SOCK_STREAM
from typing import Any

from demo_journals import Contents, contents
from demo_processes import Processes
from demo_services import Backbone, Client, Journal, Relay, free_ports, start_dashboard
from demo_story import Story

SUBSCRIBERS = 3
JOURNALS = 2


class Network:
    """A backbone, and clients and a relay behind links that lose and reorder datagrams.

    :ivar numbers: what was published, in the order in which it came back.
    :ivar rate: messages a second, of the last time that something was published.
    :ivar dashboard: the address of the page that shows it all.
    """

    def __init__(self, processes: Processes, story: Story, loss: float, seed: int) -> None:
        self.numbers: list[int] = []
        self.rate = 0.0
        self._processes = processes
        self._story = story
        self._source = hashlib.sha256()
        port, relay_port, *metrics = free_ports([SOCK_DGRAM, SOCK_DGRAM] + (3 + JOURNALS + SUBSCRIBERS) * [SOCK_STREAM])
        self.backbone = Backbone(processes, port, metrics.pop())
        self.backbone.process.start("--start-at=1")
        self._links = processes.worker("links", "demo_links.py", loss, seed, port, relay_port)
        address, relay_address = (f"127.0.0.1:{port}" for port in self._links.answer())
        relay = Relay(processes, relay_port, metrics.pop(), address)
        relay.process.start()
        self.journals = [
            Journal(processes, f"journal-{number}", metrics.pop(), address) for number in range(1, JOURNALS + 1)
        ]
        for journal in self.journals:
            journal.process.start()
        # The last subscriber takes the stream from the relay.
        servers = [address] * (SUBSCRIBERS - 1) + [relay_address]
        subscribers = [
            Client(processes, f"subscriber-{number}", metrics.pop(), "demo_subscriber.py", server)
            for number, server in enumerate(servers, 1)
        ]
        publisher = Client(processes, "publisher", metrics.pop(), "demo_publisher.py", address)
        watched = [self.backbone, relay, *self.journals, *subscribers, publisher]
        self.dashboard = start_dashboard(processes, self.journals[0], watched)
        self._subscribers, self._publisher = [one.worker for one in subscribers], publisher.worker
        for worker in (*self._subscribers, self._publisher):
            worker.answer()

    def publish(self, messages: Sequence[bytes], halfway: Callable[[int], None]) -> None:
        """Publish the first flights and wait until all are confirmed.

        :param messages: the same flights, to compare with what arrives.
        :param halfway: called, with how many have come back, when half of them have.
        """
        for message in messages:
            self._source.update(message + b"\n")
        half: float = len(messages) // 2
        self._publisher.order(len(messages))
        with self._story.progress("published", len(messages)) as show:
            while "numbers" not in (told := self._publisher.answer()):
                show(told["published"])
                if told["published"] >= half:
                    half = float("inf")
                    halfway(told["published"])
        if half <= len(messages):
            halfway(len(messages))
        self.numbers += told["numbers"]
        self.rate = len(messages) / told["seconds"]

    def publish_more(self, count: int, pause: float) -> None:
        """Publish the first ``count`` flights again, confirmed but not recorded, and wait ``pause`` seconds."""
        self._publisher.order(count)
        while "numbers" not in self._publisher.answer():
            pass
        until = time.monotonic() + pause
        self._processes.wait_for(lambda: time.monotonic() > until, "the pause")

    def source(self) -> str:
        """Return the SHA-256 of the published messages, in order."""
        return self._source.hexdigest()

    def reports(self) -> list[Any]:
        """Return the reports of the subscribers, when they have all messages."""
        with self.waiting("waiting for subscribers"):
            for subscriber in self._subscribers:
                subscriber.order(len(self.numbers))
            return [subscriber.answer() for subscriber in self._subscribers]

    def kept(self) -> list[Contents]:
        """Return the contents of the journals, when all numbers up to the last are durable or lost."""
        last = max(self.numbers)
        with self.waiting("waiting for journals"):
            for journal in self.journals:
                self._processes.wait_for(lambda one=journal: one.next() > last, f"{journal.name} to be whole")
            return [contents(journal.reader(), last) for journal in self.journals]

    def links(self) -> dict[str, int]:
        """Return the counters of the links."""
        counts: dict[str, int] = self._links.ask("counts")
        return counts

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show the waiting time during the block."""
        with self._story.progress(what) as show:
            self._processes.on_wait = show
            try:
                yield
            finally:
                self._processes.on_wait = None
