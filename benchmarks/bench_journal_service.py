"""Journal service: sustained rate, catch-up of another journal, and latency until a message is durable.

Real processes on loopback: ``twistd fyrehose-backbone``, ``twistd fyrehose-journal``, and this one, which publishes.
Rates depend on the machine, and with few cores on the needs of the other processes; compare the ratios of one run.
Medians over rounds that alternate.

keep: this process publishes with a window: never more messages are in flight than the receiver can buffer, so that the
rate of the receiver is measured. The journal is compared with a plain subscriber, and with a DatagramProtocol that
appends to a file, with one fdatasync per read, and repairs nothing.

catch-up: one journal holds messages; a late one wants all of them, without other traffic.

latency: from the read of a DELIVER at a plain subscriber, which is this process, until the record is below the durable
watermark of the journal: the moment after fdatasync, by the clock that all processes share.
"""

from __future__ import annotations

import argparse
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench_backbone import TICKS, free_port
from results import Tables, add_option, medians, write
from twisted.internet.protocol import DatagramProtocol

from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.journal import JournalProtocol
from fyrehose_twisted.fyrehose.wire.codec import decode, encode, encode_deliver, encode_push
from fyrehose_twisted.fyrehose.wire.packets import Flags, Forward, Keepalive
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.remote.client import connect
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket, coalesce
from fyrehose_twisted.net.udp import KERNEL_BUFFER
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.record import Record

HERE = Path(__file__).parent
KINDS = ("keep", "catch-up", "latency")
STREAM, EPOCH = "fyrehose://default", 0
FSYNCS = ("batch", "0.01", "1")
PATIENCE = 20.0
"""Seconds without progress after which a measurement is aborted."""
Figures = dict[str, list[list[float]]]


class Progress:
    """A shared memory file in which one process reports its progress to another."""

    LAYOUT = struct.Struct("<3Q")
    SYNCS = struct.Struct("<2Q")
    SYNCS_AT = 8 + LAYOUT.size
    MARK = struct.Struct("<QQ")
    MARKS = 2**20

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        if create:
            with open(path, "wb") as file:
                file.truncate(4_096 + self.MARKS * self.MARK.size)
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def tell(self, following: int, lost: int, repaired: int) -> None:
        """Report the next number, and the number of lost and of requested messages."""
        self.LAYOUT.pack_into(self.map, 8, following, lost, repaired)

    def told(self) -> tuple[int, int, int]:
        """Return the last report."""
        following, lost, repaired = self.LAYOUT.unpack_from(self.map, 8)
        return following, lost, repaired

    def synced(self, nanoseconds: int) -> None:
        """Count a sync that took ``nanoseconds``."""
        count, taken = self.syncs()
        self.SYNCS.pack_into(self.map, self.SYNCS_AT, count + 1, taken + nanoseconds)

    def syncs(self) -> tuple[int, int]:
        """Return the number of syncs so far, and how many nanoseconds they took."""
        count, taken = self.SYNCS.unpack_from(self.map, self.SYNCS_AT)
        return count, taken

    def mark(self, watermark: int) -> None:
        """Report that everything below ``watermark`` is durable."""
        (count,) = struct.unpack_from("<Q", self.map)
        self.MARK.pack_into(self.map, 4_096 + count % self.MARKS * self.MARK.size, watermark, time.monotonic_ns())
        struct.pack_into("<Q", self.map, 0, count + 1)

    def marks(self) -> list[tuple[int, int]]:
        """Return watermarks and the times at which they were reached."""
        (count,) = struct.unpack_from("<Q", self.map)
        if count > self.MARKS:
            raise SystemExit("There were more commits than are remembered; say fewer --seconds")
        return list(self.MARK.iter_unpack(self.map[4_096 : 4_096 + count * self.MARK.size]))


class Watched(SubscriberProtocol):
    """Subscriber that reports its progress."""

    def startProtocol(self) -> None:
        self.progress = Progress(os.environ["BENCH_PROGRESS"])
        super().startProtocol()

    def messages_received(self, messages: Any) -> None:
        assert self.node is not None
        counters = self.node.counters
        self.progress.tell(messages[-1].sequence + 1, counters.lost, counters.repaired)


