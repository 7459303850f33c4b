"""Resolution of configured host names, and dialling by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.addresses import format_address, ip_version, resolve_address
from fyrehose_twisted.net.connector import EndpointFactory
from fyrehose_twisted.parcels.config import NodeConfig


class Dialer:
    """Resolver and endpoint factory. Names are resolved again for each dial, because their addresses may change.

    Between nodes only addresses travel. A name that cannot be looked up yet stands for itself until it is dialled.

    :param endpoint_for: returns the client endpoint of an address.
    """

    log = Logger()

    def __init__(self, reactor: Any, endpoint_for: EndpointFactory) -> None:
        self._reactor = reactor
        self._endpoint_for = endpoint_for
        self._names: dict[Address, Address] = {}

    def endpoint_for(self, reactor: Any, address: Address) -> IStreamClientEndpoint:
        """Return the client endpoint of an address, by its configured name if it has one."""
        return self._endpoint_for(reactor, self._names.get(address, address))

    async def resolve_config(self, config: NodeConfig, bound: Address) -> NodeConfig:
        """Resolve the configured names, and complete the advertised address.

        :param bound: listening address, whose port replaces an advertised port of 0.
        :raises ConfigurationError: if the advertised host cannot be resolved.
        """
        host, port = config.advertise
        try:
            advertise = await resolve_address(self._reactor, (host, port or bound[1]))
        except OperationalError as error:
            raise ConfigurationError(f"the address to advertise cannot be resolved: {error}") from error
        neighbours: dict[Address, None] = {}
        for place in config.neighbours:
            address = await self._resolve(place)
            if address in (advertise, bound):
                self.log.info("{place} is this node itself", place=format_address(place))
                continue
            if address != place:
                self._names[address] = place
            neighbours[address] = None
        return replace(config, advertise=advertise, neighbours=tuple(neighbours))

    async def _resolve(self, place: Address) -> Address:
        if ip_version(place[0]):
            return place
        try:
            return await resolve_address(self._reactor, place)
        except OperationalError as error:
            self.log.warn("{error}; the name is resolved again at each connection attempt", error=error)
            return place
