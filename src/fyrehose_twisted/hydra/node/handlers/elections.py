"""Messages of elections (document 002, NOMINATE, PLEDGE, CALL and ELECT)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.lifecycle import HydraComponents
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import Call, Elect, Nominate, Pledge


class ElectionHandler:
    """Handler of the messages of elections. It rejects those of peers that are no nodes."""

    def __init__(self, components: HydraComponents) -> None:
        self._components = components

    def nominate_received(self, message: Nominate, link: PeerLink, now: float) -> None:
        """Handle a NOMINATE."""
        components, context = self._components, self._components.context
        if not link.relays:
            components.induction.reject_unbound("nominate", link, now)
            return
        if context.bootstrapping and context.role is Role.LEADER and message.id in context.registry:
            if message.term > context.durable.term:
                # It leads without a quorum, so it may do so in any term; another node led in this one.
                context.update_durable(term=message.term + 1)
                components.recv_relay.begin_term(was_member=True)
                components.leadership.ping(now)
            return
        if message.id == context.durable.promised and message.id in context.registry and message.id != context.id:
            # A nominee no longer leads.
            context.release_promise(message.id)
        components.election.nominate_received(message, link, now)

    def pledge_received(self, message: Pledge, link: PeerLink, now: float) -> None:
        """Handle a PLEDGE."""
        if link.relays:
            self._components.election.pledge_received(message, link, now)
        else:
            self._components.induction.reject_unbound("pledge", link, now)

    def call_received(self, message: Call, link: PeerLink, now: float) -> None:
        """Handle a CALL."""
        if link.relays:
            self._components.election.call_received(message, link, now)
        else:
            self._components.induction.reject_unbound("call", link, now)

    def elect_received(self, message: Elect, link: PeerLink, now: float) -> None:
        """Handle an ELECT."""
        if link.relays:
            self._components.election.elect_received(message, link, now)
        else:
            self._components.induction.reject_unbound("elect", link, now)
