"""Lower bound of Twisted in a process of its own: HTTP with a constant response to every POST, and a TCP echo."""

from __future__ import annotations

import sys

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.web.resource import Resource
from twisted.web.server import Site


class Created(Resource):
    """Resource that answers 201 and a little JSON."""

    isLeaf = True
    count = 0

    def render_POST(self, request: object) -> bytes:
        """Read the body, and count."""
        request.content.getvalue()
        self.count += 1
        request.setResponseCode(201)
        request.setHeader(b"content-type", b"application/json")
        return b'{"sequence":%d}' % self.count


class Quiet(Site):
    """Site without access log, like that of a node."""

    def log(self, request: object) -> None:
        """Twisted: a request is done."""


class Echo(Protocol):
    """Protocol that echoes received data."""

    def connectionMade(self) -> None:
        """Disable Nagle's algorithm."""
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Echo data."""
        self.transport.write(data)


def main() -> None:
    """Listen at two ports, and print that of HTTP."""
    web = reactor.listenTCP(int(sys.argv[1]), Quiet(Created()), interface="127.0.0.1")
    reactor.listenTCP(int(sys.argv[2]), Factory.forProtocol(Echo), interface="127.0.0.1")
    print(web.getHost().port, flush=True)
    reactor.run()


if __name__ == "__main__":
    main()
