"""Hosts of relays in a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.relay.relay import Relay
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.network import Network


class RelayHost:
    """Host of a relay. It keeps nothing across a crash.

    :param parents: addresses of its parents.
    :ivar address: address at which it serves clients, and from which it follows a parent.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        address: Address,
        parents: Sequence[Address],
        config: BackboneConfig,
        client_config: ClientConfig,
        rng: Random,
        *,
        answer_repairs: bool = False,
    ) -> None:
        self.address = address
        self.parents = tuple(parents)
        self.config = config
        self._client_config = client_config
        self._answer_repairs = answer_repairs
        self._rng = rng
        self.host = network.add(name, address, self._start)

    @property
    def node(self) -> Relay:
        """Running relay."""
        node = self.host.node
        assert isinstance(node, Relay)
        return node

    def _start(self, boot: Boot) -> Relay:
        return Relay(
            self.parents,
            self.config,
            self._client_config,
            RandomForward(Random(self._rng.getrandbits(64))),
            Random(self._rng.getrandbits(64)),
            boot.now,
            answer_repairs=self._answer_repairs,
            own_address=lambda peer: self.address,
            is_own=lambda address: address == self.address,
        )
