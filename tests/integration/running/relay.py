"""Proxy between clients and a backbone that may drop, delay or repeat datagrams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.protocol import DatagramProtocol

from fyrehose_twisted.effects import Address


class Crossing(NamedTuple):
    """A datagram between a client and the backbone or a repairing client."""

    datagram: bytes
    source: Address
    client: Address
    port: Any
    """Port from which it is forwarded."""
    to: Address

    def resume(self, port: Any = None) -> None:
        """Forward it to its destination unless the relay is closed."""
        port = self.port if port is None else port
        if port.transport is not None:
            port.transport.write(self.datagram, self.to)


Carry = Callable[[Crossing], None]


class Relay(DatagramProtocol):
    """Proxy of a backbone that passes each datagram in either direction to ``carry``."""

    noisy = False

    def __init__(self, backbone: Address, carry: Carry) -> None:
        self.backbone = backbone
        self.carry = carry
        self.ports: list[Any] = []
        self._upstreams: dict[Address, Upstream] = {}
        self.address: Address = ("127.0.0.1", self.listen(self))

    def listen(self, protocol: DatagramProtocol) -> int:
        """Bind ``protocol`` during the test; return its port."""
        from twisted.internet import reactor

        listening: Any = reactor
        self.ports.append(listening.listenUDP(0, protocol, "127.0.0.1", 65_536))
        return int(self.ports[-1].getHost().port)

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        if addr not in self._upstreams:
            self._upstreams[addr] = Upstream(self, addr)
            self.listen(self._upstreams[addr])
        self.carry(Crossing(datagram, addr, addr, self._upstreams[addr], self.backbone))


class Upstream(DatagramProtocol):
    """Relay socket that represents one client to the backbone and to repairing clients."""

    noisy = False

    def __init__(self, relay: Relay, client: Address) -> None:
        self._relay = relay
        self._client = client

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        self._relay.carry(Crossing(datagram, addr, self._client, self._relay, self._client))


StartRelay = Callable[[Address, Carry], Relay]
