"""Joining of a network by KNOCK, or bootstrap of a new one (document 002, "Nodes may reject any connection attempt";
rule S6 of its reading).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import NO_QUORUM_PREFIX, Hello, Knock, Meet, Ping, Welcome

_BOOTSTRAP_DELAY = 2.0
"""Seconds (unscaled) that a node waits for an existing network before a bootstrap."""
_REBOOTSTRAP_DELAY = 15.0, 45.0
"""Shortest and longest wait, in seconds (unscaled), before a former member bootstraps a new network.

By then no node is left in the old one.
"""
_KNOCK_TIMEOUT = 1.0
"""Seconds (unscaled) until an unanswered KNOCK is retried over another link."""


@dataclass(slots=True)
class _PendingKnock:
    link: PeerLink
    ind: int
    since: float
    retried: bool = False
    """Whether other links were tried already."""


class JoinProcedure:
    """Search of one node for its network."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._ready_at = context.quiet_until
        self._next_round = self._ready_at
        self._bootstrap_at = self._bootstrap_time()
        self._pending_knock: _PendingKnock | None = None
        self._tried_links: set[PeerLink] = set()

    def restart(self, now: float, wait: float) -> None:
        """Start over after the node left its network.

        :param wait: seconds before the first KNOCK.
        """
        context = self._context
        self._ready_at = max(now + wait, context.quiet_until)
        self._next_round = self._ready_at
        self._bootstrap_at = self._bootstrap_time()
        self._pending_knock = None
        self._tried_links.clear()

    @property
    def knocking(self) -> int | None:
        """Id of the pending KNOCK, ``None`` if there is none."""
        return None if self._pending_knock is None else self._pending_knock.ind

    def link_closed(self, link: PeerLink, now: float) -> None:
        """Forget a closed link and its pending KNOCK."""
        self._tried_links.discard(link)
        if self._pending_knock is not None and self._pending_knock.link is link:
            self._pending_knock = None

    def ping_received(self, message: Ping, link: PeerLink, now: float) -> None:
        """Handle a PING over an unbound link, which reveals a network."""
        if link.unbound_ping_at == now or not link.is_regular:
            return
        link.unbound_ping_at, link.network_leader, link.network_has_quorum = (
            now,
            message.id,
            not message.val.startswith(NO_QUORUM_PREFIX),
        )
        if self._bootstrap_at < inf:
            self._bootstrap_at = max(self._bootstrap_at, now + 2 * self._context.timers.max_ping)
        if self._pending_knock is not None:
            self._knock_elsewhere(now)
        elif now >= self._ready_at and self._may_knock(link, now):
            self._knock(link, now)

    def meet_received(self, message: Meet, link: PeerLink, now: float) -> None:
        """Handle a MEET for a KNOCK over this link. The first sender is the mediator.

        An earlier KNOCK may have waited there for a leader. Two inductions of one node would wait for each other if the
        network has one place left, so the mediator is asked to continue with the pending KNOCK.
        """
        if message.ind != link.own_knock_id or not link.is_regular:
            return
        knocking = self._pending_knock
        if knocking is None:
            knocking = self._pending_knock = _PendingKnock(link, message.ind, now)
        if message.ind != knocking.ind:
            link.own_knock_id, link.mediator = knocking.ind, None
            self._context.links.write(link, Knock(knocking.ind, self._context.config.tag), now)
        elif link.mediator is None:
            link.mediator = message.id

    def welcome_received(self, message: Welcome, link: PeerLink) -> bool:
        """Handle a WELCOME; return whether this node is now a member."""
        knocking = self._pending_knock
        if knocking is None or not knocking.ind == message.ind == link.own_knock_id:
            return False
        if link.mediator is None or not link.is_regular:
            return False
        self._pending_knock = None
        return True

    def hello_received(self, message: Hello, link: PeerLink, now: float) -> None:
        """Handle a HELLO before a WELCOME: the id is taken."""
        knocking = self._pending_knock
        if knocking is not None and knocking.link is link and knocking.ind == message.ind:
            if any(other is not link and other.own_knock_id == message.ind for other in self._context.links):
                return  # The mediator over the other link has inducted it, and the WELCOME is still in flight.
            self._context.counters["id_collisions"] += 1
            self._pending_knock = None
            self._tried_links.discard(link)
            self._next_round = now

    def tick(self, now: float) -> bool:
        """Do what is due; return whether it should bootstrap a network."""
        context = self._context
        if context.role is not Role.OUTSIDER or now < self._ready_at:
            return False
        if self._pending_knock is not None and self._pending_knock.since + context.timers.max_meet <= now:
            context.counters["knocks_in_vain"] += 1
            self._pending_knock = None
        # A node bound by a promise to a leader may join that leader's network, but may not lead.
        if now >= context.durable.until and (self._bootstrap_at <= now or self._is_alone()):
            return True
        if self._pending_knock is not None:
            self._knock_elsewhere(now)
            return False
        ties = [link for link in context.links if self._may_knock(link, now)]
        left = [link for link in ties if link not in self._tried_links]
        if left:
            self._knock(max(left, key=_likelihood), now)
        elif self._tried_links and self._next_round <= now:
            self._tried_links.clear()
            if ties:
                self._knock(max(ties, key=_likelihood), now)
        return False

    def next_deadline(self) -> float:
        """Return the time of the next :meth:`tick`."""
        context = self._context
        if context.role is not Role.OUTSIDER:
            return inf
        due = context.durable.until if self._is_alone() else max(self._bootstrap_at, context.durable.until)
        knocking = self._pending_knock
        if knocking is not None:
            patience = context.timers.max_meet if knocking.retried else _KNOCK_TIMEOUT * context.timers.scale
            due = min(due, knocking.since + patience)
        else:
            ties = [link for link in context.links if link.is_regular]
            left = [link for link in ties if link not in self._tried_links]
            if any(map(self._is_promised_network, left)):
                due = -inf
            elif left:
                due = min(due, context.durable.until)
            elif ties:
                due = min(due, self._next_round)
        return max(due, self._ready_at)

    def _is_alone(self) -> bool:
        """Return whether the node may bootstrap at once because no link could lead to a network."""
        context = self._context
        return (
            context.config.bootstrap and context.links.all_tried and not any(link.is_regular for link in context.links)
        )

    def _is_promised_network(self, link: PeerLink) -> bool:
        """Return whether the leader of the network behind a link is the node that this one made a promise to."""
        return link.network_leader is not None and link.network_leader == self._context.durable.promised

    def _may_knock(self, link: PeerLink, now: float) -> bool:
        """Return whether this node could answer PINGs of the network behind a link, as no other promise binds it."""
        return link.is_regular and (now >= self._context.durable.until or self._is_promised_network(link))

    def _knock_elsewhere(self, now: float) -> None:
        """Retry an unanswered KNOCK over a link that shows a network.

        The peer of the first link may have no network, or may have joined one only after the KNOCK.
        """
        knocking = self._pending_knock
        if knocking is None or now < knocking.since + _KNOCK_TIMEOUT * self._context.timers.scale:
            return
        knocking.retried = True
        if knocking.link.mediator is None:
            ties = [link for link in self._context.links if self._may_knock(link, now)]
            shown = [
                link for link in ties if link.unbound_ping_at > (knocking.since if link in self._tried_links else -inf)
            ]
            if shown:
                self._knock(max(shown, key=_likelihood), now)

    def _bootstrap_time(self) -> float:
        context = self._context
        if context.config.bootstrap:
            return self._ready_at + _BOOTSTRAP_DELAY * context.timers.scale
        if context.was_member:
            return self._ready_at + context.rng.uniform(*_REBOOTSTRAP_DELAY) * context.timers.scale
        return inf

    def _knock(self, link: PeerLink, now: float) -> None:
        context = self._context
        ind = context.new_id()
        self._tried_links.add(link)
        may_lead_back = link.network_leader is None or link.network_leader in context.former_nodes
        if context.former_nodes and link.own_knock_id is None and may_lead_back:
            # Nobody may have heard this node leave. Then its former id holds the place that the new one needs.
            context.repeat_drop(context.former_id, link, now)
        link.own_knock_id, link.mediator = ind, None
        self._pending_knock = _PendingKnock(link, ind, now)
        self._next_round = now + context.timers.max_meet * context.rng.uniform(1.0, 2.0)
        context.links.write(link, Knock(ind, context.config.tag), now)


def _likelihood(link: PeerLink) -> tuple[bool, float, bool, bool]:
    """Return a sort key that rates how likely a link leads to a network; greater is likelier."""
    return link.network_has_quorum, link.unbound_ping_at, link.peer_knock_id is not None, link.target is not None
