"""Configuration and timers of a node."""

from __future__ import annotations

import warnings
from dataclasses import InitVar, dataclass, field
from enum import Enum

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.wire.messages import MAX_TAG

MAX_NODES = 64
"""Largest network size. Flooded messages cross every link, so traffic grows with it."""


class Quorum(Enum):
    """Number of votes that an election takes."""

    FIXED = "fixed"
    """Majority of the configured network size. Two leaders at once are impossible."""
    REGISTRY = "registry"
    """Majority of the registered nodes, as in document 002. Each side of a partition may have a leader."""


class OverlongPolicy(Enum):
    """Treatment of a message that exceeds the IRC line limit once the server has prepended its sender."""

    SPLIT = "split"
    """Split it into several lines."""
    REFUSE = "refuse"
    """Refuse it."""


TERMS_PER_SECOND = 65_536
"""Size of the range from which a node without stored terms draws its first term.

The range is large so that two nodes that bootstrap at once draw different terms.
"""


@dataclass(frozen=True, slots=True)
class Timers:
    """Timers of document 002 and of this implementation, in seconds, multiplied by one factor.

    :param scale: factor, 0.001 to 100; must be equal on every node. 0.1 makes all timers ten times as fast.
    :raises ConfigurationError: if the factor is out of range.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0.001 <= self.scale <= 100:
            raise ConfigurationError(f"timescale {self.scale} is not between 0.001 and 100")

    @property
    def max_ping(self) -> float:
        """MAX_PING: silence after which the leader drops a node."""
        return 10.0 * self.scale

    @property
    def ping_interval(self) -> float:
        """Interval between PINGs of the leader."""
        return 5.0 * self.scale

    @property
    def max_meet(self) -> float:
        """MAX_MEET: longest duration of an induction."""
        return 10.0 * self.scale

    @property
    def max_vote(self) -> tuple[float, float]:
        """MAX_VOTE: shortest and longest wait before a nomination. Each wait is drawn at random."""
        return 5.0 * self.scale, 15.0 * self.scale

    @property
    def lease(self) -> float:
        """Duration of the leader's lease to write to IRC, from the sending of a PING that a quorum answers."""
        return 0.75 * self.max_ping

    @property
    def promise(self) -> float:
        """Time after a PONG during which its sender helps no other node to lead.

        It outlasts a lease even if two clocks drift by 30 %.
        """
        return self.max_ping + 5.0 * self.scale

    @property
    def quick_ping_interval(self) -> float:
        """Interval between PINGs of a leader that a quorum answers within this time."""
        return 1.0 * self.scale

    @property
    def quick_lease(self) -> float:
        """Lease from such a PING. It leaves as much time for a pause as :attr:`lease`: 2.5 s."""
        return 3.5 * self.scale

    @property
    def quick_vote(self) -> tuple[float, float]:
        """Shortest and longest wait before a nomination after such a promise has ended."""
        return 0.0, 2.0 * self.scale

    @property
    def quick_pause(self) -> float:
        """Time for which a leader returns to the document's timers when a quorum answers too slowly."""
        return 30.0 * self.scale

    def promise_for(self, lease: float) -> float:
        """Return the promise of a node that answers a PING with a lease: twice as long, see :attr:`promise`."""
        return lease * self.promise / self.lease

    @property
    def no_leader_timeout(self) -> float:
        """Time without a leader after which a node leaves its network."""
        return 30.0 * self.scale

    @property
    def succession(self) -> float:
        """Longest wait before a nomination after the leader has resigned."""
        return 0.5 * self.scale


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """A link that a node keeps open.

    :ivar address: address to dial.
    :ivar legacy: whether the peer is the reference implementation.
    :ivar line_rate: lines from and for IRC per second, ``None`` for no limit. Excess lines are not sent, because on a
        slow link they would delay the leader's PINGs.
    """

    address: Address
    legacy: bool = False
    line_rate: float | None = None


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Configuration of a node.

    :ivar network: name of the network, part of the stream URI ``hydra://NAME``.
    :ivar tag: friendly name of the node, one word.
    :ivar network_size: largest number of nodes, equal on every node; ``None`` only with :attr:`Quorum.REGISTRY`.
    :ivar bootstrap: whether the node bootstraps a network if none answers.
    :ivar first_term: lowest term for a bootstrap. For a node without persistent state, :data:`TERMS_PER_SECOND` times
        the Unix time is a term that was never used.
    :ivar targets: links that the node keeps open; peers may open more.
    :ivar irc_rate: lines per second written to IRC as leader, including PINGs to the server.
    :ivar irc_burst: lines written at once after a pause.
    :ivar irc_patience: seconds (unscaled) until an unacknowledged line ends the IRC connection.
    :ivar irc_long: treatment of a message that exceeds the IRC line limit.
    :ivar max_queue: lines for IRC queued on this node.
    :ivar max_wait: seconds that a line may be queued before it is given up.
    :ivar max_links: links that peers may open.
    :ivar quick_lease: take short leases as leader while a quorum answers within a second (unscaled), so that the
        others replace it soon if it falls silent. Nodes may differ.
    :raises ConfigurationError: if a value is out of range.
    """

    network: str = "default"
    tag: str = "node"
    network_size: int | None = 3
    quorum: Quorum = Quorum.FIXED
    bootstrap: bool = False
    first_term: int = 1
    targets: tuple[LinkTarget, ...] = ()
    timers: Timers = field(default_factory=Timers)
    irc_rate: float = 1.0
    irc_burst: int = 5
    irc_patience: float = 5.0
    irc_long: OverlongPolicy = OverlongPolicy.SPLIT
    max_queue: int = 1_000
    max_wait: float = 60.0
    max_links: int = 64
    quick_lease: bool = False
    found: InitVar[bool | None] = None
    """Deprecated name of ``bootstrap``."""

    def __post_init__(self, found: bool | None) -> None:
        if found is not None:
            warnings.warn("NodeConfig(found=...) is called bootstrap now", DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "bootstrap", found)
        if not self.network or not self.network.isascii() or not self.network.replace("-", "").isalnum():
            raise ConfigurationError(f"network {self.network!r} is not a name of letters, digits and hyphens")
        if not self.tag or not self.tag.isprintable() or " " in self.tag or self.tag.startswith("~"):
            raise ConfigurationError(f"tag {self.tag!r} is not one printable word that does not begin with ~")
        if len(self.tag.encode()) > MAX_TAG:
            raise ConfigurationError(f"tag {self.tag!r} has more than {MAX_TAG} bytes")
        if self.quorum is Quorum.FIXED:
            if self.network_size is None:
                raise ConfigurationError("give the size of the network, or the quorum registry, which is unsafe")
            if not 1 <= self.network_size <= MAX_NODES:
                raise ConfigurationError(f"a network of {self.network_size} nodes is outside 1 to {MAX_NODES}")
        if not 0 < self.irc_rate <= 1_000_000 or self.irc_burst < 1:
            raise ConfigurationError(
                f"{self.irc_rate} lines per second with a burst of {self.irc_burst} is out of range"
            )
        if not 1 <= self.irc_patience <= 600:
            raise ConfigurationError(f"a patience of {self.irc_patience} s with the IRC server is outside 1 to 600")
