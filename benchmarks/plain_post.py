"""Bare twisted.web resource that responds to each POST with a number, for comparison. Prints its port."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.web.resource import Resource
from twisted.web.server import Site


class Messages(Resource):
    """Resource that counts the bodies it receives."""

    isLeaf = True
    count = 0

    def render_POST(self, request: Any) -> bytes:
        """Respond with the number of the body."""
        request.content.read()
        self.count += 1
        request.setResponseCode(201)
        request.setHeader(b"Content-Type", b"application/json")
        return b'{"sequence":%d}' % self.count


class QuietSite(Site):
    """Site without an access log, like the frontend's."""

    def log(self, request: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    reactor: Any = installed_reactor
    print(reactor.listenTCP(0, QuietSite(Messages()), interface="127.0.0.1").getHost().port, flush=True)
    reactor.run()