class WatchedJournal(Watched, JournalProtocol):
    """Journal that reports its progress and its watermarks."""

    def startProtocol(self) -> None:
        super().startProtocol()
        journal: Any = self.journal
        sync, marks = journal.sync, "BENCH_MARKS" in os.environ

        def watched() -> None:
            began = time.monotonic_ns()
            sync()
            self.progress.synced(time.monotonic_ns() - began)
            bounds = journal.bounds(EPOCH) if marks else None
            if bounds is not None:
                self.progress.mark(bounds.next)

        journal.sync = watched


class PlainFile(DatagramProtocol):
    """Lower bound of a journal's cost: DELIVERs are appended to a file, with one fdatasync per read."""

    def __init__(self, backbone: tuple[str, int], path: str) -> None:
        self.backbone = backbone
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.progress = Progress(os.environ["BENCH_PROGRESS"])
        self.waiting: list[bytes] = []
        self.next = self.lost = 0

    def startProtocol(self) -> None:
        from twisted.internet import reactor, task

        self.reactor: Any = reactor
        keepalive = encode(Keepalive(flags=Flags.NOJOURNAL))
        task.LoopingCall(lambda: self.transport.write(keepalive, self.backbone)).start(0.5)  # type: ignore[union-attr]

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        if datagram[0] == 1:
            if not self.waiting:
                self.reactor.callLater(0, self.flush)
            self.waiting.append(datagram)

    def flush(self) -> None:
        """Write received data."""
        waiting, self.waiting = self.waiting, []
        os.write(self.file, b"".join(waiting))
        os.fdatasync(self.file)
        last = sequence_of(waiting[-1])
        self.lost += last + 1 - (self.next or sequence_of(waiting[0])) - len(waiting)
        self.next = last + 1
        self.progress.tell(self.next, self.lost, 0)


def run_plain_file(port: str, path: str) -> None:
    """Run the process of a plain file."""
    from twisted.internet import reactor

    listening: Any = reactor
    udp = listening.listenUDP(0, PlainFile(("127.0.0.1", int(port)), path), interface="127.0.0.1", maxPacketSize=65_536)
    udp.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
    listening.run()


def sequence_of(deliver: bytes) -> int:
    """Return the number in a DELIVER."""
    return int.from_bytes(deliver[3:9])


class Process:
    """A process and its CPU time."""

    def __init__(self, command: list[str], **environment: str) -> None:
        path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH", ""))))
        environment = {**os.environ, "PYTHONPATH": path, **environment}
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  # It lives as long as the process does.
        self.popen = subprocess.Popen(command, env=environment, stdout=self.output, stderr=self.output)

    def cpu_seconds(self) -> float:
        """Return its user and system time."""
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def check(self) -> None:
        """Fail if it has exited."""
        if self.popen.poll() is not None:
            self.output.seek(0)
            raise SystemExit(f"{' '.join(map(str, self.popen.args))} ended: {self.output.read().decode()[-2_000:]}")

    def stop(self) -> None:
        """Stop it."""
        self.popen.terminate()
        self.popen.wait()
        self.output.close()


def twistd(*arguments: object, **environment: str) -> Process:
    """Start a service."""
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", *map(str, arguments)]
    return Process(command, **environment)


