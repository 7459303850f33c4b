"""A UDP relay that loses and reorders, to stand between clients and a backbone.

Each client gets an upstream socket of its own, so the backbone and other clients see the relay's addresses, as they
would behind address translation.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.protocol import DatagramProtocol
from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.interfaces import IBatchReceiver
from fyrehose_twisted.net.batch import Batch
from fyrehose_twisted.net.names import parse_host_port
from fyrehose_twisted.net.udp import DatagramPort, listen

MAX_CLIENTS = 64


@implementer(IBatchReceiver)
class Upstream(DatagramProtocol):
    """The relay's socket towards the backbone for one client."""

    def __init__(self, relay: Relay, client: Address) -> None:
        self.relay = relay
        self.client = client
        self.port: DatagramPort = listen(relay.reactor, 0, self)

    def batch_received(self, batch: Batch) -> None:
        """The backbone, or a client that repairs, sent something for our client."""
        datagrams = [datagram for datagram, _, _ in batch]
        self.relay.pass_on(datagrams, self.relay.downstream, self.client)


@implementer(IBatchReceiver)
class Relay(DatagramProtocol):
    """Passes datagrams between clients and ``backbone``.

    :param loss: share of datagrams to lose, from 0 to 1, in each direction.
    :param reorder: share of datagrams to hold back for ``delay`` seconds, so that others overtake them.
    """

    def __init__(self, reactor: Any, backbone: Address, loss: float, reorder: float, delay: float, seed: int) -> None:
        self.reactor = reactor
        self.backbone = backbone
        self.loss = loss
        self.reorder = reorder
        self.delay = delay
        self.forwarded = self.lost = self.reordered = 0
        self._random = random.Random(seed).random
        self._upstreams: dict[Address, Upstream] = {}

    def listen(self, port: int = 0) -> int:
        """Start relaying for clients that send to the port that is returned."""
        self.downstream: Any = listen(self.reactor, port, self)
        return int(self.downstream.getHost().port)

    def stop(self) -> None:
        """Close every socket."""
        for port in (self.downstream, *(upstream.port for upstream in self._upstreams.values())):
            port.stopListening()

    def batch_received(self, batch: Batch) -> None:
        """Clients sent something."""
        by_client: dict[Address, list[memoryview]] = {}
        for datagram, client, _ in batch:
            by_client.setdefault(client, []).append(datagram)
        for client, datagrams in by_client.items():
            if client not in self._upstreams:
                if len(self._upstreams) >= MAX_CLIENTS:
                    continue
                self._upstreams[client] = Upstream(self, client)
            self.pass_on(datagrams, self._upstreams[client].port, self.backbone)

    def pass_on(self, datagrams: list[memoryview], port: DatagramPort, peer: Address) -> None:
        """Send what is not lost to ``peer``, some of it later."""
        draw, now = self._random, []
        for datagram in datagrams:
            if draw() < self.loss:
                self.lost += 1
            elif draw() < self.reorder:
                self.reordered += 1
                self.reactor.callLater(self.delay, self._send_late, bytes(datagram), port, peer)
            else:
                now.append(datagram)
        self.forwarded += len(now)
        port.send(now, (peer,))

    def _send_late(self, datagram: bytes, port: DatagramPort, peer: Address) -> None:
        if port.connected:
            self.forwarded += 1
            port.send((datagram,), (peer,))


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
