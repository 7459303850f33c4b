"""A UDP relay between clients and a backbone that loses and reorders datagrams.

Each client gets an upstream socket of its own. The backbone and other clients see the relay's addresses, as with
address translation.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import DatagramProtocol
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.interfaces import IBatchReceiver
from fyrehose_twisted.net.addresses import parse_host_port
from fyrehose_twisted.net.udp import DatagramPort, listen

MAX_CLIENTS = 64


class Fate:
    """Chooses datagrams to lose or delay, by drawing the distance to the next one.

    So bursts stay whole in between, which they would not if each datagram were drawn separately.

    :param loss: share to lose.
    :param reorder: share of the others to hold back.
    """

    def __init__(self, loss: float, reorder: float, seed: int) -> None:
        self._random = random.Random(seed).random
        self._share = loss + (1 - loss) * reorder
        self._lost_of_share = loss / self._share if self._share else 0.0
        self._untouched = self._distance()

    def next_among(self, count: int) -> int | None:
        """Return how many of the next ``count`` datagrams pass before one is lost or delayed; ``None`` if all pass."""
        if self._untouched >= count:
            self._untouched -= count
            return None
        passing, self._untouched = self._untouched, self._distance()
        return passing

    def draw_loss(self) -> bool:
        """Return whether the chosen datagram is lost; otherwise it is delayed."""
        return self._random() < self._lost_of_share

    def _distance(self) -> int:
        if self._share <= 0:
            return sys.maxsize
        if self._share >= 1:
            return 0
        return int(math.log(1 - self._random()) / math.log1p(-self._share))


@implementer(IBatchReceiver)
class Upstream(DatagramProtocol):
    """Socket towards the backbone for one client."""

    def __init__(self, relay: Relay, client: Address) -> None:
        self.relay = relay
        self.client = client
        self.port: DatagramPort = self._listen()

    def _listen(self) -> DatagramPort:
        if self.relay.far_side is not None:
            with suppress(CannotListenError):
                return listen(self.relay.reactor, self.client[1], self, self.relay.far_side)
        return listen(self.relay.reactor, 0, self)

    def batch_received(self, batch: Batch) -> None:
        """Forward datagrams from the backbone, or from a client that repairs, to the client."""
        self.relay.forward(batch, batch.runs, self.relay.downstream, self.client)


@implementer(IBatchReceiver)
class Relay(DatagramProtocol):
    """Relay of datagrams between clients and ``backbone``.

    :param loss: share of datagrams to lose, from 0 to 1, in each direction.
    :param reorder: share of datagrams to delay by ``delay`` seconds, so that later ones overtake them.
    :param far_side: host of the sockets towards the backbone, which have the ports of the clients then if these are
        free there; by default loopback and any free port.
    """

    def __init__(
        self,
        reactor: Any,
        backbone: Address,
        loss: float,
        reorder: float,
        delay: float,
        seed: int,
        far_side: str | None = None,
    ) -> None:
        self.reactor = reactor
        self.backbone = backbone
        self.delay = delay
        self.far_side = far_side
        self.forwarded = self.lost = self.reordered = 0
        self._fate = Fate(loss, reorder, seed)
        self._upstreams: dict[Address, Upstream] = {}

    def listen(self, port: int = 0) -> int:
        """Open the port for clients and return its number."""
        self.downstream: Any = listen(self.reactor, port, self)
        return int(self.downstream.getHost().port)

    def stop(self) -> None:
        """Close every socket."""
        for port in (self.downstream, *(upstream.port for upstream in self._upstreams.values())):
            port.stopListening()

    def batch_received(self, batch: Batch) -> None:
        """Forward datagrams from clients to the backbone."""
        by_client: dict[Address, list[DatagramRun]] = {}
        for run in batch.runs:
            by_client.setdefault(run.peer, []).append(run)
        for client, runs in by_client.items():
            if client not in self._upstreams:
                if len(self._upstreams) >= MAX_CLIENTS:
                    continue
                self._upstreams[client] = Upstream(self, client)
            self.forward(batch, runs, self._upstreams[client].port, self.backbone)

    def forward(self, batch: Batch, runs: Iterable[DatagramRun], port: DatagramPort, peer: Address) -> None:
        """Send datagrams to ``peer``, except for lost ones, some of them delayed."""
        now: list[Burst] = []
        late: list[bytes] = []
        for run in runs:
            start, left, size = run.start, run.rows, max(1, run.size)
            while (passing := self._fate.next_among(left)) is not None:
                hit = start + passing * size
                if passing:
                    now.append(Burst(batch.view[start:hit], size))
                    self.forwarded += passing
                start, left = min(hit + size, run.stop), left - passing - 1
                if self._fate.draw_loss():
                    self.lost += 1
                else:
                    late.append(bytes(batch.view[hit:start]))
            if left:
                now.append(Burst(batch.view[start : run.stop], size))
                self.forwarded += left
        if now:
            port.send(now, (peer,))
        if late:
            self.reordered += len(late)
            self.reactor.callLater(self.delay, self._send_late, late, port, peer)

    def _send_late(self, datagrams: list[bytes], port: DatagramPort, peer: Address) -> None:
        if port.connected:
            self.forwarded += len(datagrams)
            port.send(datagrams, (peer,))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", type=parse_host_port, default=("127.0.0.1", 2323), metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=2424, help="UDP port for clients [%(default)s]")
    parser.add_argument("--loss", type=float, default=0.1, help="share to lose, 0 to 1 [%(default)s]")
    parser.add_argument("--reorder", type=float, default=0.1, help="share to hold back, 0 to 1 [%(default)s]")
    parser.add_argument("--delay", type=float, default=0.005, help="seconds to hold back [%(default)s]")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of what is lost")
    options = parser.parse_args()
    relay = Relay(installed_reactor, options.backbone, options.loss, options.reorder, options.delay, options.seed)
    print(f"relaying 127.0.0.1:{relay.listen(options.port)}, seed {options.seed}", flush=True)
    reactor: Any = installed_reactor  # The reactor is a module that becomes an object.
    reactor.run()
    print(f"{relay.forwarded:,} passed, {relay.lost:,} lost, {relay.reordered:,} overtaken")
