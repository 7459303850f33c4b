"""Configuration of the service of a freenet node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.service.storage import PacketStorage
from fyrehose_twisted.interfaces import IRoutingPolicy
from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.net.service_config import ControlledServiceConfig, default_limits

DEFAULT_PORT = 6180
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"
MAX_NEIGHBOURS = 256


@dataclass(frozen=True)
class FreenetConfig(ControlledServiceConfig):
    """Configuration of a node with its ports and files.

    It has the fields of :class:`~fyrehose_twisted.net.service_config.ControlledServiceConfig`, and these:

    :ivar peers: peers to keep links to, each ``HOST:PORT`` or a client endpoint.
    :ivar location: location on the ring; by default that of the state file, or a random one.
    :ivar policy: routing and repair policy.
    :ivar state: file with the node's id and location. A node without it has a new id after each start.
    :ivar storage: journals for delivered packets; ``None`` for none.
    :ivar streams: keys of streams to subscribe to at the start.
    :ivar max_neighbours: maximum number of neighbours.
    :ivar routing: order in which requests try neighbours; by default the nearest to the key first. All nodes of a
        network should have the same.
    """

    peers: Sequence[str] = ()
    _: KW_ONLY
    listen: Sequence[str] = (DEFAULT_LISTEN,)
    location: float | None = None
    policy: Policy = field(default_factory=Policy)
    storage: PacketStorage | None = None
    streams: Iterable[bytes] = ()
    max_neighbours: int = MAX_NEIGHBOURS
    routing: IRoutingPolicy | None = None

    def __post_init__(self) -> None:
        self.check()
        self._make_tuple("peers")
        object.__setattr__(self, "streams", tuple(self.streams))

    def _default_limits(self) -> ConnectionLimits:
        return default_limits(self.max_neighbours, 64)
