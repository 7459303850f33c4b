"""Frontend compared with the library and with Redis: acknowledged messages/s.

Each client is a process that sends pre-encoded requests and counts replies, so that its own cost is negligible: lines
and NDJSON on a few connections, as fast as they are accepted; single messages, one at a time on each of many
connections. `PublisherProtocol` publishes to the same backbone without the frontend. Redis executes `XADD`, which also
returns an id per message, in the same two ways; it is omitted if it is not installed. A bare twisted.web resource,
which publishes nothing, shows the cost of HTTP.

Rates depend on the machine; compare the ratios of one run. Medians over rounds that alternate.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from race.machine import describe
from race.servers import Broker, Missing, start_ours, start_redis
from results import add_option, write

from fyrehose_twisted.process.progress import ProgressBar

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 30.0
LIMITS = ("messages-per-client", "bytes-per-client", "requests-per-client")
NDJSON_LINES = 1_000
PLAIN = "twisted.web, single POSTs"
WARM_UP = 0.5
FULL_QUEUE = 65_536
"""Messages that fill the send queue of a publisher, which then takes what it publishes."""


class Kind(NamedTuple):
    """Way of publishing of a client.

    :ivar unit: data sent at once.
    :ivar messages: number of messages in a unit.
    :ivar sign: text contained once in each reply.
    :ivar answers: number of replies per unit.
    :ivar window: units in flight per connection.
    """

    unit: bytes
    messages: int
    sign: bytes
    answers: int
    connections: int
    window: int


TOLD = {
    "XADD, pipelined": "Redis, XADD, pipelined",
    "XADD, single": "Redis, XADD",
    "single POSTs": "frontend",
    PLAIN: "bare twisted.web",
}
"""Names in the docs, if others."""


class Result(NamedTuple):
    """Result of one round of one client."""

    messages_per_second: float
    cpu: float
    """CPU time of the service per message, in µs."""


def request(body: bytes, kind: str) -> bytes:
    """Return a publish request."""
    head = f"POST /messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def kinds(size: int) -> dict[str, Kind]:
    """Return how clients of the frontend and of Redis publish messages of ``size`` bytes."""
    message = b'"' + b"x" * (size - 2) + b'"'
    add = b"*8\r\n$4\r\nXADD\r\n$1\r\ns\r\n$6\r\nMAXLEN\r\n$1\r\n~\r\n$6\r\n100000\r\n$1\r\n*\r\n"
    add += b"$1\r\nd\r\n$%d\r\n%b\r\n" % (size, message)
    single = request(message, "application/octet-stream")
    batch = request(b"\n".join([message] * NDJSON_LINES), "application/x-ndjson")
    created = b"HTTP/1.1 201"
    return {
        "lines": Kind((message + b"\n") * 100, 100, b"\n", 100, 4, 10),
        "NDJSON": Kind(batch, NDJSON_LINES, created, 1, 4, 1),
        "single POSTs": Kind(single, 1, created, 1, 16, 1),
        "XADD, pipelined": Kind(add * 100, 100, b"$", 100, 4, 10),
        "XADD, single": Kind(add, 1, b"$", 1, 16, 1),
    }


class Connection:
    """A socket and its units in flight."""

    def __init__(self, port: int, kind: Kind) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.kind = kind
        self.sent = self.answered = 0
        self._unsent = memoryview(b"")
        self._tail = b""

    def send(self) -> None:
        """Send as much as the window and the socket permit."""
        kind = self.kind
        while True:
            if not self._unsent:
                if self.sent * kind.answers - self.answered >= kind.window * kind.answers:
                    return
                self._unsent = memoryview(kind.unit)
                self.sent += 1
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def receive(self) -> None:
        """Count received replies."""
        try:
            data = self.socket.recv(2**18)
        except BlockingIOError:
            return
        if not data or re.match(rb"error|-ERR|HTTP/1.1 [45]", data):
            raise SystemExit(f"answered with {data[:200]!r}")
        sign = self.kind.sign
        self.answered += (self._tail + data).count(sign)
        self._tail = data[len(data) - len(sign) + 1 :] if len(sign) > 1 else b""


def load(port: int, kind: Kind, seconds: float) -> float:
    """Publish for a while and return messages/s."""
    connections = [Connection(port, kind) for _ in range(kind.connections)]
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()

        def run(until: float) -> int:
            while time.monotonic() < until:
                for key, _ in selector.select(0.01):
                    key.data.receive()
                for connection in connections:
                    connection.send()
            return sum(connection.answered for connection in connections)

        before = run(time.monotonic() + WARM_UP)
        started = time.monotonic()
        count = run(started + seconds) - before
        elapsed = time.monotonic() - started
    for connection in connections:
        connection.socket.close()
    return count / kind.answers * kind.messages / elapsed


def publish_directly(port: int, size: int, seconds: float, single: bool) -> None:
    """Publish with the library, as fast as its queue permits or 16 messages at a time, and print messages/s."""
    from twisted.internet.defer import Deferred, gatherResults
    from twisted.internet.task import react

    from fyrehose_twisted.fyrehose.config import ClientConfig
    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    async def publish(reactor: Any) -> None:
        config = ClientConfig(subscribe=False, journal=False)
        publisher = await join(reactor, PublisherProtocol(config), f"127.0.0.1:{port}")
        message, count, end = b"x" * size, 0, time.monotonic() + WARM_UP + seconds
        counted_from = end - seconds

        def came(numbers: Any, many: int) -> None:
            nonlocal count
            if counted_from <= time.monotonic() < end:
                count += many

        async def one_by_one() -> None:
            while time.monotonic() < end:
                await publisher.publish(message).addCallback(came, 1)

        if single:
            await gatherResults([Deferred.fromCoroutine(one_by_one()) for _ in range(16)])
        else:
            while time.monotonic() < end:
                await publisher.when_room()
                publisher.publish_many([message] * 256).addCallbacks(came, lambda failure: None, (256,))
        print(count / seconds, flush=True)
        await publisher.leave()

    react(publish)


def publish_input(port: int, size: int, seconds: float) -> None:
    """Publish by ``fyrehose pub``, as fast as it reads its input, and print messages/s."""
    block = (b"x" * (size - 1) + b"\n") * 256
    command = [str(Path(sys.executable).with_name("fyrehose")), "pub", "-b", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for _ in range(FULL_QUEUE // 256):
            process.stdin.write(block)
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            process.stdin.write(block)
            count += 256
        print(count / seconds, flush=True)
        process.stdin.close()


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def in_a_process(seconds: float, *arguments: object) -> float:
    """Run a client in a process of its own and return messages/s."""
    command = [sys.executable, __file__, "--client", *map(str, arguments), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    return float(done.stdout)


@contextmanager
def plain_post() -> Iterator[tuple[int, int]]:
    """Start a bare resource; return its process id and port."""
    command = [sys.executable, str(Path(__file__).parent / "parcels" / "bare.py"), "0", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def frontend(directory: Path, backbone: int) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Start a frontend without rate limits; return it with its ports for HTTP and lines."""
    limits, log = directory / "limits.toml", directory / "frontend.log"
    limits.write_text("".join(f"{name} = {10**9}\n" for name in LIMITS))
    command = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", f"--logfile={log}"]
    command += ["fyrehose-frontend", f"--backbone=127.0.0.1:{backbone}", "--http=tcp:0", "--lines=tcp:0"]
    process = subprocess.Popen([*command, f"--limits={limits}"])
    try:
        deadline, ports = time.monotonic() + PATIENCE, []
        while len(ports) < 2:
            ports = re.findall(
                r"--(?:http|lines): listening on 127.0.0.1:(\d+)", log.read_text() if log.exists() else ""
            )
            if time.monotonic() > deadline:
                raise SystemExit(f"the frontend does not listen: {log.read_text()}")
            time.sleep(0.05)
        yield process, int(ports[0]), int(ports[1])
    finally:
        process.terminate()
        process.wait()


