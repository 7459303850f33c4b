"""What a node is told, and how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.wire.messages import MAX_TAG

MAX_NODES = 64
"""Nodes of one network: each message goes over each link."""


class Quorum(Enum):
    """How many votes an election takes."""

    FIXED = "fixed"
    """More than half of the nodes that the network is said to have. Never two leaders."""
    REGISTRY = "registry"
    """More than half of the nodes that one happens to know, as document 002 has it. A network that falls apart has a
    leader in each part."""


class OverlongPolicy(Enum):
    """What becomes of a message that is too long for IRC once the server has put its sender in front."""

    SPLIT = "split"
    """It is said in several lines."""
    REFUSE = "refuse"
    """It is refused."""


TERMS_PER_SECOND = 65_536
"""Terms of which a node that remembers none draws one; so many that two which found at once take different ones."""


@dataclass(frozen=True, slots=True)
class Timers:
    """Document 002's times in seconds, and those that it leaves open. All are multiplied by one factor.

    :param scale: the factor, the same on every node; 0.1 makes everything ten times as fast.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0.001 <= self.scale <= 100:
            raise ConfigurationError(f"a timescale of {self.scale} is outside 0.001 to 100")

    @property
    def max_ping(self) -> float:
        """MAX_PING: silence after which a node is dropped."""
        return 10.0 * self.scale

    @property
    def ping_interval(self) -> float:
        """Between two PINGs."""
        return 5.0 * self.scale

    @property
    def max_meet(self) -> float:
        """MAX_MEET: how long an induction may take."""
        return 10.0 * self.scale

    @property
    def max_vote(self) -> tuple[float, float]:
        """MAX_VOTE: shortest and longest; each wait is drawn anew."""
        return 5.0 * self.scale, 15.0 * self.scale

    @property
    def lease(self) -> float:
        """From the sending of a PING that a quorum answered: how long the leader may write to IRC."""
        return 0.75 * self.max_ping

    @property
    def promise(self) -> float:
        """After a PONG: how long its sender helps nobody else to lead. Longer than two clocks that drift by 30 % can
        make of a lease."""
        return self.max_ping + 5.0 * self.scale

    @property
    def no_leader_timeout(self) -> float:
        """Without a leader: after how long a node gives its network up."""
        return 30.0 * self.scale

    @property
    def succession(self) -> float:
        """After the leader said that it is one no more: within which time somebody nominates itself."""
        return 0.5 * self.scale


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """A link that a node keeps open.

    :ivar address: what to dial.
    :ivar legacy: whether the reference is at the other end.
    :ivar line_rate: lines from and for IRC that may go over it in a second, ``None`` for as many as there are. What
        does not fit is not sent: over a slow link, it would hold up the leader's signs of life.
    """

    address: Address
    legacy: bool = False
    line_rate: float | None = None


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What a node is told.

    :ivar network: name of the network, part of the stream ``hydra://NAME``.
    :ivar tag: friendly name of the node, without blanks.
    :ivar network_size: how many nodes the network has at most, the same on every node; ``None`` only with
        :attr:`Quorum.REGISTRY`.
    :ivar found: whether it begins a network if nobody answers.
    :ivar first_term: the lowest term in which it begins one. Where nothing outlives the process,
        :data:`TERMS_PER_SECOND` times the seconds since 1970 is one that was never used.
    :ivar targets: links that it keeps open; others may open more.
    :ivar irc_rate: lines a second that it says on IRC, at most; asking the server whether it has them counts as one.
    :ivar irc_burst: lines that may go at once after a pause.
    :ivar irc_patience: seconds, unscaled, that the server may take to answer for a line; then it is given up.
    :ivar irc_long: what becomes of a message that does not fit behind the server's prefix.
    :ivar max_queue: lines for IRC that wait here.
    :ivar max_wait: seconds that a line may wait; then it is given up.
    :ivar max_links: links that others may open.
    """

    network: str = "default"
    tag: str = "node"
    network_size: int | None = 3
    quorum: Quorum = Quorum.FIXED
    found: bool = False
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

    def __post_init__(self) -> None:
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
            raise ConfigurationError(f"{self.irc_rate} lines a second, {self.irc_burst} at once, cannot be kept to")
        if not 1 <= self.irc_patience <= 600:
            raise ConfigurationError(f"a patience of {self.irc_patience} s with the IRC server is outside 1 to 600")
