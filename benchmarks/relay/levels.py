"""Latency of single messages through a backbone and relays in a chain.

Each depth has a backbone and relays of its own, which rest while the others are measured. One process publishes to the
backbone, and subscribes to the last relay, with raw sockets.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from parcels.children import in_child
from parcels.nodes import Unfit
from race.bulk import bare_socket
from race.servers import LOOPBACK

from fyrehose_twisted.fyrehose.wire.codec import encode, encode_push
from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive
from relay.trees import Servers

DEPTHS = (0, 1, 2, 3)
"""Numbers of relays between the backbone and the subscriber."""
KEEPALIVE = encode(Keepalive(flags=Flags.NOJOURNAL))
KEEPALIVE_INTERVAL = 0.5
LOST_AFTER = 1.0
WARM_UP = 50
PATIENCE = 10.0

Latencies = dict[int, list["Latency"]]


class Latency(NamedTuple):
    """Seconds from the PUSH to the DELIVER."""

    median: float
    p99: float


class Pair:
    """A publisher at a backbone and a subscriber at the end of the chain."""

    def __init__(self, backbone: int, last: int) -> None:
        self._publisher, self._subscriber = bare_socket(), bare_socket()
        self._publisher.connect((LOOPBACK, backbone))
        self._subscriber.connect((LOOPBACK, last))
        self._subscriber.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._subscriber, select.POLLIN)
        self._keepalive_at = 0.0

    def wait(self, until: float) -> bool:
        """Wait until a DELIVER arrives, or a time. Return whether one has arrived."""
        while True:
            now = time.perf_counter()
            if now >= self._keepalive_at:
                self._subscriber.send(KEEPALIVE)
                self._keepalive_at = now + KEEPALIVE_INTERVAL
            if now >= until:
                return False
            if self._poll.poll((min(until, self._keepalive_at) - now) * 1e3) and self._subscriber.recv(2_048)[0] == 1:
                return True

    def time(self, push: bytes) -> float | None:
        """Publish a message. Return the seconds until it has arrived; ``None`` if it has not."""
        started = time.perf_counter()
        self._publisher.send(push)
        return time.perf_counter() - started if self.wait(started + LOST_AFTER) else None

    def close(self) -> None:
        """Close the sockets."""
        self._publisher.close()
        self._subscriber.send(encode(Keepalive(flags=Flags.NOJOURNAL | Flags.NOSUBSCRIBE)))
        self._subscriber.close()


def time_messages(backbone: int, last: int, count: int, size: int, pause: float) -> Latency:
    """Time messages, one after the other.

    :param pause: seconds between messages, in which all processes go to sleep.
    :raises Unfit: if a message does not arrive.
    """
    pair, push = Pair(backbone, last), encode_push(bytes(size))
    try:
        deadline = time.perf_counter() + PATIENCE
        while pair.time(push) is None:
            if time.perf_counter() > deadline:
                raise Unfit("the chain delivers nothing")
        while pair.wait(time.perf_counter() + 0.1):
            pass
        times = []
        for _ in range(WARM_UP + count):
            took = pair.time(push)
            if took is None:
                raise Unfit(f"a message did not arrive within {LOST_AFTER:g} s")
            times.append(took)
            pair.wait(time.perf_counter() + pause)
    finally:
        pair.close()
    cuts = quantiles(times[WARM_UP:], n=100)
    return Latency(cuts[49], cuts[98])


def measure(
    directory: Path, rounds: int, count: int, size: int, pause: float, progress: Callable[[], object]
) -> Latencies:
    """Return the latencies of all rounds by depth. ``progress`` is called after each of them."""
    found: Latencies = {depth: [] for depth in DEPTHS}
    with Servers(directory) as servers:
        ends = {depth: [server.ports[0] for server in servers.chain(depth)] for depth in DEPTHS}
        for number in range(rounds):
            for depth in DEPTHS[:: -1 if number % 2 else 1]:
                first, last = ends[depth][0], ends[depth][-1]
                patience = PATIENCE + (WARM_UP + count) * (pause + LOST_AFTER)
                found[depth].append(in_child(time_messages, first, last, count, size, pause, patience=patience))
                progress()
    return found
