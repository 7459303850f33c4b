"""Backbone compared with a plain DatagramProtocol relay: messages/s, deliveries per CPU-second, round trips.

One load process publishes through each server in turn, a window of messages at a time, and drains four subscribers.
Rates depend on the machine; compare the ratios of one run. Medians over rounds that alternate.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from results import add_option, write

from fyrehose_twisted.fyrehose.wire.codec import encode, encode_push
from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive
from fyrehose_twisted.process.progress import ProgressBar

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")


class Result(NamedTuple):
    """Result of one round with one server."""

    messages_per_second: float
    deliveries_per_cpu_second: float
    median_round_trip: float
    p99_round_trip: float
    loss: float


class Server:
    """A server process and its CPU time."""

    def __init__(self, name: str, command: list[str], port: int) -> None:
        self.name = name
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.address = ("127.0.0.1", port)

    def cpu_seconds(self) -> float:
        """Return its user and system time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


class Load:
    """Raw subscriber sockets, the first of which also publishes."""

    def __init__(self, server: Server, subscribers: int) -> None:
        self.server = server
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(subscribers)]
        for each in self.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        self.poll = select.epoll()
        for each in self.sockets:
            self.poll.register(each, select.EPOLLIN)
        self.by_descriptor = {each.fileno(): index for index, each in enumerate(self.sockets)}
        self.buffer = bytearray(65_536)
        self.keepalive_at = 0.0
        self.delivered = [0] * subscribers
        self.acknowledged = 0

    def keep_alive(self) -> None:
        """Send KEEPALIVEs when they are due."""
        if time.monotonic() >= self.keepalive_at:
            for each in self.sockets:
                each.sendto(encode(Keepalive(flags=Flags.NOJOURNAL)), self.server.address)
            self.keepalive_at = time.monotonic() + 0.5

    def drain(self, timeout: float) -> None:
        """Receive for at most ``timeout`` seconds."""
        self.keep_alive()
        for descriptor, _ in self.poll.poll(timeout):
            index = self.by_descriptor[descriptor]
            receive, buffer, count = self.sockets[index].recv_into, self.buffer, 0
            try:
                while True:
                    receive(buffer)
                    if buffer[0] == 1:
                        count += 1
                    else:
                        self.acknowledged += 1
            except BlockingIOError:
                self.delivered[index] += count

    def connect(self) -> None:
        """Wait until the server knows every subscriber and numbers messages."""
        deadline = time.monotonic() + 15
        while self.acknowledged < len(self.sockets):
            self.keepalive_at = 0.0
            self.drain(0.05)
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.server.name} does not answer")
        while min(self.delivered) == 0:
            self.sockets[0].sendto(encode_push(b"ready?"), self.server.address)
            self.drain(0.05)
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.server.name} delivers nothing")
        self.settle()

    def wait_for_silence(self) -> None:
        """Wait until nothing is in flight."""
        before = None
        while before != self.delivered:
            before = list(self.delivered)
            self.drain(0.1)

    def settle(self) -> None:
        """Wait until nothing is in flight, and reset the counters."""
        self.wait_for_silence()
        self.delivered = [0] * len(self.sockets)

    def throughput(self, seconds: float, window: int, size: int) -> tuple[float, float, float]:
        """Return messages/s, deliveries per CPU-second of the server, and the share of deliveries lost."""
        push, publisher, address = encode_push(bytes(size)), self.sockets[0], self.server.address
        sent, stalled_at = 0, 0.0
        started, cpu = time.monotonic(), self.server.cpu_seconds()
        while (now := time.monotonic()) < started + seconds:
            if sent - self.delivered[0] <= window // 2:
                for _ in range(window - (sent - self.delivered[0])):
                    publisher.sendto(push, address)
                    sent += 1
                stalled_at = now
            elif now - stalled_at > 0.2:
                sent = self.delivered[0]  # The rest was lost and will not arrive.
            self.drain(0.001)
        elapsed, used = time.monotonic() - started, self.server.cpu_seconds() - cpu
        rate, deliveries = self.delivered[0] / elapsed, sum(self.delivered)
        self.wait_for_silence()
        lost = 1 - min(self.delivered) / max(self.delivered)
        self.settle()
        return rate, deliveries / used, lost

    def round_trips(self, count: int, size: int) -> list[float]:
        """Return seconds from PUSH to DELIVER, one message at a time."""
        push, publisher, address = encode_push(bytes(size)), self.sockets[0], self.server.address
        times = []
        for _ in range(count):
            seen, started = self.delivered[0], time.perf_counter()
            publisher.sendto(push, address)
            while self.delivered[0] == seen and time.perf_counter() < started + 1:
                self.drain(0.01)
            times.append(time.perf_counter() - started)
        self.settle()
        return times

    def close(self) -> None:
        """Close the sockets."""
        self.poll.close()
        for each in self.sockets:
            each.close()


def run(server: Server, options: argparse.Namespace) -> Result:
    """Measure one round."""
    load = Load(server, options.subscribers)
    try:
        load.connect()
        rate, per_cpu, lost = load.throughput(options.seconds, options.window, options.size)
        times = load.round_trips(options.round_trips, options.size)
    finally:
        load.close()
    return Result(rate, per_cpu, median(times), quantiles(times, n=100)[98], lost)


def free_port() -> int:
    """Return a UDP port that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of throughput, each round [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of DATA [%(default)s]")
    parser.add_argument("--subscribers", type=int, default=4)
    parser.add_argument("--window", type=int, default=256, help="messages under way [%(default)s]")
    parser.add_argument("--round-trips", type=int, default=1_000)
    add_option(parser, "backbone")
    options = parser.parse_args()
    results: dict[str, list[Result]] = {"plain relay": [], "backbone": []}
    plain, backbone = free_port(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        twistd = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "fyrehose-backbone"]
        state = ["--state", f"{directory}/state", "--start-at=1", "--settle-time=0", "--port", str(backbone)]
        servers = [
            Server("plain relay", [sys.executable, str(HERE / "plain_relay.py"), str(plain)], plain),
            Server("backbone", [*twistd, *state], backbone),
        ]
        try:
            for _ in ProgressBar(range(options.rounds), unit=" rounds", desc="measured"):
                for server in servers:
                    results[server.name].append(run(server, options))
        finally:
            for server in servers:
                server.process.terminate()
                server.process.wait()
    print(f"{options.size}-byte messages, {options.subscribers} subscribers, window {options.window}; medians of")
    print(
        f"{options.rounds} rounds of {options.seconds:g} s. The backbone repairs, checks and survives a kill; the plain"
    )
    print("relay does none of that.\n")
    print(f"{'':<32}{'plain relay':>14}{'backbone':>14}{'ratio':>8}")
    table: dict[str, dict[str, float]] = {}
    labels = ("messages/s", "deliveries per CPU-second", "round trip, median, µs", "round trip, 99 %, µs", "lost, %")
    for index, (label, scale) in enumerate(zip(labels, (1, 1, 1e6, 1e6, 100), strict=True)):
        theirs, ours = (median(result[index] for result in results[name]) * scale for name in results)
        table[label] = {"backbone": ours, "plain relay": theirs}
        ratio = f"{ours / theirs:.2f}" if theirs else ""
        print(f"{label:<32}{theirs:>14,.1f}{ours:>14,.1f}{ratio:>8}")
    write(options.json, {"alone": table}, f"medians of {options.rounds} rounds of {options.seconds:g} s")


if __name__ == "__main__":
    main()
