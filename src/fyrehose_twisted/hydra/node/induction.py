"""Induction of new nodes (document 002, "A server has requested to be a node"; rules S1 and S4 of its reading).

The node that receives the KNOCK mediates. It sends the WELCOME once every registered node has sent a MEET. A node that
sends a MEET reserves a place for the inductee until it is registered, dropped, or long overdue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from fyrehose_twisted.hydra.events import NodeRegistered
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import GUARDIAN_TAG, NOT_INDUCTED, Drop, Hello, Knock, Meet, Ping, Welcome
from fyrehose_twisted.lru_set import LruSet

MAX_WAITING_KNOCKS = 16
"""Largest number of queued KNOCKs."""
_RESERVATION = 2.5
"""Duration of a reservation in MAX_MEETs. The WELCOME may take two, on a slower clock."""


@dataclass(slots=True)
class _Mediation:
    ind: int
    tag: str
    link: PeerLink
    awaited: set[int]
    deadline: float


class Induction:
    """Inductions that one node mediates or takes part in."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._mediation: _Mediation | None = None
        self._waiting_knocks: deque[tuple[Knock, PeerLink, float]] = deque()
        self._unmet: dict[int, tuple[str, float]] = {}
        """Tag and end of the wait of inductees that this node may consent to once it follows a leader."""
        self._seen_knocks = LruSet(256)
        self._seen_meets = LruSet(1_024)
        self._seen_hellos = LruSet(1_024)

    @property
    def mediating(self) -> int | None:
        """Inductee of the induction that this node mediates, ``None`` if it mediates none."""
        return None if self._mediation is None else self._mediation.ind

    def reset(self) -> None:
        """Drop all state after the node left its network."""
        self._mediation = None
        self._waiting_knocks.clear()
        self._unmet.clear()

    # Unbound links

    def unbound_knock(self, message: Knock, link: PeerLink, now: float, *, may_decide: bool) -> None:
        """Handle a KNOCK over an unbound link, from an outsider or from a registered node."""
        context = self._context
        ind = message.ind
        link.peer_knock_id, link.guardian = ind, message.tag == GUARDIAN_TAG
        me = context.id
        if me is None or ind == me:
            return
        self._waiting_knocks = deque(one for one in self._waiting_knocks if one[1] is not link)
        if self._mediation is not None and self._mediation.link is link and self._mediation.ind != ind:
            self._abandon("it sent another KNOCK", now)
        if ind in context.registry:
            self.bind(link, ind, now)
            context.links.write(link, Hello(ind, me), now)
            if not link.guardian:
                self.send_term(link, now)
        elif not link.is_regular:
            return  # The peer is of another network, or the guardian's node is not registered.
        elif context.registry.was_dropped(ind):
            context.links.write(link, Drop(ind, "dropped before"), now)
        elif ind not in context.registry.reservations:
            self._mediate(message, link, now, may_decide=may_decide)

    def announce_network(self, link: PeerLink, now: float) -> None:
        """Send the last PING over an unbound link so that the peer learns of this network.

        The peer does not follow a leader whose PING arrives over an unbound link.
        """
        context = self._context
        if context.durable.leader and context.val:
            context.links.write(link, Ping(context.durable.term, context.val, context.durable.leader), now)

    def probe_link(self, link: PeerLink, now: float) -> None:
        """Send this node's KNOCK, at a limited rate, to a peer that seems to consider the link bound."""
        context = self._context
        me = context.id
        if me is None or link.node is not None or link.legacy or now < link.probed_at + context.timers.max_ping / 2:
            return
        link.probed_at, link.own_knock_id = now, me
        context.links.write(link, Knock(me, context.config.tag), now)

    def reject_unbound(self, command: str, link: PeerLink | None = None, now: float = 0.0) -> None:
        """Reject a message that only nodes may send, from a peer that is no node (rule S3).

        :param link: link to probe, if any.
        """
        self._context.counters[f"unbound_{command}"] += 1
        if link is not None:
            self.probe_link(link, now)

    def send_term(self, link: PeerLink, now: float) -> None:
        """Send the last PING over a bound link to announce the term of the lines that follow."""
        context = self._context
        if context.in_term and context.leader is not None:
            context.links.write(link, Ping(context.durable.term, context.val, context.leader), now)

    def bind(self, link: PeerLink, node: int, now: float) -> None:
        """Bind a link to a node."""
        self._context.links.bind(link, node)

    # Flooded messages

    def knock_received(self, message: Knock, link: PeerLink, now: float) -> None:
        """Handle the KNOCK that a mediator relays."""
        context = self._context
        ind, me = message.ind, context.id
        if context.registry.was_dropped(ind):
            # The mediator was inducted after that DROP. The inductee does not know of it and needs another id.
            context.links.write(link, Drop(ind, "dropped before"), now)
            return
        if not self._seen_knocks.add(ind):
            return
        context.flood(message, now, link)
        if me is None or ind == me or ind in context.registry.reservations:
            return
        if ind in context.registry:
            # The mediator does not know that the inductee is registered.
            context.flood(Meet(ind, me), now)
            return
        if self._meet(ind, message.tag, now):
            return
        context.counters["not_met"] += 1
        if not context.in_term:
            self._unmet = {other: wait for other, wait in self._unmet.items() if now < wait[1]}
            if len(self._unmet) < MAX_WAITING_KNOCKS:
                self._unmet[ind] = message.tag, now + context.timers.max_meet

    def meet_received(self, message: Meet, link: PeerLink, now: float) -> None:
        """Handle the consent of a node."""
        context = self._context
        if not self._seen_meets.add(message):
            return
        context.flood(message, now, link)
        mediation = self._mediation
        if mediation is not None and mediation.ind == message.ind:
            mediation.awaited.discard(message.id)
            context.links.write(mediation.link, message, now)

    def welcome_received(self, message: Welcome, link: PeerLink, now: float) -> int | None:
        """Handle the end of an induction; return the id of the new node, if any."""
        return self._register_inductee(message.ind, now, message, link)

    def hello_received(self, message: Hello, link: PeerLink, now: float) -> int | None:
        """Handle the introduction of a node to a new one; return the id of a newly registered node, if any."""
        context = self._context
        if not self._seen_hellos.add(message):
            return None
        if message.ind == context.id:
            return self._register_named(message.id, now)
        arrived = self._register_inductee(message.ind, now, None, link)
        context.flood(message, now, link)
        return arrived

    # Time, drops and closed links

    def knows_inductee(self, ind: int) -> bool:
        """Return whether an induction of a node is in progress."""
        return ind in self._context.registry.reservations or ind in self._unmet

    def withdraw(self, ind: int) -> bool:
        """Forget an inductee whose mediator abandoned it; return whether an induction was in progress."""
        return self._context.registry.release(ind) | (self._unmet.pop(ind, None) is not None)

    def node_dropped(self, node: int, now: float) -> None:
        """Stop waiting for a dropped node."""
        self._unmet.pop(node, None)
        mediation = self._mediation
        if mediation is not None:
            mediation.awaited.discard(node)
            if mediation.ind == node:
                self._mediation = None
                # A node that was dropped before and does not know it knocks with the old id.
                self._context.links.write(mediation.link, Drop(node, "dropped before"), now)

    def link_closed(self, link: PeerLink, now: float) -> None:
        """Abandon the induction and the queued KNOCK of a closed link."""
        self._waiting_knocks = deque(one for one in self._waiting_knocks if one[1] is not link)
        mediation = self._mediation
        if mediation is not None and mediation.link is link:
            self._abandon("its link closed", now)

    def tick(self, now: float, *, may_decide: bool) -> int | None:
        """Complete, time out or start an induction; return the id of a new node, if any."""
        context = self._context
        context.registry.expire(now)
        self._meet_late(now)
        mediation = self._mediation
        if mediation is not None and mediation.deadline <= now:
            self._abandon("some nodes did not send MEET", now)
        arrived = self._complete(now, may_decide=may_decide)
        while self._waiting_knocks and self._waiting_knocks[0][2] <= now:
            self._waiting_knocks.popleft()
            context.counters["knocks_unanswered"] += 1
        if self._waiting_knocks and self._may_mediate(may_decide=may_decide):
            knock, link, _ = self._waiting_knocks.popleft()
            if knock.ind not in context.registry and knock.ind not in context.registry.reservations:
                self._mediate(knock, link, now, may_decide=True)
        return arrived

    def next_deadline(self) -> float:
        """Return the time of the next :meth:`tick`."""
        due = min(self._context.registry.reservations.values(), default=inf)
        if self._mediation is not None:
            due = min(due, self._mediation.deadline if self._mediation.awaited else -inf)
        if self._waiting_knocks:
            due = min(due, self._waiting_knocks[0][2])
        return due

    # Helpers

    def _may_mediate(self, *, may_decide: bool) -> bool:
        """Return whether this node may begin an induction.

        A node that has lost its links would ask nobody. Without a MEET the inductee knocks elsewhere.
        """
        context = self._context
        reaches_nodes = bool(context.links.primary) or len(context.registry) == 1
        return self._mediation is None and may_decide and context.in_term and context.has_room() and reaches_nodes

    def _mediate(self, message: Knock, link: PeerLink, now: float, *, may_decide: bool) -> None:
        context = self._context
        me = context.id
        assert me is not None, "it was looked at"
        if not self._may_mediate(may_decide=may_decide):
            if len(self._waiting_knocks) < MAX_WAITING_KNOCKS:
                self._waiting_knocks.append((message, link, now + context.timers.max_meet))
            else:
                context.counters["knocks_unanswered"] += 1
            return
        ind = message.ind
        self._seen_knocks.add(ind)
        awaited = set(context.registry.ids()) - {me}
        self._mediation = _Mediation(ind, message.tag, link, awaited, now + context.timers.max_meet)
        self._reserve(ind, message.tag, now)
        context.links.write(link, Meet(ind, me), now)
        context.flood(Knock(ind, message.tag), now)
        self._seen_meets.add(Meet(ind, me))
        context.flood(Meet(ind, me), now)

    def _meet(self, ind: int, tag: str, now: float) -> bool:
        """Consent to an induction; return whether this node may."""
        context = self._context
        if context.id is None or not context.in_term or not context.has_room():
            return False
        self._reserve(ind, tag, now)
        context.flood(Meet(ind, context.id), now)
        return True

    def _meet_late(self, now: float) -> None:
        """Consent to the inductions that began while this node had no leader.

        A newly inducted node has no leader until the next PING, and mediators already wait for it. Nothing waits for a
        place: by then the inductee may have drawn another id, and its reservation would only keep the other out.
        """
        context = self._context
        if not self._unmet or not context.in_term:
            return
        unmet, self._unmet = self._unmet, {}
        for ind, (tag, until) in unmet.items():
            if now < until and ind not in context.registry and ind not in context.registry.reservations:
                self._meet(ind, tag, now)

    def _reserve(self, ind: int, tag: str, now: float) -> None:
        context = self._context
        context.registry.reserve(ind, tag, now + _RESERVATION * context.timers.max_meet)

    def _complete(self, now: float, *, may_decide: bool) -> int | None:
        context, mediation = self._context, self._mediation
        if mediation is None or any(node in context.registry for node in mediation.awaited):
            return None
        if not context.in_term or not may_decide:
            # A leader without a lease inducts no node.
            self._abandon("no node leads", now)
            return None
        self._mediation = None
        me, ind, link = context.id, mediation.ind, mediation.link
        assert me is not None, "a mediator is registered"
        for message in (Welcome(ind), Hello(ind, me)):
            context.links.write(link, message, now)
            context.flood(message, now)
        self._seen_hellos.add(Hello(ind, me))
        context.registry.add(ind, now)
        context.output.emit(NodeRegistered(ind))
        context.counters["inducted"] += 1
        self.bind(link, ind, now)
        self.send_term(link, now)
        self.bind_knocked(ind, now)
        return ind

    def _abandon(self, reason: str, now: float) -> None:
        context, mediation = self._context, self._mediation
        assert mediation is not None, "there is one"
        self._mediation = None
        context.counters["inductions_failed"] += 1
        if not context.registry.release(mediation.ind):
            return
        # Only the mediator can send the WELCOME, so the other nodes release their reservations.
        context.flood(Drop(mediation.ind, f"{NOT_INDUCTED}: {reason}"), now)

    def _register_inductee(self, ind: int, now: float, relay: Welcome | None, link: PeerLink) -> int | None:
        context = self._context
        me = context.id
        if me is None or ind == me:
            return None
        if ind not in context.registry.reservations and not self._inducted_concurrently(ind, now):
            return None
        if relay is not None:
            context.flood(relay, now, link)
        context.registry.add(ind, now)
        context.output.emit(NodeRegistered(ind))
        hello = Hello(ind, me)
        if self._seen_hellos.add(hello):
            context.flood(hello, now)
        self.bind_knocked(ind, now)
        return ind

    def _inducted_concurrently(self, ind: int, now: float) -> bool:
        """Return whether a node's induction, by another mediator, may have overlapped this node's own."""
        context = self._context
        registry = context.registry
        is_fresh = now < context.member_since + _RESERVATION * context.timers.max_meet
        return is_fresh and ind not in registry and not registry.was_dropped(ind) and context.has_room()

    def _register_named(self, node: int, now: float) -> int | None:
        context = self._context
        registry = context.registry
        if node in registry or registry.was_dropped(node):
            return None
        if node not in registry.reservations and not context.has_room():
            context.counters["hello_without_room"] += 1
            return None
        registry.add(node, now)
        context.output.emit(NodeRegistered(node))
        self.bind_knocked(node, now)
        return node

    def bind_knocked(self, node: int, now: float) -> None:
        """Bind links over which a node knocked before this node registered it."""
        context = self._context
        me = context.id
        if self._mediation is not None and self._mediation.ind == node:
            self._mediation = None
        for link in context.links:
            if me is not None and link.peer_knock_id == node and link.node is None:
                self.bind(link, node, now)
                context.links.write(link, Hello(node, me), now)
                if not link.guardian:
                    self.send_term(link, now)
