"""Query service compared with alternatives: rates of history reads and of live streams.

history: records/s of a journal over HTTP, page by page as NDJSON and with a filter that matches one in a hundred; of
`fyrehose journal cat`; of Redis, XRANGE page by page; and of `python -m http.server` with the same lines in a file,
which reads no journal, and is the upper bound of one Python process.

live: messages/s that 1, 10 and 100 clients receive together, each all of them, while this process appends to the
journal as fast as the slowest client reads; and the time from writing a message to `fyrehose pub` until it is on the
streams, through a backbone and its journal on disk, at a fixed rate. Redis has pub/sub, which stores nothing.

beside: ms that `last=10` takes alone, beside eight filters of another address, and beside eight of the same address, on
a journal of large blocks and on one with a block for each record. The filters match nothing, and start over.

stalled: messages/s that 99 of 100 clients receive while the other reads nothing, relative to those where it does.

The server has one core and all other processes another. Clients only receive and count. Medians over rounds that
alternate; rates differ between machines, so compare the ratios of one run. Programs that are not installed are omitted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from race.servers import CLIENT_CORE, Broker, Missing, free_port, pin, start_redis

from fyrehose_twisted.fyrehose.wire.envelope import wrap
from fyrehose_twisted.journal.store import Journal, open_journal
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.record import Record

BIN = Path(sys.executable).parent
PARTS = ("history", "live", "beside", "stalled")
OURS, FILTER, CAT, FILE, REDIS = "query", "query, filter", "journal cat", "http.server", "Redis"
STREAM = "fyrehose://default"
PUBLISHER = b"benchmrk"
RECORDS = "/streams/fyrehose-default/records"
FOLLOW = f"GET {RECORDS} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
PAGE, GROUP, WINDOW = 1_000, 500, 2_000
PATIENCE = 30.0
FILTERS, ASKED = 8, 5
SMALL = 4_096
"""Kernel buffer in bytes of a client that reads nothing."""

Figures = dict[str, dict[str, list[float]]]


class Live(NamedTuple):
    """Live stream of a system.

    :ivar request: first data sent by each client.
    :ivar sign: text contained once in each message.
    :ivar feed: publishes a group.
    """

    port: int
    request: bytes
    sign: bytes
    feed: Callable[[int], object]


def payload(number: int, size: int) -> bytes:
    """Return a message of about ``size`` bytes."""
    head = b'{"n": %d, "kind": "%s", "filling": "' % (number, b"rare" if number % 100 == 0 else b"common")
    return head + b"x" * max(0, size - len(head) - 2) + b'"}'


def fill(journal: Journal, first: int, count: int, size: int) -> None:
    """Append records and sync them."""
    now = time.time_ns() // 1_000
    messages = [(n, wrap(PUBLISHER, n, payload(n, size))) for n in range(first, first + count)]
    journal.append([Record(STREAM, 0, n, now, data) for n, data in messages])
    journal.commit()


@contextmanager
def query(directory: Path, scratch: Path, *options: str) -> Iterator[Broker]:
    """Run the service without limits per client."""
    limits = scratch / "limits.toml"
    limits.write_text("requests-per-client = 1e9\nburst-per-client = 1e9\nstreams-per-client = 256\n")
    port = free_port(socket.SOCK_STREAM)
    command = [str(BIN / "twistd"), "-n", "--pidfile=", "fyrehose-query", f"--directory={directory}"]
    command += [f"--http=tcp:{port}", f"--limits={limits}", *options]
    with running(OURS, command, port, scratch) as server:
        yield server


@contextmanager
def running(name: str, command: list[str], port: int, scratch: Path) -> Iterator[Broker]:
    """Run a server until it is no longer needed."""
    server = Broker(name, command, (port, port), scratch / f"{port}.log")
    try:
        server.wait_for_listener()
        yield server
    finally:
        server.stop()


@contextmanager
def redis(scratch: Path) -> Iterator[Broker]:
    """Run Redis. :raises Missing: if it is not installed."""
    server = start_redis(scratch)
    try:
        yield server
    finally:
        server.stop()


def pages(port: int, path: str) -> int:
    """Return the number of lines, read page by page."""
    found = 0
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        while path:
            connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            found += body.count(b"\n")
            link = answer.headers["Link"]
            path = "" if link is None else link[1 : link.index(">")]
    return found


def entries(port: int) -> int:
    """Return the number of entries of a Redis stream, read page by page."""
    import redis as client

    connection: Any = client.Redis(port=port)
    found, last = 0, "-"
    while page := connection.xrange("s", last, "+", count=PAGE):
        found += len(page)
        last = "(" + page[-1][0].decode()
    connection.close()
    return found


def add_entries(port: int, count: int, size: int) -> None:
    """Fill a Redis stream."""
    import redis as client

    connection: Any = client.Redis(port=port)
    for low in range(1, count + 1, PAGE):
        pipeline = connection.pipeline(transaction=False)
        for number in range(low, min(low + PAGE, count + 1)):
            pipeline.xadd("s", {"d": payload(number, size)}, id=f"{number}-1")
        pipeline.execute()
    connection.close()


def timed(count: int, work: Callable[[], int], expected: int) -> float:
    """Return records/s."""
    began = time.perf_counter()
    found = work()
    took = time.perf_counter() - began
    if found != expected:
        raise SystemExit(f"{found} of {expected} records were read")
    return count / took


def cat(directory: Path) -> int:
    """Read with the command, including its start."""
    command = [str(BIN / "fyrehose"), "journal", "cat", "--format=json", str(directory)]
    return subprocess.run(command, capture_output=True, check=True).stdout.count(b"\n")


def measure_history(options: argparse.Namespace, scratch: Path, missing: set[str]) -> Figures:
    """Return records/s of all alternatives, in all rounds."""
    kept, count, size = scratch / "kept", options.records, options.size
    with closing(open_journal(kept, STREAM)) as journal:
        for first in range(1, count + 1, 10_000):
            fill(journal, first, min(10_000, count + 1 - first), size)
    works: dict[str, tuple[Callable[[], int], int]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(query(kept, scratch))
        works[OURS] = lambda: pages(server.ports[0], RECORDS), count
        works[FILTER] = lambda: pages(server.ports[0], RECORDS + "?where=kind=='rare'"), count // 100
        works[CAT] = lambda: cat(kept), count
        served = scratch / "served"
        served.mkdir()
        with (served / "all").open("wb") as file:
            command = [str(BIN / "fyrehose"), "journal", "cat", "--format=json", str(kept)]
            subprocess.run(command, stdout=file, check=True)
        port = free_port(socket.SOCK_STREAM)
        command_line = [sys.executable, "-m", "http.server", f"--directory={served}", "-b", "127.0.0.1", str(port)]
        stack.enter_context(running(FILE, command_line, port, scratch))
        works[FILE] = lambda: pages(port, "/all"), count
        try:
            other = stack.enter_context(redis(scratch))
        except Missing as error:
            missing.add(f"Redis ({error})")
        else:
            add_entries(other.ports[0], count, size)
            works[REDIS] = lambda: entries(other.ports[0]), count
        found: dict[str, list[float]] = {name: [] for name in works}
        for _ in ProgressBar(range(options.rounds), desc="history", leave=False):
            for name, (work, expected) in works.items():
                found[name].append(timed(count, work, expected))
    return {"records/s": found}


def connect(live: Live, window: int = 0) -> socket.socket:
    """Return a client that has sent its request."""
    opened = socket.socket()
    if window:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    opened.connect(("127.0.0.1", live.port))
    opened.sendall(live.request)
    return opened


def deliver(live: Live, readers: int, count: int, stalled: int = 0) -> float:
    """Return the messages/s received by all readers together."""
    with ExitStack() as stack:
        for _ in range(stalled):
            stack.enter_context(connect(live, SMALL))
        selector = stack.enter_context(selectors.DefaultSelector())
        told, tails = [0] * readers, [b""] * readers
        for number in range(readers):
            client = stack.enter_context(connect(live))
            client.settimeout(PATIENCE)
            tails[number] = client.recv(65_536)  # Skip the response head, or the confirmation of the subscription.
            selector.register(client, selectors.EVENT_READ, number)
        keep = len(live.sign) - 1
        tails = [tail[-keep:] for tail in tails]
        sent, began, last = 0, time.perf_counter(), time.monotonic()
        while (least := min(told)) < count:
            if sent < count and sent - least < WINDOW:
                live.feed(sent + 1)
                sent += GROUP
            for key, _ in selector.select(1.0 if sent - least >= WINDOW or sent >= count else 0):
                data = tails[key.data] + key.fileobj.recv(2**18)  # type: ignore[union-attr]
                told[key.data] += data.count(live.sign)
                tails[key.data] = data[-keep:]
                last = time.monotonic()
            if time.monotonic() - last > PATIENCE:
                raise SystemExit(f"nothing comes any more: {min(told)} of {count}")
        return readers * count / (time.perf_counter() - began)


@contextmanager
def our_stream(scratch: Path, size: int) -> Iterator[Live]:
    """Serve a journal that this process writes."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        journal = stack.enter_context(closing(open_journal(directory, STREAM)))
        journal.begin(0, 1)
        journal.commit()
        server = stack.enter_context(query(directory, scratch))
        yield Live(server.ports[0], FOLLOW, b'\ndata: {"stream"', lambda first: fill(journal, first, GROUP, size))


