"""A backbone, three subscribers, two journals and a publisher, with links between them that lose and reorder.

The publisher sends every flight that left New York in 2013 as JSON. On the way a journal is killed and started again,
and then the backbone is. Every process is real, and so are every socket and every file. In the end Spark compares the
journals and counts the flights in them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from demo_journals import JournalService
from demo_pipeline import OUT, Pipeline, counted
from flights import flights
from tqdm import tqdm
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.outbox import OutboxConfig
from fyrehose_twisted.fyrehose.protocol import PublisherProtocol
from fyrehose_twisted.fyrehose.service import join
from fyrehose_twisted.ranges import RangeSet

HERE = Path(__file__).parent
SUBSCRIBERS = 3
JOURNALS = 2
BURST = 200
PUBLISH_TIMEOUT = 120.0
SECOND_PART = 6
"""The part with the kill sends one flight in so many again."""


class Child:
    """A process of the demo that is told and answers in lines."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, str(HERE / script), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"demo: {self.process.args} has ended")
        return json.loads(line)

    def ask(self, order: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self.read()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


class Backbone:
    """``twistd fyrehose-backbone`` as a process of its own."""

    def __init__(self, directory: Path) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        twistd = str(Path(sys.executable).parent / "twistd")
        command = [twistd, "-n", "--pidfile=", "--logfile=backbone.log", "fyrehose-backbone", f"--port={self.port}"]
        self.process = subprocess.Popen([*command, "--name=flights", *options], cwd=self.directory)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def last_number(self) -> int:
        """Return the last number that it gave, from its state file."""
        (last,) = struct.unpack_from("=Q", (self.directory / "fyrehose-flights.state").read_bytes(), 16)
        return int(last)


class Demo:
    """The publisher, and everything around it."""

    def __init__(self, reactor: Any, options: argparse.Namespace, stack: ExitStack) -> None:
        self.reactor = reactor
        self.options = options
        self.stack = stack
        self.source = hashlib.sha256()
        self.published: list[int] = []
        self.failed: BaseException | None = None
        self.wrong = False

    async def run(self) -> None:
        options = self.options
        print(f"Links lose {options.loss:.1%} and reorder as many, drawn from seed {options.seed}")
        messages = list(tqdm(flights(options.flights), unit=" flights", desc="read"))
        await self.start()

        print(f"\nPart 1: {len(messages):,} flights to {SUBSCRIBERS} subscribers and {JOURNALS} journals")
        print("  On the way, journal 2 is killed with -9 and started again")
        await self.publish(messages, halfway=self.kill_journal)
        reports = await self.reports()
        self.show(reports)
        links = await deferToThread(self.relay.ask, "counts")
        passed, lost, overtaken = (f"{links[count]:,}" for count in ("forwarded", "lost", "reordered"))
        print(f"  links                 {passed} datagrams passed, {lost} lost, {overtaken} overtaken by others")
        nobody_at_all = self.show_holes(reports)
        await self.show_journals(reports)
        print(f"  journal 2 at kill     was whole up to {self.journal_at_kill:,}")

        first_part = max(self.published)
        again = messages[: max(1, len(messages) // SECOND_PART)]
        print(f"\nPart 2: {len(again):,} flights again, and kill -9 of the backbone on the way")
        await self.publish(again, halfway=self.kill_and_restart)
        reports = await self.reports()
        self.show(reports)
        before, after = self.published[: self.acknowledged], self.published[self.acknowledged :]
        print(f"  last number at kill   {self.last_number:,}; {len(before):,} flights had come back by then")
        print(f"  numbers afterwards    {min(number for number in after if number > self.last_number):,} and up")
        self.check("numbers given twice", len(self.published) - len(set(self.published)), 0)
        nobody = self.show_holes(reports, since=first_part)
        unsent = nobody.range_of(self.last_number)
        print(f"  given and never sent  {'none' if unsent is None else as_text(RangeSet([unsent]))}")
        await self.show_journals(reports)
        for number, journal in enumerate(self.journals, 1):
            print(f"  journal {number} says        {await deferToThread(journal.stop)}")
        await self.publisher.leave()

        if self.options.no_spark:
            return
        print("\nPart 3: Spark compares the journals, counts the flights in them and draws a page")
        await deferToThread(self.show_pipeline, [*messages, *again], nobody_at_all.count + nobody.count)

    async def start(self) -> None:
        """Start the backbone, the links, the subscribers and the publisher."""
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.backbone = Backbone(directory)
        self.stack.callback(self.backbone.kill)
        self.backbone.start("--start-at=1")
        self.relay = self.child("demo_relay.py", self.backbone.port, self.options.loss, self.options.seed)
        address = f"127.0.0.1:{self.relay.read()}"
        self.subscribers = [self.child("demo_subscriber.py", address) for _ in range(SUBSCRIBERS)]
        self.journals = [self.journal(directory / f"journal-{number}", address) for number in range(1, JOURNALS + 1)]
        # So many processes may share two slow cores.
        config = ClientConfig(outbox=OutboxConfig(timeout=PUBLISH_TIMEOUT))
        self.publisher = await join(self.reactor, PublisherProtocol(config), address)
        await gatherResults([deferToThread(subscriber.read) for subscriber in self.subscribers])

    def child(self, script: str, *arguments: object) -> Child:
        """Start a process that ends with the demo."""
        child = Child(script, *arguments)
        self.stack.callback(child.stop)
        return child

    def journal(self, directory: Path, address: str) -> JournalService:
        """Start a journal that ends with the demo."""
        directory.mkdir()
        journal = JournalService(directory, address)
        self.stack.callback(journal.kill)
        journal.start()
        return journal

    async def publish(self, messages: Sequence[bytes], halfway: Callable[[], None]) -> None:
        """Publish ``messages`` and wait for all to come back; call ``halfway`` when half of them have."""
        start, goal = len(self.published), len(self.published) + len(messages)
        half: int | None = start + len(messages) // 2
        waiting = iter(messages)
        started = time.monotonic()
        with tqdm(total=len(messages), unit=" messages", desc="published") as progress:
            while len(self.published) < goal:
                await self.publisher.when_room()
                for message in islice(waiting, BURST):
                    self.note_published(message)
                    self.publisher.publish(message).addCallbacks(self.published.append, self.stop)
                await deferLater(self.reactor, 0.001)
                progress.update(len(self.published) - start - progress.n)
                if self.failed is not None:
                    raise self.failed
                if half is not None and len(self.published) >= half:
                    half = None
                    halfway()
        self.count, self.seconds = len(messages), time.monotonic() - started

    def note_published(self, message: bytes) -> None:
        """Hash what is published, to compare with what arrives."""
        self.source.update(message + b"\n")

    def stop(self, failure: Failure) -> None:
        """A message was not published."""
        self.failed = failure.value

    def kill_journal(self) -> None:
        """Kill one journal as the kernel would, and start it again on its directory."""
        self.journals[-1].kill()
        self.journal_at_kill = self.journals[-1].next() - 1
        self.journals[-1].start()

    def kill_and_restart(self) -> None:
        """Kill the backbone as the kernel would, and start it again on its state file."""
        self.backbone.kill()
        self.last_number = self.backbone.last_number()
        self.acknowledged = len(self.published)
        self.backbone.start()

    async def reports(self) -> list[Any]:
        """Return what the subscribers have, once they have everything."""
        waiting = [deferToThread(subscriber.ask, len(self.published)) for subscriber in self.subscribers]
        reports: list[Any] = await gatherResults(waiting)
        return reports

    def show(self, reports: list[Any]) -> None:
        """Print what was achieved, and check it."""
        rate = self.count / self.seconds
        print(f"  published             {self.count:,} in {self.seconds:.1f} s: {rate:,.0f} messages/s")
        for field, label in (
            ("messages", "delivered in order"),
            ("repaired", "repaired"),
            ("repeats", "repeats removed"),
        ):
            print(f"  {label:<21} {', '.join(format(report[field], ',') for report in reports)}")
        self.check("arrived twice", sum(report["twice"] for report in reports), 0)
        self.check("lost", sum(len(self.published) - report["messages"] for report in reports), 0)
        hashes = {report["in_stream_order"] for report in reports}
        self.check(
            "different streams", len(hashes) - 1, 0, f"SHA-256 in sequence order {min(hashes)[:16]}… at all of them"
        )
        expected = self.source.hexdigest()
        unequal = sum(report["in_publishing_order"] != expected for report in reports)
        self.check("unlike the source", unequal, 0, f"SHA-256 in publishing order {expected[:16]}… is the source's")

    async def show_journals(self, reports: list[Any]) -> None:
        """Wait until the journals are whole, print what they hold, and check it."""
        last = max(self.published)
        started = time.monotonic()
        for journal in self.journals:
            await journal.whole(self.reactor, last)
        waited = time.monotonic() - started
        kept = [await deferToThread(journal.contents, last) for journal in self.journals]
        print(
            f"  journals, records     {', '.join(format(one.records, ',') for one in kept)}, whole {waited:.1f} s later"
        )
        lost = ", ".join(str(one.lost) for one in kept)
        print(f"  journals, lost        {lost} numbers that nobody got")
        same = len({one.sha256 for one in kept}) - 1
        self.check("journals that differ", same, 0, f"SHA-256 of numbers and bytes {kept[0].sha256[:16]}…")
        expected = reports[0]["in_stream_order"]
        unlike = sum(one.in_stream_order != expected for one in kept)
        self.check("unlike subscribers", unlike, 0, f"SHA-256 in sequence order {expected[:16]}… in both journals")

    def show_pipeline(self, messages: list[bytes], nobody: int) -> None:
        """Run the pipeline on the journals, and check what it finds against what was published."""
        pipeline = Pipeline([journal.kept for journal in self.journals], self.options.out)
        found = pipeline.verify()
        pipeline.refine()
        page = pipeline.report()
        lost = sum(one["numbers"] for name, one in found["findings"].items() if name == "missing/nobody")
        self.check(
            "diverging numbers", sum(one["numbers"] for name, one in found["findings"].items() if "diverg" in name), 0
        )
        self.check("numbers nobody has", lost, nobody, "the same that no subscriber got")
        traffic, expected, carriers = pipeline.traffic(), counted(messages), pipeline.carriers()
        self.check("flights too few", len(messages) - (traffic["messages"] - traffic["repeats"]), 0)
        self.check("carriers that differ", sum(carriers.get(one) != expected[one] for one in expected | carriers), 0)
        flights, miles = (sum(column) for column in zip(*carriers.values(), strict=True))
        print(f"  counted by Spark      {flights:,} flights of {len(carriers)} carriers, {miles:,} miles")
        print(f"  the page              {page}")

    def show_holes(self, reports: list[Any], since: int = 0) -> RangeSet:
        """Print, and return, the numbers above ``since`` that no subscriber got: their flights came under others."""
        lost = [RangeSet(tuple(hole) for hole in report["lost"] if hole[0] > since) for report in reports]
        nobody = RangeSet()
        for first, last in lost[0]:
            for start, end in lost[1].intersection(first, last):
                for common in lost[2].intersection(start, end):
                    nobody.add(*common)
        self.check("lost by some only", sum(numbers.count for numbers in lost) - SUBSCRIBERS * nobody.count, 0)
        print(f"  numbers nobody got    {nobody.count}  {as_text(nobody)}")
        return nobody

    def check(self, what: str, found: int, expected: int, remark: str = "") -> None:
        """Print a count, and remember if it is not what it has to be."""
        wrong = found != expected
        self.wrong |= wrong
        print(f"  {what:<21} {found:,}{'  WRONG' if wrong else f'  {remark}' if remark else ''}")


def as_text(numbers: RangeSet) -> str:
    """Return ranges as a person would write them."""
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in numbers)


async def main(reactor: Any, options: argparse.Namespace) -> None:
    """Run the demo; exit with status 1 if anything is not as it should be."""
    with ExitStack() as stack:
        demo = Demo(reactor, options, stack)
        await demo.run()
    if demo.wrong:
        raise SystemExit("\ndemo: something went wrong, see above")
    total = len(demo.published)
    print(f"\nmake demo: {total:,} flights were published, reached {SUBSCRIBERS} subscribers in order, each once,")
    print(
        f"and {JOURNALS} journals that are equal byte for byte, through lossy links, kill -9 of a journal and kill -9"
    )
    print(
        "of the backbone; no number was given twice and no flight was lost. Spark compared the journals and counted the"
    )
    print(f"flights of each carrier as they are in the source. Look at {options.out / 'report.html'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=None, help="how many; all 336,776 if not given")
    parser.add_argument("--loss", type=float, default=0.05, help="share that the links lose, and reorder [%(default)s]")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="seed of the links")
    parser.add_argument("--no-spark", action="store_true", help="end before the part that takes longest")
    parser.add_argument("--out", type=Path, default=OUT, help="where tables and report go [%(default)s]")
    arguments = parser.parse_args()
    react(lambda reactor: ensureDeferred(main(reactor, arguments)))