def measure(options: argparse.Namespace, directory: Path) -> dict[str, list[Result]]:
    """Run the rounds."""
    backbone = start_ours(directory)
    try:
        redis: Broker | None = start_redis(directory)
    except Missing as missing:
        print(f"redis-server is {missing}", file=sys.stderr)
        redis = None
    results: dict[str, list[Result]] = {}
    try:
        with frontend(directory, backbone.ports[0]) as (process, http, lines), plain_post() as (plain_pid, plain):
            runs: list[tuple[str, str, int, int]] = [
                ("PublisherProtocol", "direct", backbone.ports[0], backbone.process.pid),
                ("fyrehose pub", "pub", backbone.ports[0], backbone.process.pid),
                ("lines", "lines", lines, process.pid),
                ("NDJSON", "NDJSON", http, process.pid),
                ("PublisherProtocol, single", "direct single", backbone.ports[0], backbone.process.pid),
                ("single POSTs", "single POSTs", http, process.pid),
                (PLAIN, "single POSTs", plain, plain_pid),
            ]
            if redis is not None:
                pid, port = redis.process.pid, redis.ports[0]
                runs += [(kind, kind, port, pid) for kind in ("XADD, pipelined", "XADD, single")]
            for _ in ProgressBar(range(options.rounds), unit=" rounds", desc="measured"):
                for name, kind, port, pid in runs:
                    before = cpu_seconds(pid)
                    rate = in_a_process(options.seconds, kind, port, "--size", options.size)
                    used = cpu_seconds(pid) - before
                    cost = used / (rate * (options.seconds + WARM_UP)) * 1e6
                    results.setdefault(name, []).append(Result(rate, cost))
    finally:
        for broker in (backbone, redis):
            if broker is not None:
                broker.stop()
    return results


