"""What a node is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.wire.location import is_location
from fyrehose_twisted.freenet.wire.messages import MAX_UID
from fyrehose_twisted.process.secret import check_secret


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node.

    :ivar node: its id; the same after each start.
    :ivar boot: another number after each start.
    :ivar location: where on the ring it is, at first.
    :ivar policy: how it routes, waits and repairs.
    :ivar targets: peers that it keeps links open to.
    :ivar secret: what all nodes of the network share; with one, whoever does not know it is no neighbour.
    :ivar ping_every: seconds of silence after which a neighbour is asked whether it is there; after three times as long
        without a word it is not. 0: never.
    :ivar max_neighbours: neighbours that it has at once.
    :ivar handshake_timeout: seconds until the other end of a link must have said and proved who it is.
    :ivar max_handshakes_per_host: links of one address that have not; of more, the oldest is closed.
    :ivar first_neighbour_timeout: seconds after its start for which a node with targets waits for its first neighbour
        before it searches for streams: without one, it would become the root of each. 0: it does not wait.
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

    def __post_init__(self) -> None:
        for name in ("node", "boot"):
            if not 0 <= getattr(self, name) <= MAX_UID:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is outside 0 to 2**64 - 1")
        if not is_location(self.location):
            raise ConfigurationError(f"location={self.location!r}: a location goes from 0 up to, but not including, 1")
        if self.secret is not None:
            check_secret(self.secret)
