"""Connections that are being opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.net.link import Link, LinkFactory, describe

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
            # If a link has been connected, it has told that it is open, and tells of its end.
            if not any(link.connected for link in opened):
                self._not_opened(address, failure.value)

        def over(result: Any) -> Any:
            self._dials.discard(dial)
            return result

        try:
            dial = self._endpoint_for(self._reactor, address).connect(LinkFactory(build))
        except Exception as problem:
            self._not_opened(address, problem)
            return
        dial.addTimeout(self._timeout, self._reactor)
        self._dials.add(dial)
        dial.addBoth(over).addErrback(failed)

    def cancel(self) -> None:
        """Give all of them up; nobody is told."""
        for dial in tuple(self._dials):
            dial.cancel()

    def _not_opened(self, address: Address, problem: BaseException | None) -> None:
        if not isinstance(problem, CancelledError | ConnectingCancelledError):
            self._failed(address, describe(problem))
