"""Configuration of a node."""

from __future__ import annotations

from dataclasses import dataclass, field

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.wire.location import is_location
from fyrehose_twisted.freenet.wire.messages import MAX_UID
from fyrehose_twisted.interfaces import IRoutingPolicy
from fyrehose_twisted.process.secret import check_secret


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Configuration of one node.

    :ivar node: node id; unchanged by restarts.
    :ivar boot: boot id; a new number after each start.
    :ivar location: initial location on the ring.
    :ivar policy: rules for routing, timeouts and repair.
    :ivar targets: addresses of peers that the node keeps links to.
    :ivar secret: shared secret of the network, or ``None``. A peer that cannot prove that it knows the secret is
        refused.
    :ivar ping_every: keepalive interval in seconds. Silent neighbours are pinged at this interval; after three
        intervals of silence the link is closed. 0 turns keepalives off.
    :ivar max_neighbours: maximum number of neighbours.
    :ivar handshake_timeout: seconds in which a peer must complete the handshake.
    :ivar max_handshakes_per_host: maximum number of unfinished handshakes per address or IPv6 /64. Beyond it, the
        oldest link is closed.
    :ivar first_neighbour_timeout: seconds after its start for which a node with targets waits for its first neighbour
        before it searches for streams. Without neighbours it would become the root of each. 0: do not wait.
    :ivar routing: order in which a request tries the neighbours, an
        :class:`~fyrehose_twisted.interfaces.IRoutingPolicy`; ``None`` for the nearest to the key first.
    """

    node: int
    boot: int
    location: float
    policy: Policy = field(default_factory=Policy)
    targets: tuple[Address, ...] = ()
    secret: bytes | None = field(default=None, repr=False)
    ping_every: float = 15.0
    max_neighbours: int = 256
    handshake_timeout: float = 5.0
    max_handshakes_per_host: int = 8
    first_neighbour_timeout: float = 0.0
    routing: IRoutingPolicy | None = None

    def __post_init__(self) -> None:
        for name in ("node", "boot"):
            if not 0 <= getattr(self, name) <= MAX_UID:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is outside 0 to 2**64 - 1")
        if not is_location(self.location):
            raise ConfigurationError(f"location={self.location!r}: a location goes from 0 up to, but not including, 1")
        if self.secret is not None:
            check_secret(self.secret)
        if self.routing is not None and not IRoutingPolicy.providedBy(self.routing):
            raise ConfigurationError(f"routing={self.routing!r} does not provide IRoutingPolicy")
