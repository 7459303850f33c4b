"""Time between the first and the last DELIVER of a message to many subscribers.

The kernel stamps the arrival at each raw socket, which nobody reads meanwhile: the servers have all cores.
"""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from parcels.children import in_child
from parcels.nodes import Unfit
from race.bulk import bare_socket
from race.servers import LOOPBACK

from fyrehose_twisted.fyrehose.wire.codec import encode, encode_push
from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive, PacketType
from relay.crowds import LAYOUTS, TREE, Size
from relay.trees import Servers

SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@qq")
KEEPALIVE, FAREWELL = (
    encode(Keepalive(flags=flags)) for flags in (Flags.NOJOURNAL, Flags.NOJOURNAL | Flags.NOSUBSCRIBE)
)
UNREAD = 0.2
"""Seconds for the arrival of a message everywhere."""
SETTLE = 0.25
"""Seconds after the KEEPALIVEs, for their answers."""
CONNECT_TIME = 30.0
"""Seconds for all subscribers to be acknowledged. A server logs each client that joins or leaves."""


class Spread(NamedTuple):
    """Medians over messages, in seconds.

    :ivar between: from the first to the last arrival of a message.
    :ivar last: from its publication to the last arrival.
    """

    between: float
    last: float


class StampedSubscribers:
    """Raw sockets whose datagrams the kernel stamps.

    :param places: port of the server for each.
    """

    def __init__(self, backbone: int, places: Sequence[int]) -> None:
        self._publisher = bare_socket()
        self._publisher.connect((LOOPBACK, backbone))
        self._sockets = []
        for port in places:
            subscriber = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            subscriber.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            subscriber.connect((LOOPBACK, port))
            subscriber.setblocking(False)
            self._sockets.append(subscriber)

    def connect(self) -> None:
        """Send KEEPALIVEs until the servers answer all of them in time. :raises Unfit: if they do not."""
        deadline = time.monotonic() + CONNECT_TIME
        while self.renew() != len(self._sockets):
            if time.monotonic() > deadline:
                raise Unfit(f"the servers do not acknowledge all subscribers within {CONNECT_TIME:g} s")

    def renew(self) -> int:
        """Send the KEEPALIVEs, and let servers answer. Return the number of answers."""
        for subscriber in self._sockets:
            subscriber.send(KEEPALIVE)
        time.sleep(SETTLE)
        return self._read()[0]

    def time(self, push: bytes) -> Spread | None:
        """Publish a message. Return ``None`` if not all have received it."""
        published = time.time()
        self._publisher.send(push)
        time.sleep(UNREAD)
        _, arrivals = self._read()
        if len(arrivals) != len(self._sockets):
            return None
        return Spread(max(arrivals) - min(arrivals), max(arrivals) - published)

    def close(self) -> None:
        """End the subscriptions and close the sockets."""
        for subscriber in self._sockets:
            subscriber.send(FAREWELL)
        for each in (self._publisher, *self._sockets):
            each.close()

    def _read(self) -> tuple[int, list[float]]:
        """Read everything. Return the number of KEEPALIVE-ACKs, and the times at which DELIVERs arrived."""
        answers, found = 0, []
        for subscriber in self._sockets:
            while True:
                try:
                    data, ancillary, _, _ = subscriber.recvmsg(2_048, 64)
                except BlockingIOError:
                    break
                if data[0] == PacketType.DELIVER:
                    seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
                    found.append(seconds + nanoseconds / 1e9)
                else:
                    answers += 1
        return answers, found


def time_messages(backbone: int, places: Sequence[int], count: int, size: int) -> Spread:
    """Return the medians of messages that are published one by one.

    :raises Unfit: if a message does not arrive everywhere.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    subscribers, push = StampedSubscribers(backbone, places), encode_push(bytes(size))
    try:
        subscribers.connect()
        found = []
        for _ in range(count):
            subscribers.renew()
            spread = subscribers.time(push)
            if spread is None:
                raise Unfit("a message did not arrive at all subscribers")
            found.append(spread)
    finally:
        subscribers.close()
    return Spread(median(each.between for each in found), median(each.last for each in found))


def measure(
    directory: Path, rounds: int, size: Size, count: int, progress: Callable[[], object]
) -> dict[str, list[Spread]]:
    """Return the results of all rounds by layout. ``progress`` is called after each of them."""
    found: dict[str, list[Spread]] = {layout: [] for layout in LAYOUTS}
    with Servers(directory) as tree, Servers(directory) as alone:
        backbone = tree.backbone()
        relays = [tree.relay(backbone) for _ in range(size.relays)]
        single = alone.backbone()
        for number in range(rounds):
            for layout in LAYOUTS[:: -1 if number % 2 else 1]:
                root, serving = (backbone, relays) if layout == TREE else (single, [single])
                places = [
                    serving[index * len(serving) // size.subscribers].ports[0] for index in range(size.subscribers)
                ]
                patience = 2 * CONNECT_TIME + count * 2 * (UNREAD + SETTLE)
                found[layout].append(
                    in_child(time_messages, root.ports[0], places, count, size.payload, patience=patience)
                )
                progress()
    return found