class Stage:
    """A directory, a backbone, and further processes, which all end with it."""

    def __init__(self, options: argparse.Namespace, start_at: int = 1) -> None:
        self._stack = ExitStack()
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        self.port = free_port()
        state = ["--state", self.directory / "state", f"--start-at={start_at}", "--settle-time=0"]
        self.backbone = self.add(twistd("fyrehose-backbone", *state, "--port", self.port))

    def add(self, process: Process) -> Process:
        """Stop a process at the end."""
        self._stack.callback(process.stop)
        return process

    def progress(self, name: str) -> Progress:
        """Create a progress file."""
        return Progress(self.directory / name, create=True)

    def journal(self, name: str, *arguments: object, **environment: str) -> Process:
        """Start a journal."""
        return self.add(
            twistd(
                *("fyrehose-journal", "--backbone", f"127.0.0.1:{self.port}", "--directory", self.directory / name),
                *("--protocol", "bench_journal_service.WatchedJournal", *arguments),
                BENCH_PROGRESS=str(self.directory / f"{name}.progress"),
                **environment,
            )
        )

    def subscriber(self, name: str, *arguments: object) -> Process:
        """Start a subscriber."""
        return self.add(
            twistd(
                *("fyrehose-client", "--backbone", f"127.0.0.1:{self.port}", "--raw"),
                *("--protocol", "bench_journal_service.Watched", *arguments),
                BENCH_PROGRESS=str(self.directory / f"{name}.progress"),
            )
        )

    def plain_file(self, name: str) -> Process:
        """Start a process that appends to a file."""
        command = [sys.executable, __file__, "--child", str(self.port), str(self.directory / name)]
        return self.add(Process(command, BENCH_PROGRESS=str(self.directory / f"{name}.progress")))

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Publisher:
    """Raw client that publishes, records when messages return, and serves repairs."""

    def __init__(self, stage: Stage, size: int, *, subscribe: bool) -> None:
        self.address = ("127.0.0.1", stage.port)
        self.flags = Flags(0) if subscribe else Flags.NOSUBSCRIBE
        self.payload = os.urandom(size)
        self.push = encode_push(self.payload)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.bursts = SegmentingSocket(self.socket)
        self.buffer = bytearray(4 * RECEIVE_BYTES)
        self.keepalive_at = 0.0
        self.acknowledged = False
        self.came: dict[int, int] = {}

    def send(self, count: int) -> None:
        """Publish."""
        for burst in coalesce([self.push] * count, self.bursts.segments):
            self.bursts.send(burst, self.address)

    def drain(self, timeout: float) -> None:
        """Receive for at most ``timeout`` seconds, and send keepalives."""
        if time.monotonic() >= self.keepalive_at:
            self.socket.sendto(encode(Keepalive(flags=self.flags)), self.address)
            self.keepalive_at = time.monotonic() + 0.5
        if not self.poll.poll(timeout * 1_000):
            return
        for datagram, _, _ in self.bursts.receive_batch(self.buffer):
            if datagram[0] == 1:
                self.came[sequence_of(bytes(datagram[:9]))] = time.monotonic_ns()
            else:
                self._understand(bytes(datagram))

    def _understand(self, datagram: bytes) -> None:
        packet = decode(datagram)
        if isinstance(packet, Forward):
            for sequence in range(packet.first, min(packet.last, packet.first + 1_023) + 1):
                self.socket.sendto(encode_deliver(sequence, self.payload), packet.address)
        else:
            self.acknowledged = True

    def connect(self, progress: Progress, process: Process) -> int:
        """Publish until the receiver has received something; return the next number."""
        deadline = time.monotonic() + PATIENCE
        while not (self.acknowledged and progress.told()[0]):
            if time.monotonic() > deadline:
                raise SystemExit("The receiver gets nothing")
            process.check()
            self.keepalive_at = 0.0
            if self.acknowledged:
                self.send(1)
            self.drain(0.1)
        return self.settle(progress)

    def settle(self, progress: Progress) -> int:
        """Wait until nothing is in flight; return the next number."""
        before = -1
        while before != (before := progress.told()[0]):
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                self.drain(0.05)
        return before

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


@contextmanager
def publishing(stage: Stage, size: int, *, subscribe: bool) -> Iterator[Publisher]:
    """Run a publisher."""
    publisher = Publisher(stage, size, subscribe=subscribe)
    try:
        yield publisher
    finally:
        publisher.close()


def keep_up(start: Callable[[Stage], Process], options: argparse.Namespace) -> list[float]:
    """Return messages/s, CPU seconds of receiver and backbone per million, losses and repaired numbers, messages a
    sync, and the share of the time that syncs took."""
    with Stage(options) as stage, publishing(stage, options.size, subscribe=False) as publisher:
        progress = stage.progress("one.progress")
        receiver = start(stage)
        begun = publisher.connect(progress, receiver)
        sent, moved_at, before = begun, time.monotonic(), begun
        cpus = receiver.cpu_seconds(), stage.backbone.cpu_seconds()
        syncs = progress.syncs()
        started = time.monotonic()
        while (now := time.monotonic()) < started + options.seconds:
            following = progress.told()[0]
            if following != before:
                before, moved_at = following, now
            elif now - moved_at > 0.5:
                sent, moved_at = following, now  # A PUSH was lost and will not arrive.
            if sent - following <= options.window // 2:
                count = options.window - (sent - following)
                publisher.send(count)
                sent += count
            publisher.drain(0.0005)
        elapsed = time.monotonic() - started
        count = progress.told()[0] - begun
        used = receiver.cpu_seconds() - cpus[0], stage.backbone.cpu_seconds() - cpus[1]
        synced, syncing = (now - then for now, then in zip(progress.syncs(), syncs, strict=True))
        publisher.settle(progress)
        following, lost, repaired = progress.told()
        receiver.stop()
        held_all(stage.directory / "one", begun, following - 1)
    waiting = [count / synced if synced else 0.0, syncing / elapsed / 1e9]
    return [count / elapsed, *(1e6 * each / count for each in used), lost, repaired, *waiting]


