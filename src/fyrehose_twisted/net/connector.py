"""Connections that are being opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.net.connection import Link, LinkFactory, describe

EndpointFor = Callable[[Any, Address], IStreamClientEndpoint]
"""Given the reactor and an address, returns what connects to it."""


class Dials:
    """Opens connections.

    :param failed: told the address and the reason, in few words, if one does not open; if one does, its link tells.
    :param timeout: seconds that it may take.
    """

    def __init__(
        self, reactor: Any, endpoint_for: EndpointFor, failed: Callable[[Address, str], None], timeout: float
    ) -> None:
        self._reactor = reactor
        self._endpoint_for = endpoint_for
        self._failed = failed
        self._timeout = timeout
        self._dials: set[Deferred[Any]] = set()

    def __len__(self) -> int:
        return len(self._dials)

    def dial(self, address: Address, make_link: Callable[[], Link]) -> None:
        """Open a connection."""
        opened: list[Link] = []

        def build() -> Link:
            opened.append(make_link())
            return opened[-1]

        def failed(failure: Failure) -> None:
            # What was given up is no longer among the dials: an endpoint fails in the same way, with an error of its
            # own, when it is cancelled because the time is over.
            is_wanted = dial in self._dials
            self._dials.discard(dial)
            # If a link has been connected, it has told that it is open, and tells of its end.
            if is_wanted and not any(link.connected for link in opened):
                self._failed(address, describe(failure.value))

        try:
            dial = self._endpoint_for(self._reactor, address).connect(LinkFactory(build))
        except Exception as problem:
            self._failed(address, describe(problem))
            return
        dial.addTimeout(self._timeout, self._reactor)
        self._dials.add(dial)
        dial.addCallbacks(lambda link: self._dials.discard(dial), failed)

    def cancel(self) -> None:
        """Give all of them up; nobody is told."""
        while self._dials:
            self._dials.pop().cancel()