def report(results: dict[str, list[Result]], options: argparse.Namespace) -> None:
    """Print medians and ratios to the library."""
    print(f"{options.size}-byte messages; medians of {options.rounds} rounds of {options.seconds:g} s. CPU is that of")
    print("the service that is spoken to: backbone, frontend or Redis. A ratio is to the PublisherProtocol above it.\n")
    print(f"{'':<28}{'messages/s':>12}{'ratio':>8}{'CPU, µs each':>14}")
    rates = {name: median(result.messages_per_second for result in each) for name, each in results.items()}
    bulk, single = rates["PublisherProtocol"], rates["PublisherProtocol, single"]
    for name, rate in rates.items():
        ratio = rate / (single if "single" in name else bulk)
        print(f"{name:<28}{rate:>12,.0f}{ratio:>8.2f}{median(result.cpu for result in results[name]):>14.1f}")
    posts, plain = (median(one.cpu for one in results[name]) for name in ("single POSTs", PLAIN))
    print(f"\nSingle POSTs, of twisted.web: {rates['single POSTs'] / rates[PLAIN]:.2f} of the rate,", end=" ")
    print(f"{plain / posts:.2f} for each CPU-second")
    print(f"NDJSON: {rates['NDJSON'] / NDJSON_LINES:,.0f} batches/s of {NDJSON_LINES:,} lines")
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s"
    write(options.json, tables(results), how, describe(), rounds=results)


def tables(results: dict[str, list[Result]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the tables for the docs: ways to publish many messages, and single POSTs."""
    found = {}
    for table, rate, names in (
        ("pub", "messages/s", ("fyrehose pub", "lines", "NDJSON", "PublisherProtocol", "XADD, pipelined")),
        ("posts", "POSTs/s", ("single POSTs", PLAIN, "XADD, single")),
    ):
        medians = {
            TOLD.get(name, name): Result(*map(median, zip(*results[name], strict=True)))
            for name in names
            if name in results
        }
        found[table] = {
            rate: {name: each.messages_per_second for name, each in medians.items()},
            "CPU of the service, µs": {name: each.cpu for name, each in medians.items()},
        }
    return found


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each client, each round [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    add_option(parser, "frontend")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        kind, port = options.client[0], int(options.client[1])
        if kind.startswith("direct"):
            publish_directly(port, options.size, options.seconds, kind == "direct single")
        elif kind == "pub":
            publish_input(port, options.size, options.seconds)
        else:
            print(load(port, kinds(options.size)[kind], options.seconds))
        return
    with tempfile.TemporaryDirectory() as directory:
        report(measure(options, Path(directory)), options)


if __name__ == "__main__":
    main()