def held_all(directory: Path, first: int, last: int) -> None:
    """Check that a journal has everything that it delivered."""
    if (directory / directory_name(STREAM)).is_dir():
        reader = open_reader(directory / directory_name(STREAM))
        found = sum(len(block) for block in reader.read(EPOCH, first, last))
        lost = sum(end - start + 1 for start, end in reader.losses(EPOCH, first, last))
        reader.close()
        if found + lost != last - first + 1:
            raise SystemExit(f"The journal has {found:,} of {last - first + 1:,} messages, and {lost:,} lost ones")


def keep(options: argparse.Namespace) -> Tables:
    """Measure and print the sustained rates of receivers; return the table for the docs."""
    live = "--from", "live"
    receivers: dict[str, Callable[[Stage], Process]] = {
        "journal, --fsync batch": lambda stage: stage.journal("one", *live, "--fsync", "batch"),
        "journal, --fsync 1": lambda stage: stage.journal("one", *live, "--fsync", "1"),
        "subscriber": lambda stage: stage.subscriber("one", *live),
        "plain file": lambda stage: stage.plain_file("one"),
    }
    figures: Figures = {name: [] for name in receivers}
    for name in in_turn(receivers, options.rounds, "keep"):
        figures[name].append(keep_up(receivers[name], options))
    heads = ["messages/s", "CPU-s/million", "backbone's", "lost", "repaired", "messages/sync", "syncing"]
    table(f"Kept up with for {options.seconds:g} s, window {options.window}", heads, figures, ratios=2)
    told = {
        "journal, --fsync batch": "journal, by batch",
        "journal, --fsync 1": "journal, each second",
        "subscriber": "subscriber without a disk",
    }
    labels = ("messages/s", "CPU seconds per million messages, s")
    return {"journal-service": by_figure(figures, labels, told)}


def catch_up(options: argparse.Namespace) -> Tables:
    """Measure and print the time to receive the contents of a journal; return the table for the docs."""
    by_datagrams: dict[str, Callable[[Stage], Process]] = {
        "another journal": lambda stage: stage.journal("late", "--from", "1"),
        "another journal, --fsync 1": lambda stage: stage.journal("late", "--from", "1", "--fsync", "1"),
        "subscriber": lambda stage: stage.subscriber("late", "--from", "1"),
    }
    figures: Figures = {}
    for name in in_turn({**by_datagrams, "RemoteJournal": None}, options.rounds, "catch-up"):
        with Stage(options, start_at=options.messages + 1) as stage:
            fill(stage.directory / "one", options)
            stage.progress("one.progress")
            tcp = free_port()
            holder = stage.journal("one", "--serve", f"tcp:{tcp}:interface=127.0.0.1")
            if name in by_datagrams:
                progress = stage.progress("late.progress")
                wait_for(tcp, holder)
                cpu = holder.cpu_seconds(), stage.backbone.cpu_seconds()
                late = by_datagrams[name](stage)
                seconds, its = follow(progress, options.messages, late)
                used = [its, holder.cpu_seconds() - cpu[0], stage.backbone.cpu_seconds() - cpu[1]]
                add(figures, name, options.messages, seconds, used)
            else:
                wait_for(tcp, holder)
                for how in ("blocks", "records"):
                    cpu_before = time.process_time(), holder.cpu_seconds()
                    seconds = by_tcp(tcp, options.messages, how)
                    used = [time.process_time() - cpu_before[0], holder.cpu_seconds() - cpu_before[1], 0.0]
                    add(figures, f"RemoteJournal, as {how}", options.messages, seconds, used)
    heads = ["messages/s", "CPU-s/million", "holder's", "backbone's"]
    table(f"Caught up with {options.messages:,} messages that one journal holds", heads, figures, ratios=2)
    told = {
        "subscriber": "a subscriber",
        **{f"RemoteJournal, as {how}": f"`--serve`, as {how}" for how in ("blocks", "records")},
    }
    return {"catch-up": by_figure(figures, ("messages/s",), told)}


