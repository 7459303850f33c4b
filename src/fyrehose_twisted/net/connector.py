"""Outgoing connections in progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.net.connection import ConnectionFactory, NodeConnection, describe_failure

EndpointFactory = Callable[[Any, Address], IStreamClientEndpoint]
"""Function of a reactor and an address that returns a client endpoint."""


class PendingConnects:
    """Set of dials in progress.

    :param endpoint_factory: returns the client endpoint of an address.
    :param on_failure: called with the address and a short reason if a dial fails.
    :param timeout: maximum seconds of a dial.
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
            # A cancelled dial is no longer pending. A timeout also cancels the endpoint, but the dial is still pending.
            is_wanted = dial in self._pending
            self._pending.discard(dial)
            # A connection that was established reports its own end.
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
        """Cancel all dials without reporting failures."""
        while self._pending:
            self._pending.pop().cancel()
