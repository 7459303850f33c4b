"""Messages of induction and membership (document 002, KNOCK, MEET, WELCOME, HELLO and DROP)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.lifecycle import HydraComponents, Lifecycle
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import NOT_INDUCTED, Drop, Hello, Keepalive, Knock, Meet, Welcome


class MembershipHandler:
    """Handler of the messages by which peers become nodes, bind links and leave, and of keepalives."""

    def __init__(self, components: HydraComponents, lifecycle: Lifecycle) -> None:
        self._components = components
        self._lifecycle = lifecycle

    def knock_received(self, message: Knock, link: PeerLink, now: float) -> None:
        """Handle a KNOCK."""
        components, context = self._components, self._components.context
        if link.relays:
            if message.ind != link.node and message.ind == link.peer_knock_id and message.ind in context.registry:
                # The peer names itself: the link had been bound by the HELLO of another node.
                components.induction.bind(link, message.ind, now)
            if message.ind != link.node:
                components.induction.knock_received(message, link, now)
            elif context.id is not None:
                # The peer does not consider the link bound yet.
                context.links.write(link, Hello(message.ind, context.id), now)
        elif link.guardian and link.node is not None:
            components.induction.reject_unbound("knock")
        else:
            components.induction.unbound_knock(message, link, now, may_decide=self._lifecycle.may_decide(now))
            self._lifecycle.outsider_knocked(link, now)

    def meet_received(self, message: Meet, link: PeerLink, now: float) -> None:
        """Handle a MEET."""
        if link.relays:
            self._components.induction.meet_received(message, link, now)
        elif self._components.context.role is Role.OUTSIDER:
            self._components.joining.meet_received(message, link, now)
        else:
            self._components.induction.reject_unbound("meet")

    def welcome_received(self, message: Welcome, link: PeerLink, now: float) -> None:
        """Handle a WELCOME."""
        if link.relays:
            self._components.induction.welcome_received(message, link, now)
        elif self._components.context.role is not Role.OUTSIDER:
            self._components.induction.reject_unbound("welcome")
        elif self._components.joining.welcome_received(message, link):
            self._lifecycle.join(message.ind, link, now)
        elif link.foreign and link.own_knock_id == message.ind:
            # The PING that revealed the other network came after the KNOCK.
            self._components.context.links.write(link, Drop(message.ind, "of another network"), now)

    def hello_received(self, message: Hello, link: PeerLink, now: float) -> None:
        """Handle a HELLO."""
        components, context = self._components, self._components.context
        if link.relays:
            components.induction.hello_received(message, link, now)
        elif context.role is Role.OUTSIDER:
            components.joining.hello_received(message, link, now)
        elif message.ind == context.id and link.own_knock_id == context.id and link.node is None:
            if message.id in context.registry:
                components.induction.bind(link, message.id, now)
            elif context.registry.was_dropped(message.id):
                context.links.write(link, Drop(message.id, "dropped before"), now)
            else:
                # The WELCOME of that node has not arrived yet.
                link.peer_knock_id = message.id
        else:
            components.induction.reject_unbound("hello")

    def drop_received(self, message: Drop, link: PeerLink, now: float) -> None:
        """Handle a DROP."""
        components, context = self._components, self._components.context
        node, me = message.id, context.id
        told_so = node == me and link.own_knock_id == me
        if not (link.bound or told_so) or (link.guardian and node != link.node):
            components.induction.reject_unbound("drop")
            return
        if node == me:
            context.flood(message, now, link)
            self._lifecycle.leave_network(f"dropped: {message.reason or 'no reason given'}", now, dropped=True)
        elif message.reason.startswith(NOT_INDUCTED):
            if components.induction.withdraw(node):
                context.flood(message, now, link)
        elif node in context.registry or components.induction.knows_inductee(node):
            context.flood(message, now, link)
            self._lifecycle.drop(node, message.reason, now)

    def keepalive_received(self, message: Keepalive, link: PeerLink, now: float) -> None:
        """Handle a keepalive. The peer may consider the link bound and send everything else over another one."""
        components, context = self._components, self._components.context
        # Earlier, relayed HELLOs to this node could be mistaken for the answer.
        if link.node is None and link.is_regular and context.member_since + context.timers.max_meet <= now:
            components.induction.probe_link(link, now)