def add(figures: Figures, name: str, count: int, seconds: float, used: list[float]) -> None:
    """Record a result."""
    figures.setdefault(name, []).append([count / seconds, *(1e6 * each / count for each in used)])


def fill(path: Path, options: argparse.Namespace) -> None:
    """Write the contents of the first journal as after a while: compacted except for the end."""
    journal = open_journal(path, STREAM)
    payload, now = os.urandom(options.size), int(time.time() * 1e6)
    for first in range(1, options.messages + 1, 1_000):
        last = min(first + 999, options.messages)
        journal.append([Record(STREAM, EPOCH, each, now + each, payload) for each in range(first, last + 1)])
        journal.write()
    journal.compact()
    journal.close()


def wait_for(port: int, process: Process) -> None:
    """Wait until a TCP port is listening, and one more second, within which the backbone learns of its client."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        process.check()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(1.5)
            return
    raise SystemExit("The journal does not serve")


def follow(progress: Progress, last: int, process: Process) -> tuple[float, float]:
    """Return seconds and CPU seconds from the first delivered message to the last one."""
    began = ended = before = cpu = 0.0
    deadline = time.monotonic() + PATIENCE
    with ProgressBar(total=last, unit=" messages", leave=False, desc="caught up") as bar:
        while not ended:
            following, lost, _ = progress.told()
            now = time.monotonic()
            if following and not began:
                began, cpu = now, process.cpu_seconds()
            if following > before:
                bar.update(following - 1 - bar.n)
                before, deadline = following, now + PATIENCE
            if following > last:
                ended = now
            elif now > deadline:
                process.check()
                raise SystemExit(f"It does not get beyond {following:,}")
            time.sleep(0.002)
    if lost:
        raise SystemExit(f"{lost:,} were lost")
    return ended - began, process.cpu_seconds() - cpu


def by_tcp(port: int, last: int, how: str) -> float:
    """Return the seconds to read everything from a server."""
    started, count = time.monotonic(), 0
    with connect("127.0.0.1", port) as remote:
        for block in remote.reader(STREAM).read(EPOCH, 1, last):
            count += len(block) if how == "blocks" else len(list(block.records()))
    if count != last:
        raise SystemExit(f"The server gave {count:,} of {last:,} records")
    return time.monotonic() - started


def latencies(fsync: str, rate: int, options: argparse.Namespace) -> list[float]:
    """Return the median and the 99th percentile in milliseconds, the actual rate, and messages per commit."""
    with Stage(options) as stage, publishing(stage, options.size, subscribe=True) as publisher:
        progress = stage.progress("one.progress")
        journal = stage.journal("one", "--from", "live", "--fsync", fsync, BENCH_MARKS="1")
        publisher.connect(progress, journal)
        publisher.came.clear()
        commits = len(progress.marks())
        started = due_at = time.monotonic()
        rng = Random(1)  # If sent as regularly as a timer syncs, all messages would wait equally long.
        while (now := time.monotonic()) < started + options.latency_seconds:
            while due_at <= now:
                publisher.send(1)
                due_at += rng.expovariate(rate)
            publisher.drain(max(0.0, min(0.001, due_at - time.monotonic())))
        elapsed = time.monotonic() - started
        came = dict(publisher.came)
        until = time.monotonic() + 1.0 + (0.0 if fsync == "batch" else float(fsync))
        while time.monotonic() < until:
            publisher.drain(0.05)
        marks = progress.marks()
    watermarks = [watermark for watermark, _ in marks]
    found = sorted(
        marks[at][1] - when
        for sequence, when in came.items()
        if (at := bisect_right(watermarks, sequence)) < len(marks)
    )
    if len(found) < 0.9 * len(came):
        raise SystemExit(f"Of {len(came):,} messages only {len(found):,} became durable")
    commits = max(1, len(set(watermarks[commits:])))
    return [median(found) / 1e6, found[len(found) * 99 // 100] / 1e6, len(came) / elapsed, len(came) / commits]


def latency(options: argparse.Namespace) -> Tables:
    """Measure and print the time until a message is durable; return the table for the docs."""
    cases = {f"{fsync}, {rate:,} a second": (fsync, rate) for fsync in FSYNCS for rate in options.rates}
    figures: Figures = {name: [] for name in cases}
    for name in in_turn(cases, options.rounds, "latency"):
        figures[name].append(latencies(*cases[name], options))
    heads = ["median, ms", "99 %, ms", "messages/s", "a commit"]
    table(f"From DELIVER to durable, {options.latency_seconds:g} s each; --fsync and rate", heads, figures, ratios=2)
    rows: dict[str, dict[str, float]] = {}
    for name, (fsync, rate) in cases.items():
        middle, most = medians(figures[name])[:2]
        rows.setdefault(f"{rate:,} messages/s, median", {})[told(fsync)] = middle
        rows.setdefault(f"{rate:,} messages/s, 99 %", {})[told(fsync)] = most
    return {"commit": rows}


def told(fsync: str) -> str:
    """Return a policy as the docs name it."""
    return {"batch": "by batch", "1": "each second"}.get(fsync, f"each {fsync} s")


def by_figure(figures: Figures, labels: Sequence[str], told: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return the first figures of all cases, a row for each label."""
    merged = {told.get(name, name): medians(rounds) for name, rounds in figures.items()}
    return {label: {name: values[at] for name, values in merged.items()} for at, label in enumerate(labels)}


