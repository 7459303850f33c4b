"""Hydra node (document 002): the whole protocol without I/O.

Links are reliable and ordered. A flooded message crosses each link once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import inf
from random import Random

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.config import NodeConfig
from fyrehose_twisted.hydra.events import Role, ToIrc
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.handlers.elections import ElectionHandler
from fyrehose_twisted.hydra.node.handlers.heartbeat import HeartbeatRelay
from fyrehose_twisted.hydra.node.handlers.membership import MembershipHandler
from fyrehose_twisted.hydra.node.lifecycle import HydraComponents, Lifecycle
from fyrehose_twisted.hydra.node.link_table import MAX_MALFORMED_LINES, PeerLink
from fyrehose_twisted.hydra.node.relay.line_relay import LineRelay
from fyrehose_twisted.hydra.node.status import NodeStatus, snapshot
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.messages import (
    LEGACY_TAG,
    Call,
    Drop,
    Elect,
    Hello,
    Keepalive,
    Knock,
    Malformed,
    Meet,
    Message,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)
from fyrehose_twisted.interfaces import ILinkNode, Outputs


@mypyc_attr(allow_interpreted_subclasses=True)
class HydraNode:
    """One node of a hydra network.

    :param config: configuration.
    :param rng: source of ids and random delays.
    :param now: time in seconds, on a clock that is never set and that includes suspend (CLOCK_BOOTTIME).
    :param durable: votes and promises of an earlier run.
    :param remembers: whether ``durable`` is complete. If not, the node makes no promise until every earlier one has
        expired.
    """

    def __init__(
        self,
        config: NodeConfig,
        rng: Random,
        now: float,
        *,
        durable: DurableState | None = None,
        remembers: bool = False,
    ) -> None:
        context = self._context = NodeContext(
            config, rng, now, DurableState() if durable is None else durable, remembers=remembers
        )
        components = self._components = HydraComponents(context)
        self.config = config
        self._lifecycle = Lifecycle(components, now)
        self._line_relay = LineRelay(context, components.send_queue, components.irc_writer, components.recv_relay)
        heartbeat = HeartbeatRelay(components, self._lifecycle)
        elections = ElectionHandler(components)
        membership = MembershipHandler(components, self._lifecycle)
        self._handlers: dict[type, Callable[..., None]] = {
            Ping: heartbeat.ping_received,
            Pong: heartbeat.pong_received,
            Drop: membership.drop_received,
            Nominate: elections.nominate_received,
            Pledge: elections.pledge_received,
            Call: elections.call_received,
            Elect: elections.elect_received,
            Knock: membership.knock_received,
            Meet: membership.meet_received,
            Welcome: membership.welcome_received,
            Hello: membership.hello_received,
            Keepalive: membership.keepalive_received,
            Malformed: self._malformed_received,
        }
        self._due = -inf

    # State

    @property
    def id(self) -> int | None:
        """Id of the node; ``None`` while it belongs to no network."""
        return self._context.id

    @property
    def role(self) -> Role:
        """Role of the node."""
        return self._context.role

    @property
    def term(self) -> int:
        """Term of the leader that it followed last."""
        return self._context.durable.term

    @property
    def leader(self) -> int | None:
        """Id of the leader, ``None`` if there is none; the node's own id if it leads."""
        return self._context.leader

    @property
    def lease_until(self) -> float | None:
        """End of the lease to write to IRC; ``None`` without a lease."""
        return self._components.leadership.lease_until

    @property
    def counters(self) -> Counter[str]:
        """Counters since the start."""
        return self._context.counters

    def state(self, now: float) -> NodeStatus:
        """Return the status of the node."""
        return snapshot(
            self._context,
            now,
            lease=self._components.leadership.lease_until,
            irc=self._components.irc_writer.state,
            waiting=len(self._components.send_queue) + len(self._components.irc_writer),
            expected=self._components.recv_relay.expected or 0,
        )

    # Requests of the application

    def say(self, line: bytes, token: Hashable, now: float, *, retry: bool = False) -> None:
        """Submit a line for IRC. Its outcome is reported by :class:`~fyrehose_twisted.hydra.events.LineOutcome`.

        :param token: identifies the line in that event.
        :param retry: at-least-once: resend if the outcome is uncertain (default: at-most-once).
        :raises UnencodableMessage: if it is not one IRC line that nodes may submit.
        :raises PublishQueueFull: if the queue is full.
        """
        self._components.send_queue.enqueue(line, token, now, retry=retry)
        self._advance(now)

    def request_state(self, now: float) -> bool:
        """Ask the leader for a snapshot of the application's state; return whether there is one to ask.

        The leader's application gets a :class:`~fyrehose_twisted.hydra.events.StateWanted`.
        """
        return self._line_relay.request_state(now)

    def relay_state(self, lines: Sequence[bytes], now: float) -> bool:
        """Relay a snapshot to all nodes, as the next lines of the term, if this node leads; return whether it did.

        :param lines: result of :func:`~fyrehose_twisted.hydra.wire.state_lines.encode_snapshot`.
        """
        if self.role is not Role.LEADER or not self._lifecycle.may_relay(now):
            return False
        self._line_relay.relay_state(lines, now)
        return True

    def leave(self, now: float) -> None:
        """Leave the network. :class:`~fyrehose_twisted.hydra.events.LeftNetwork` follows once IRC is closed."""
        self._lifecycle.shut_down(now)
        self._advance(now)

    # IRC connection

    def irc_opened(self, now: float, prefix: bytes = b"", limits: IrcLimits | None = None) -> None:
        """Handle a connection that is registered and has joined its channels.

        :param prefix: ``nick!user@host`` of the leader.
        :param limits: limits of the server.
        """
        self._components.irc_writer.opened(prefix, IrcLimits() if limits is None else limits, now)
        self._advance(now)

    def irc_renamed(self, prefix: bytes, now: float) -> None:
        """Handle a change of the leader's prefix.

        :param prefix: new ``nick!user@host``.
        """
        self._components.irc_writer.prefix = prefix

    def irc_closed(self, reason: str, now: float) -> None:
        """Handle the close of the transport, or a failed connection attempt."""
        self._components.irc_writer.closed(reason, now)
        self._advance(now)

    def irc_received(self, lines: Sequence[bytes], now: float) -> None:
        """Handle lines from IRC, without CR LF."""
        if self.role is not Role.LEADER or not self._lifecycle.may_relay(now):
            self._context.counters["irc_without_lease"] += len(lines)
            return
        self._line_relay.irc_received(lines, now)
        self._advance(now)

    def irc_handed(self, event: ToIrc, handed: bool, now: float) -> None:
        """Handle the result of a :class:`~fyrehose_twisted.hydra.events.ToIrc` request."""
        if not handed:
            self._line_relay.refused_by_transport(event)

    def irc_answered(self, number: int, now: float) -> None:
        """Handle the reply to an :class:`~fyrehose_twisted.hydra.events.AskIrc` request.

        The server has all lines up to ``number``, and its errors about them have been received.
        """
        answered = self._components.irc_writer.answered(number, now)
        if self.role is not Role.LEADER or not self._lifecycle.may_relay(now):
            self._context.counters["irc_without_lease"] += len(answered)
            return
        for handed in answered:
            self._line_relay.relay_outcome(handed, now)
        self._advance(now)

    # ILinkNode

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        context = self._context
        link = context.links.connected(peer, now)
        if link.target is None and context.links.accepted > self.config.max_links:
            context.counters["links_refused"] += 1
            context.links.close(link, now, "too many links")
            return
        if context.id is not None and not link.legacy:
            self._components.induction.announce_network(link, now)
        self._advance(now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._context.links.dial_failed(address, reason, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        link = self._context.links.remove(peer, now, reason)
        if link is not None:
            self._lifecycle.link_closed(link, now)
        self._advance(now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        link = self._context.links.get(peer)
        if link is not None:
            link.blocked = True

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        link = self._context.links.get(peer)
        if link is not None:
            link.blocked = False

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if now >= self._due:
            # After a suspension, messages received meanwhile are handled first.
            self.tick(now)
        context = self._context
        if context.role is Role.GONE:
            # Links stay open until IRC and the listening ports are closed.
            context.counters["came_after_leaving"] += 1
            return
        link = context.links.get(peer)
        if link is None:
            return
        if context.leader is None and link.relays and self._link_recovered(link, now):
            self._components.election.hasten(now)
        link.last_received_at = now
        if not link.legacy:
            if type(message) is Recv:
                self._recv_received(message, link, now)
                return
            if type(message) is Send:
                self._send_received(message, link, now)
                return
        if type(message) is Knock and message.tag == LEGACY_TAG:
            link.legacy = True
        if link.legacy and not isinstance(message, Malformed):
            send = self._components.legacy_peers.message_received(message, link, now)
            if send is not None and self._line_relay.relay(send, link, now):
                self._advance(now)
        else:
            self._handlers[type(message)](message, link, now)
        self._advance(now)

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        context = self._context
        if self._components.leadership.tick(now):
            self._components.election.nominate(now)
        self._lifecycle.advance(now)
        for link in context.links.tick(now):
            context.counters["links_silent"] += 1
            context.links.close(link, now, "silent")
            self._lifecycle.link_closed(link, now)
        if self._components.joining.tick(now):
            self._lifecycle.bootstrap(now)
        self._components.election.tick(now)
        wrong = self._components.registry_check.tick(now)
        if wrong is not None:
            context.counters["disagreements"] += 1
            self._lifecycle.leave_network(wrong, now)
        if self._lifecycle.no_leader_deadline() <= now:
            self._lifecycle.leave_network("there was no leader for too long", now)
        context.answer_deferred_ping(now)
        self._components.send_queue.tick(now)
        self._components.irc_writer.tick(now)
        self._advance(now)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if self.role is Role.GONE:
            self._due = inf
            return None
        due = min(
            self._context.links.next_deadline(),
            self._components.joining.next_deadline(),
            self._components.induction.next_deadline(),
            self._components.election.next_deadline(),
            self._components.leadership.next_deadline(),
            self._components.registry_check.next_deadline(),
            self._components.irc_writer.next_deadline(),
            self._components.send_queue.next_deadline(),
            self._lifecycle.no_leader_deadline(),
        )
        if self._context.deferred_ping is not None:
            due = min(due, self._context.durable.until)
        self._due = due
        return None if due == inf else due

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`. The state to persist is a
        :class:`~fyrehose_twisted.hydra.node.durable_state.DurableState`."""
        return self._context.output.drain()

    def _recv_received(self, message: Recv, link: PeerLink, now: float) -> None:
        if not link.relays:
            self._components.induction.reject_unbound("recv", link, now)
        elif self._line_relay.recv_received(message, link, now):
            self._advance(now)

    def _send_received(self, message: Send, link: PeerLink, now: float) -> None:
        if not link.relays:
            self._components.induction.reject_unbound("send", link, now)
        elif self._line_relay.send_received(message, link, now):
            self._advance(now)

    def _malformed_received(self, message: Malformed, link: PeerLink, now: float) -> None:
        context = self._context
        context.counters["malformed"] += 1
        context.counters[f"malformed_{message.reason}"] += 1
        link.malformed_lines += 1
        if link.malformed_lines >= MAX_MALFORMED_LINES:
            context.warn(f"hung up on {link.peer.address[0]}: {MAX_MALFORMED_LINES} lines were malformed")
            context.links.close(link, now, "malformed")
            self._lifecycle.link_closed(link, now)

    # Consequences

    def _link_recovered(self, link: PeerLink, now: float) -> bool:
        """Return whether a received message shows that an election can succeed now.

        That is the case if the link had been silent for the duration of a lease, or if this node led before and its
        neighbours are still bound to it.
        """
        context = self._context
        return link.last_received_at + context.timers.lease < now or context.promised_to(now) == context.id

    def _advance(self, now: float) -> None:
        """Carry out what has become possible."""
        context = self._context
        if self.role is Role.GONE:
            return
        if context.id is not None:
            self._components.induction.tick(now, may_decide=self._lifecycle.may_decide(now))
        self._lifecycle.advance(now)
        for link in context.links.new_primaries:
            self._components.induction.send_term(link, now)
            self._components.election.hasten(now)
        context.links.new_primaries.clear()
        self._line_relay.submit_waiting(now)
        until = self._components.leadership.lease_until
        if until is not None and self._lifecycle.resign_reason is None:
            for refused in self._components.irc_writer.send_due(now, until):
                self._line_relay.relay_outcome(refused, now)


classImplements(HydraNode, ILinkNode)
