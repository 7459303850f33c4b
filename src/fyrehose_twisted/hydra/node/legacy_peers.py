"""Legacy peers: instances of the reference implementation (section 4 of the reading of document 002).

The reference implementation relays nothing and counts votes of any sender, so it cannot be a node. A legacy peer is
welcomed at once, receives PINGs and lines, may submit lines, and has no vote. Its other messages are ignored.
"""

from __future__ import annotations

from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import Hello, Knock, Meet, Message, Ping, Pong, Recv, Send, Welcome


class LegacyPeers:
    """Conversation of one node with legacy peers."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def message_received(self, message: Message, link: PeerLink, now: float) -> Send | None:
        """Handle a message of a legacy peer; return its SEND, if it is one."""
        context = self._context
        link.legacy = context.has_legacy_peers = True
        context.counters["legacy"] += 1
        me = context.id
        if isinstance(message, Knock):
            if me is not None and message.ind != me:
                link.node = message.ind
                for answer in (Meet(message.ind, me), Welcome(message.ind), Hello(message.ind, me)):
                    context.links.write(link, answer, now)
        elif isinstance(message, Ping) and me is not None:
            if link.target is not None and link.own_knock_id != me:
                # It drops nodes that join between two of its PINGs, and answers only one KNOCK per link.
                link.own_knock_id = me
                context.links.write(link, Knock(me, context.config.tag), now)
            if message.id != me:
                link.node = link.node or message.id
                context.links.write(link, Pong(message.val, me, 0, context.config.tag), now)
        elif isinstance(message, Send) and link.node is not None:
            return message
        elif isinstance(message, Pong | Recv):
            context.counters["legacy_ignored"] += 1
        return None