def in_turn(cases: dict[str, Any], rounds: int, what: str) -> Iterator[str]:
    """Iterate ``rounds`` times over the cases, each time in a rotated order, with progress."""
    names = list(cases)
    turns = [names[(turn + index) % len(names)] for turn in range(rounds) for index in range(len(names))]
    yield from ProgressBar(turns, unit=" measurements", desc=what)


def table(title: str, heads: list[str], figures: Figures, *, ratios: int) -> None:
    """Print medians over rounds, and the ratios of the first columns to the first line."""
    merged = {name: [median(column) for column in zip(*rounds, strict=True)] for name, rounds in figures.items()}
    reference = next(iter(merged.values()))
    print(f"\n{title}; medians, ratios are to the first line")
    print(f"{'':<28}" + "".join(f"{head:>16}" + f"{'ratio':>9}" * (at < ratios) for at, head in enumerate(heads)))
    for name, values in merged.items():
        line = f"{name:<28}"
        for at, (value, base) in enumerate(zip(values, reference, strict=True)):
            line += f"{value:>16,.{0 if abs(value) >= 1_000 else 2}f}"
            if at < ratios:
                line += f"{value / base:>9.2f}" if base else f"{'':>9}"
        print(line, flush=True)


def main() -> None:
    """Run the requested measurements."""
    if sys.argv[1:2] == ["--child"]:
        run_plain_file(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS), help="some of %(default)s")
    parser.add_argument("--directory", type=Path, default=tempfile.gettempdir(), help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement of keep [%(default)g]")
    parser.add_argument("--latency-seconds", type=float, default=10.0, help="of each of latency [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of DATA [%(default)s]")
    parser.add_argument("--window", type=int, default=4_096, help="messages under way [%(default)s]")
    parser.add_argument("--messages", type=int, default=1_000_000, help="to catch up with [%(default)s]")
    parser.add_argument(
        "--rates",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[100, 1_000, 10_000],
        help="messages a second of latency [%(default)s]",
    )
    add_option(parser, "journal_service")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(KINDS):
        parser.error(f"--only does not know {', '.join(sorted(unknown))}")
    print(f"{options.size}-byte messages; {options.rounds} rounds; {os.cpu_count()} cores for all processes")
    tables: dict[str, Any] = {}
    for kind, measure in zip(KINDS, (keep, catch_up, latency), strict=True):
        if kind in options.only:
            tables |= measure(options)
    write(options.json, tables, f"medians of {options.rounds} rounds, a rate for {options.seconds:g} s")


if __name__ == "__main__":
    main()
