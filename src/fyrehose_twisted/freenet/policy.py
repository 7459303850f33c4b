"""The rules that document 003 leaves to whoever builds it, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.wire.messages import MAX_HTL


@dataclass(frozen=True, slots=True)
class Policy:
    """How a node routes, waits and repairs.

    Times are in seconds.

    :ivar max_htl: hops to live of a request that has just come nearer to its key.
    :ivar p_max: probability that a link takes a hop off a request that has all of them; drawn once for each link.
    :ivar p_min: the same for a request that has one left.
    :ivar htl_on_closer: whether a request that comes nearer gets all its hops back, or keeps those that it has.
    :ivar accept: whose location has to be nearer than that of a resubscriber, for it to be taken in: that of the
        ``root`` of the tree, or that of the node that is asked (its ``own``: the words of the document).
    :ivar coalesce: what is done with a request for a key that this node already looks for: wait for that in a
        ``queue`` (as far as that cannot lead to a deadlock), ``reject`` it, or route it as well, in ``parallel``.
    :ivar on_parent_lost: whether a node that loses its parent takes its subtree with it (``graft``), or lets go of it,
        so that each member subscribes anew (``teardown``).
    :ivar confirm_root: whether who would become root looks once more before.
    :ivar max_streams: streams of one node, whatever it has them for.
    :ivar keep_packets: packets of a stream that a node keeps, for those who come later.
    :ivar retry: whether a subscription of this node's own that fails is tried again.
    :ivar accepted_timeout: until a request must have been accepted; then somebody else is asked.
    :ivar completion_timeout: until an accepted request must have been answered.
    :ivar hold: how long a request waits for another one, at most.
    :ivar restart_jitter: who has lost a parent waits for up to so long before it looks for another one.
    :ivar cycle_jitter: the same for who finds itself in a cycle.
    :ivar restart_interval: between two restarts of a stream that has a parent, and between two looks of a root for a
        better one.
    :ivar first_probe: until a new root looks for a better one first; then it takes twice as long each time, up to
        ``restart_interval``. Where a network is only just growing together, it has several roots at first.
    :ivar link_grace: how long a subscriber whose link is gone stays one.
    :ivar publish_timeout: until a packet must have got to the root.
    :ivar max_waiting: packets of a stream that wait for the root to answer, and requests that wait for another.
    :ivar suspicion: how long a peer that did not answer is asked last.
    """

    max_htl: int = 10
    p_max: float = 0.1
    p_min: float = 0.2
    htl_on_closer: Literal["reset", "keep"] = "reset"
    accept: Literal["root", "own"] = "root"
    coalesce: Literal["queue", "reject", "parallel"] = "queue"
    on_parent_lost: Literal["graft", "teardown"] = "graft"
    confirm_root: bool = False
    max_streams: int = 32
    keep_packets: int = 32
    retry: bool = True
    accepted_timeout: float = 10.0
    completion_timeout: float = 120.0
    hold: float = 30.0
    restart_jitter: float = 1.0
    cycle_jitter: float = 2.0
    restart_interval: float = 300.0
    first_probe: float = 2.0
    link_grace: float = 60.0
    publish_timeout: float = 60.0
    max_waiting: int = 32
    suspicion: float = 300.0

    def __post_init__(self) -> None:
        for name in ("p_max", "p_min"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: a probability goes from 0 to 1")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}")
        for name, most in (
            ("max_htl", MAX_HTL),
            ("max_streams", 10**6),
            ("keep_packets", 10**6),
            ("max_waiting", 10**6),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= most:
                raise ConfigurationError(f"{name}={value!r} is outside 1 to {most:,}")
        for name in _DURATIONS:
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: a time is 0 or more seconds")


_CHOICES = {
    "htl_on_closer": ("reset", "keep"),
    "accept": ("root", "own"),
    "coalesce": ("queue", "reject", "parallel"),
    "on_parent_lost": ("graft", "teardown"),
}
_DURATIONS = (
    "accepted_timeout",
    "completion_timeout",
    "hold",
    "restart_jitter",
    "cycle_jitter",
    "restart_interval",
    "first_probe",
    "link_grace",
    "publish_timeout",
    "suspicion",
)
