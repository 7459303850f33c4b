"""The reference, which cannot be a node of a network that survives (section 4 of the reading of document 002): it
relays nothing, and counts votes of anybody.

So it is a guest at the end of a link: it is welcomed at once, hears PINGs and lines, and has no vote. Whatever else it
says is ignored.
"""

from __future__ import annotations

from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.link_table import Tie
from fyrehose_twisted.hydra.wire.messages import Hello, Knock, Meet, Message, Ping, Pong, Recv, Send, Welcome


class Guests:
    """Speaks to the reference."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def received(self, message: Message, tie: Tie, now: float) -> Send | None:
        """The reference said something; return what it wants said on IRC, if that is it."""
        standing = self._standing
        tie.legacy = standing.has_guests = True
        standing.counts["legacy"] += 1
        me = standing.id
        if isinstance(message, Knock):
            if me is not None and message.ind != me:
                tie.node = message.ind
                for answer in (Meet(message.ind, me), Welcome(message.ind), Hello(message.ind, me)):
                    standing.ties.write(tie, answer, now)
        elif isinstance(message, Ping) and me is not None:
            if tie.target is not None and tie.knock != me:
                # It drops whoever joins between two of its PINGs, and answers a knock but once on a link.
                tie.knock = me
                standing.ties.write(tie, Knock(me, standing.config.tag), now)
            if message.id != me:
                tie.node = tie.node or message.id
                standing.ties.write(tie, Pong(message.val, me, 0, standing.config.tag), now)
        elif isinstance(message, Send) and tie.node is not None:
            return message
        elif isinstance(message, Pong | Recv):
            standing.counts["legacy_ignored"] += 1
        return None
