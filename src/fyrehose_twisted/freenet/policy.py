"""Routing and repair policy: limits, and choices that document 003 leaves to implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.wire.messages import MAX_HTL


@dataclass(frozen=True, slots=True)
class Policy:
    """Routing, timeout and repair policy of a node.

    All times are in seconds.

    :ivar max_htl: hops to live of a request that has just come nearer to its key.
    :ivar p_max: probability that a link decrements the HTL of a request with the maximum HTL. Drawn once per link.
    :ivar p_min: the same probability for a request with an HTL of 1.
    :ivar htl_on_closer: HTL of a request that comes nearer to its key: ``reset`` to the maximum, or ``keep``.
    :ivar accept: location that must be nearer to the key than that of a resubscriber before a node accepts it:
        the location of the ``root``, or the node's ``own`` (as in the document).
    :ivar coalesce: handling of a request for a key that this node is already searching for: wait for the other request
        in a ``queue`` (unless a deadlock could result), ``reject`` it, or route it as well, in ``parallel``.
    :ivar on_parent_lost: handling of the subtree by a node that lost its parent: keep it (``graft``), or dismiss it so
        that each member subscribes again (``teardown``).
    :ivar confirm_root: search once more before becoming a root.
    :ivar max_streams: maximum number of streams per node.
    :ivar keep_packets: packets per stream that a node retains for later subscribers.
    :ivar retry: retry a failed subscription of this node's application.
    :ivar accepted_timeout: time in which a neighbour must accept a request before the next neighbour is asked.
    :ivar completion_timeout: time in which an accepted request must be answered.
    :ivar hold: maximum time for which a request waits for another one.
    :ivar restart_jitter: maximum delay between losing a parent and the search for another.
    :ivar cycle_jitter: the same for a node that detected a cycle.
    :ivar restart_interval: minimum time between voluntary restarts of a stream that has a parent, and maximum time
        between two probes of a root for a better root.
    :ivar first_probe: time until a new root first probes for a better root. The time doubles after each probe, up to
        ``restart_interval``. A network that is still forming has several roots at first.
    :ivar link_grace: time for which a subscriber whose link is down stays subscribed.
    :ivar publish_timeout: time in which the root must answer a packet.
    :ivar max_waiting: maximum number of packets per stream that await an answer from the root, and of requests that
        wait for another request.
    :ivar suspicion: time for which a peer that did not answer is asked last.
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
        for name, maximum in (
            ("max_htl", MAX_HTL),
            ("max_streams", 10**6),
            ("keep_packets", 10**6),
            ("max_waiting", 10**6),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= maximum:
                raise ConfigurationError(f"{name}={value!r} is outside 1 to {maximum:,}")
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
