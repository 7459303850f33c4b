"""Catch-up of a late subscriber from one journal, among subscribers that hold none of its messages.

Real processes on loopback: ``twistd fyrehose-backbone``, ``twistd fyrehose-journal``, the bystanders in a process of
their own, and this one, which reads. The bystanders join after all has been published, and nothing is published
meanwhile. Rounds with different numbers of bystanders take turns; medians, and the ratio to none.

The backbone keeps nothing itself unless ``--retransmit`` says so, or the messages would not come from the journal.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

from bench_backbone import free_port
from results import add_option, write
from twisted.internet import defer, task

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.process.progress import ProgressBar

BIN = Path(sys.executable).parent
PATIENCE = 120.0
"""Seconds without progress after which a measurement is aborted."""


class Figures(NamedTuple):
    """Result of one catch-up."""

    rate: float
    lost: int
    duplicates: int
    requests: int
    forwards: int


class Reader(SubscriberProtocol):
    """Subscriber that reads until the last number."""

    def __init__(self, last: int) -> None:
        super().__init__(ClientConfig(start=1, journal=False))
        self.done: defer.Deferred[None] = defer.Deferred()
        self._last = last

    def messages_received(self, messages: Sequence[Any]) -> None:
        self._reached(messages[-1].sequence)

    def messages_lost(self, first: int, last: int) -> None:
        self._reached(last)

    def _reached(self, sequence: int) -> None:
        if sequence >= self._last and not self.done.called:
            self.done.callback(None)


@contextmanager
def running(directory: Path, *command: object, ready: str) -> Iterator[str]:
    """Run a program; yield the line by which it reports that it is ready."""
    log = directory / f"{time.monotonic_ns()}.log"
    with (
        open(log, "w+b") as out,
        subprocess.Popen(
            [str(BIN / str(command[0])), *map(str, command[1:])], stdout=out, stderr=out, cwd=directory
        ) as process,
    ):
        try:
            end = time.monotonic() + PATIENCE
            while not (found := re.search(ready, log.read_text())):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[0]} is not ready: {log.read_text()}")
                time.sleep(0.05)
            yield found[1] if found.groups() else found[0]
        finally:
            process.terminate()


def backbone_metrics(url: str) -> dict[str, float]:
    """Return the backbone's metrics without labels."""
    with urlopen(url) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}


async def publish(reactor: Any, address: str, count: int, size: int) -> None:
    """Publish ``count`` messages, which the journal stores."""
    publisher = await join(reactor, PublisherProtocol(ClientConfig(journal=False)), address)
    with ProgressBar("published", total=count, unit="messages") as bar:
        for first in range(0, count, 1_000):
            many = [b"%0*d" % (size, number) for number in range(first, min(first + 1_000, count))]
            await publisher.publish_many(many, kept=1)
            bar.update(len(many))
    await publisher.leave()


async def catch_up(reactor: Any, address: str, metrics: str, count: int) -> Figures:
    """Read all messages and return the figures."""
    before = backbone_metrics(metrics)
    began = time.monotonic()
    reader = await join(reactor, Reader(count), address)
    reader.done.addTimeout(PATIENCE * 5, reactor)
    await reader.done
    took = time.monotonic() - began
    assert reader.node is not None
    counters = reader.node.counters
    await reader.leave()
    after = backbone_metrics(metrics)
    requests, forwards = (
        int(after[name] - before[name])
        for name in ("fyrehose_backbone_requests_total", "fyrehose_backbone_forwards_total")
    )
    return Figures(count / took, counters.lost, counters.duplicates, requests, forwards)


async def bystand(reactor: Any, address: str, count: int) -> None:
    """Run ``count`` subscribers until the process is killed."""
    for _ in range(count):
        await join(reactor, SubscriberProtocol(), address)
    print(f"{count} bystanders", flush=True)
    await defer.Deferred()


async def measure(reactor: Any, options: argparse.Namespace) -> None:
    """Run all rounds and print the table."""
    found: dict[int, list[Figures]] = {bystanders: [] for bystanders in options.bystanders}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        address = f"127.0.0.1:{port}"
        backbone = ("twistd", "-n", "--pidfile=", "fyrehose-backbone", "--port", port, "--settle-time", 0)
        more = ("--metrics", "tcp:0", "--retransmit", options.retransmit)
        metrics = stack.enter_context(running(directory, *backbone, *more, ready=r"metrics at (\S+)"))
        journal = ("twistd", "-n", "--pidfile=", "fyrehose-journal", "-b", address, "-d", "kept")
        stack.enter_context(running(directory, *journal, ready="JournalProtocol starting"))
        while backbone_metrics(metrics)["fyrehose_backbone_clients"] < 1:
            await task.deferLater(reactor, 0.05, lambda: None)
        await publish(reactor, address, options.messages, options.size)
        with ProgressBar("rounds", total=options.rounds * len(found), unit="rounds") as bar:
            for _ in range(options.rounds):
                for bystanders, figures in found.items():
                    this = ("python", __file__, "--bystand", address, bystanders)
                    with running(directory, *this, ready=f"{bystanders} bystanders"):
                        figures.append(await catch_up(reactor, address, metrics, options.messages))
                    bar.update(1)
    print(f"{options.messages:,} messages of {options.size} bytes, medians of {options.rounds} rounds")
    print("| bystanders | messages/s | of none | lost | duplicates | REQUESTs | FORWARDs |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rates = {bystanders: median(one.rate for one in figures) for bystanders, figures in found.items()}
    for bystanders, figures in found.items():
        counts = " | ".join(f"{median(column):,.0f}" for column in list(zip(*figures, strict=True))[1:])
        rate = rates[bystanders]
        print(f"| {bystanders} | {rate:,.0f} | {rate / rates[options.bystanders[0]]:.2f} | {counts} |")
    table = {
        f"{bystanders}": {"messages/s": rate, "of none": rate / rates[options.bystanders[0]]}
        for bystanders, rate in rates.items()
    }
    write(options.json, {"bystanders": table}, f"medians of {options.rounds} rounds of {options.messages:,} messages")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=500_000, help="messages that the journal holds [%(default)s]")
    parser.add_argument("--size", type=int, default=100, help="bytes of each [%(default)s]")
    parser.add_argument("--bystanders", type=int, nargs="+", default=[0, 12, 200], help="how many [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="rounds [%(default)s]")
    parser.add_argument("--retransmit", type=int, default=0, help="MiB that the backbone keeps [%(default)s]")
    add_option(parser, "catch_up")
    parser.add_argument("--bystand", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bystand:
        address, count = options.bystand
        task.react(lambda reactor: defer.Deferred.fromCoroutine(bystand(reactor, address, int(count))))
    else:
        task.react(lambda reactor: defer.Deferred.fromCoroutine(measure(reactor, options)))


if __name__ == "__main__":
    main()
