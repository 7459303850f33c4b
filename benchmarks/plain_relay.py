"""Naive relay: a DatagramProtocol that numbers and fans out one datagram at a time."""

from __future__ import annotations

import sys

from twisted.internet import reactor
from twisted.internet.protocol import DatagramProtocol


class PlainRelay(DatagramProtocol):
    """Implements only the part of the wire protocol that the benchmark's load needs."""

    def __init__(self) -> None:
        self.clients: dict[tuple[str, int], None] = {}
        self.sequence = 0

    def datagramReceived(self, datagram: bytes, addr: tuple[str, int]) -> None:
        """Number a PUSH and send it to every sender of a KEEPALIVE."""
        if datagram[0] == 0x02:
            self.sequence += 1
            message = b"\x01" + datagram[1:3] + self.sequence.to_bytes(6, "big") + datagram[9:]
            for client in self.clients:
                self.transport.write(message, client)
        elif datagram[0] == 0x10:
            self.clients[addr] = None
            self.transport.write(b"\x20" + datagram[13:], addr)


if __name__ == "__main__":
    port = reactor.listenUDP(int(sys.argv[1]), PlainRelay(), interface="127.0.0.1", maxPacketSize=65536)
    reactor.run()
