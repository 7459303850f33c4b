"""Connections to the other members: names of their hosts, TLS, and the proof of the secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.net.addresses import ip_version, resolve_address
from fyrehose_twisted.net.auth import AuthClientEndpoint, Authenticator
from fyrehose_twisted.net.connector import EndpointFactory


class MemberDialer:
    """Dialler of the other members. Names are resolved again for each dial, because their addresses may change.

    :param endpoint_for: returns the client endpoint of an address.
    :param authenticator: secret of this member; ``None`` without one.
    """

    log = Logger()

    def __init__(self, reactor: Any, endpoint_for: EndpointFactory, authenticator: Authenticator | None) -> None:
        self._reactor = reactor
        self._endpoint_for = endpoint_for
        self._authenticator = authenticator
        self._names: dict[Address, Address] = {}

    def endpoint_for(self, reactor: Any, address: Address) -> IStreamClientEndpoint:
        """Return the client endpoint of an address, by its configured name if it has one."""
        endpoint = self._endpoint_for(reactor, self._names.get(address, address))
        return endpoint if self._authenticator is None else AuthClientEndpoint(endpoint, self._authenticator, reactor)

    async def resolve(self, peers: Iterable[Address]) -> tuple[Address, ...]:
        """Return the addresses of the peers. A name that cannot be resolved yet stands for itself."""
        found: dict[Address, None] = {}
        for peer in peers:
            try:
                address = peer if ip_version(peer[0]) else await resolve_address(self._reactor, peer)
            except OperationalError as error:
                self.log.warn("{error}; the name is resolved again at each connection attempt", error=error)
                address = peer
            if address != peer:
                self._names[address] = peer
            found[address] = None
        return tuple(found)
