"""Connections that are being opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.net.connection import ConnectionFactory, NodeConnection, describe_failure

EndpointFactory = Callable[[Any, Address], IStreamClientEndpoint]
"""Given the reactor and an address, returns what connects to it."""


class PendingConnects:
    """Opens connections.

    :param failed: told the address and the reason, in few words, if one does not open; if one does, its link tells.
    :param timeout: seconds that it may take.
    """

    def __init__(
        self,
        reactor: Any,
        endpoint_factory: EndpointFactory,
        on_failure: Callable[[Address, str], None],
        timeout: float,
    ) -> None:
        self._reactor = reactor
        self._endpoint_factory = endpoint_factory
        self._on_failure = on_failure
        self._timeout = timeout
        self._pending: set[Deferred[Any]] = set()

    def __len__(self) -> int:
        return len(self._pending)

    def connect(self, address: Address, make_connection: Callable[[], NodeConnection]) -> None:
        """Open a connection."""
        opened: list[NodeConnection] = []

        def build() -> NodeConnection:
            opened.append(make_connection())
            return opened[-1]

        def failed(failure: Failure) -> None:
            # What was given up is no longer among the dials: an endpoint fails in the same way, with an error of its
            # own, when it is cancelled because the time is over.
            is_wanted = dial in self._pending
            self._pending.discard(dial)
            # If a link has been connected, it has told that it is open, and tells of its end.
            if is_wanted and not any(link.connected for link in opened):
                self._on_failure(address, describe_failure(failure.value))

        try:
            dial = self._endpoint_factory(self._reactor, address).connect(ConnectionFactory(build))
        except Exception as problem:
            self._on_failure(address, describe_failure(problem))
            return
        dial.addTimeout(self._timeout, self._reactor)
        self._pending.add(dial)
        dial.addCallbacks(lambda link: self._pending.discard(dial), failed)

    def cancel(self) -> None:
        """Give all of them up; nobody is told."""
        while self._pending:
            self._pending.pop().cancel()