@contextmanager
def redis_stream(scratch: Path, size: int) -> Iterator[Live]:
    """Serve a channel to which this process publishes."""
    with redis(scratch) as server, socket.create_connection(("127.0.0.1", server.ports[0])) as publisher:

        def feed(first: int) -> None:
            texts = [payload(number, size) for number in range(first, first + GROUP)]
            publisher.sendall(b"".join(_command(b"PUBLISH", b"s", text) for text in texts))
            rest = GROUP
            while rest > 0:
                rest -= publisher.recv(65_536).count(b"\n")

        yield Live(server.ports[0], _command(b"SUBSCRIBE", b"s"), b"$7\r\nmessage\r\n", feed)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def measure_live(options: argparse.Namespace, scratch: Path, missing: set[str]) -> Figures:
    """Return messages/s, and median and 99th percentile of the delay in ms."""
    found: Figures = {}
    for readers in options.readers:
        count = max(4 * WINDOW, min(options.messages, 20 * options.messages // readers)) // GROUP * GROUP
        for _ in ProgressBar(range(options.rounds), desc=f"live, {readers} readers", leave=False):
            for name, serve in ((OURS, our_stream), (REDIS, redis_stream)):
                try:
                    with serve(scratch, options.size) as live:
                        rate = deliver(live, readers, count)
                except Missing as error:
                    missing.add(f"Redis ({error})")
                    continue
                found.setdefault(f"messages/s to {readers}", {}).setdefault(name, []).append(rate)
            for name, times in delays(options, scratch, readers, missing).items():
                cuts = quantiles(times, n=100)
                for what, value in (("median", median(times)), ("99 %", cuts[98])):
                    key = f"ms to {readers}, {what}"
                    found.setdefault(key, {}).setdefault(name, []).append(value * 1_000)
    return found


def delays(options: argparse.Namespace, scratch: Path, readers: int, missing: set[str]) -> dict[str, list[float]]:
    """Return the delay of messages at each client, in seconds."""
    found = {}
    with tempfile.TemporaryDirectory(dir=scratch) as text:
        directory = Path(text)
        port = free_port(socket.SOCK_DGRAM)
        command = [
            str(BIN / "twistd"),
            "-n",
            "--pidfile=",
            f"--rundir={directory}",
            "fyrehose-backbone",
            f"--port={port}",
        ]
        with (directory / "log").open("wb") as log, ExitStack() as stack:
            backbone = stack.enter_context(subprocess.Popen([*command, "--settle-time=0"], stdout=log))
            stack.callback(backbone.terminate)
            address = f"127.0.0.1:{port}"
            server = stack.enter_context(query(directory / "kept", directory, f"--backbone={address}"))
            publisher = stack.enter_context(
                subprocess.Popen([BIN / "fyrehose", "pub", f"--backbone={address}"], stdin=subprocess.PIPE, stderr=log)
            )
            assert publisher.stdin is not None
            pipe = publisher.stdin
            pipe.write(b'"first"\n')
            pipe.flush()
            end = time.monotonic() + PATIENCE
            while b'"records":1' not in _get(server.ports[0], "/streams"):
                if time.monotonic() > end:
                    raise SystemExit("nothing comes into the journal")
                time.sleep(0.05)

            def say(line: bytes) -> None:
                pipe.write(line + b"\n")
                pipe.flush()

            found[OURS] = paced(Live(server.ports[0], FOLLOW, b"", lambda first: None), say, readers, options)
    try:
        with redis_stream(scratch, options.size) as live, socket.create_connection(("127.0.0.1", live.port)) as speaker:
            found[REDIS] = paced(live, lambda line: speaker.sendall(_command(b"PUBLISH", b"s", line)), readers, options)
    except Missing as error:
        missing.add(f"Redis ({error})")
    return found


def _get(port: int, path: str) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


SENT_AT = re.compile(rb'"sent": (\d+)[,}]')


def paced(live: Live, say: Callable[[bytes], object], readers: int, options: argparse.Namespace) -> list[float]:
    """Send at a fixed rate, and return the delay at each client."""
    count = int(options.rate * options.seconds)
    times: list[float] = []
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        rests = [b""] * readers
        for number in range(readers):
            client = stack.enter_context(connect(live))
            client.settimeout(PATIENCE)
            client.recv(65_536)
            selector.register(client, selectors.EVENT_READ, number)
        began = time.monotonic()
        sent, end = 0, began + options.seconds + PATIENCE
        while len(times) < count * readers:
            now = time.monotonic()
            if now > end:
                raise SystemExit(f"{len(times)} of {count * readers} came")
            while sent < count and began + sent / options.rate <= now:
                say(b'{"sent": %d, "filling": "%s"}' % (time.monotonic_ns(), b"x" * (options.size - 50)))
                sent += 1
            due = began + sent / options.rate - time.monotonic() if sent < count else 0.1
            for key, _ in selector.select(max(0.0, due)):
                data = rests[key.data] + key.fileobj.recv(2**18)  # type: ignore[union-attr]
                here = time.monotonic_ns()
                last = 0
                for match in SENT_AT.finditer(data):
                    times.append((here - int(match[1])) / 1e9)
                    last = match.end()
                rests[key.data] = data[last:][-64:]
    return times


def newest(host: str, port: int) -> float:
    """Return the ms that the newest ten records take."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, PATIENCE, (host, 0))) as connection:
        connection.connect()
        began = time.perf_counter()
        connection.request("GET", f"{RECORDS}?last=10")
        found = json.loads(connection.getresponse().read())
        took = time.perf_counter() - began
    if len(found) != 10:
        raise SystemExit(f"{len(found)} of the newest 10 records were read")
    return took * 1_000


@contextmanager
def filters(host: str, port: int) -> Iterator[None]:
    """Let an address read the whole journal through filters, again and again."""
    over, begun = threading.Event(), threading.Barrier(FILTERS + 1)

    def read() -> None:
        path = f"{RECORDS}?where=kind=='none'"
        with closing(http.client.HTTPConnection("127.0.0.1", port, PATIENCE, (host, 0))) as connection:
            connection.request("GET", path)
            begun.wait()
            while not over.is_set():
                connection.getresponse().read()
                connection.request("GET", path)

    readers = [threading.Thread(target=read) for _ in range(FILTERS)]
    for reader in readers:
        reader.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        for reader in readers:
            reader.join()


def measure_beside(options: argparse.Namespace, scratch: Path, missing: set[str]) -> Figures:
    """Return the ms that the newest ten records take."""
    found: Figures = {}
    for kind, group in (("large blocks", GROUP), ("small blocks", 1)):
        with tempfile.TemporaryDirectory(dir=scratch) as text, ExitStack() as stack:
            directory = Path(text)
            with closing(open_journal(directory, STREAM)) as journal:
                for first in range(1, options.beside + 1, group):
                    fill(journal, first, group, options.size)
            port = stack.enter_context(query(directory, scratch)).ports[0]
            here, there = "127.0.0.1", "127.0.0.2"
            times: dict[str, list[float]] = {"alone": [], "beside another's": [], "beside its own": []}
            for _ in ProgressBar(range(options.rounds), desc=f"beside, {kind}", leave=False):
                times["alone"] += [newest(here, port) for _ in range(ASKED)]
                with filters(there, port):
                    times["beside another's"] += [newest(here, port) for _ in range(ASKED)]
                with filters(here, port):
                    times["beside its own"] += [newest(here, port) for _ in range(ASKED)]
            found[f"ms for the newest 10, {kind}"] = times
    return found


def measure_stalled(options: argparse.Namespace, scratch: Path, missing: set[str]) -> Figures:
    """Return messages/s to 99 clients with and without one more that reads nothing."""
    found: dict[str, list[float]] = {"all read": [], "one reads nothing": []}
    count = max(4 * WINDOW, options.messages // 5) // GROUP * GROUP
    for _ in ProgressBar(range(options.rounds), desc="stalled", leave=False):
        for name, stalled in (("all read", 0), ("one reads nothing", 1)):
            with our_stream(scratch, options.size) as live:
                found[name].append(deliver(live, 99, count, stalled))
    return {"messages/s to 99": found}


def report(figures: Figures) -> None:
    """Print medians, and the ratio of the first of a kind to each of the others."""
    for what, systems in figures.items():
        print(f"\n{what}")
        basis = next(iter(systems.values()))
        for name, values in systems.items():
            ratios = [ours / theirs for ours, theirs in zip(basis, values, strict=True)]
            spread = f"{min(values):>12,.1f} to {max(values):>12,.1f}"
            print(f"  {name:<20} {median(values):>12,.1f} {spread}   first by this: {median(ratios):.2f}")


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="what to measure [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turns [%(default)s]")
    parser.add_argument("--records", type=int, default=200_000, help="records of history [%(default)s]")
    parser.add_argument("--beside", type=int, default=20_000, help="records that filters look at [%(default)s]")
    parser.add_argument("--messages", type=int, default=100_000, help="messages to one client [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a payload [%(default)s]")
    parser.add_argument("--rate", type=float, default=200.0, help="messages/s for delays [%(default)s]")
    parser.add_argument("--seconds", type=float, default=3.0, help="for which delays are measured [%(default)s]")
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 10, 100], help="[%(default)s]")
    parser.add_argument("--json", type=Path, help="file to write everything to")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parse()
    pin(CLIENT_CORE)
    parts = dict(zip(PARTS, (measure_history, measure_live, measure_beside, measure_stalled), strict=True))
    figures: Figures = {}
    missing: set[str] = set()
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            figures |= parts[name](options, Path(scratch), missing)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, medians of {options.rounds} rounds, from and to")
    report(figures)
    for one in sorted(missing):
        print(f"\nleft out: {one}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
