"""Hydra node (document 002): the whole protocol without I/O.

Links are reliable and ordered. A flooded message crosses each link once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import inf
from random import Random
from typing import ClassVar

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.config import NodeConfig
from fyrehose_twisted.hydra.events import Role, ToIrc
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.heartbeat import HeartbeatRelay
from fyrehose_twisted.hydra.node.lifecycle import HydraComponents, Lifecycle
from fyrehose_twisted.hydra.node.link_table import MAX_MALFORMED_LINES, PeerLink
from fyrehose_twisted.hydra.node.relay.pending_replies import SentLine
from fyrehose_twisted.hydra.node.status import NodeStatus, snapshot
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.lines import add_tag, command_of, fits_recv, is_error_numeric, untag
from fyrehose_twisted.hydra.wire.messages import (
    E_RECV,
    LEGACY_TAG,
    NOT_INDUCTED,
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
from fyrehose_twisted.lru_set import LruSet


@implementer(ILinkNode)
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
        self._heartbeat = HeartbeatRelay(components, self._lifecycle)
        self._seen_sends = LruSet(8_192)
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
        counts = self._context.counters
        if self.role is not Role.LEADER or not self._lifecycle.may_relay(now):
            counts["irc_without_lease"] += len(lines)
            return
        for line in lines:
            command = command_of(line)
            if command not in E_RECV:
                # An error is relayed once the server has acknowledged all lines before it.
                if not (is_error_numeric(command) and self._components.irc_writer.pending_replies.match_error(line)):
                    counts["irc_not_relayed"] += 1
            elif not fits_recv(line):
                counts["irc_too_long"] += 1
            else:
                self._components.recv_relay.originate(line, now)
        self._advance(now)

    def irc_handed(self, event: ToIrc, handed: bool, now: float) -> None:
        """Handle the result of a :class:`~fyrehose_twisted.hydra.events.ToIrc` request."""
        if not handed:
            self._context.counters["too_late"] += 1
            self._components.irc_writer.pending_replies.remove(event.number)
            if event.line_id is not None:
                self._components.send_queue.line_refused(event.line_id, "too-late")

    def irc_answered(self, number: int, now: float) -> None:
        """Handle the reply to an :class:`~fyrehose_twisted.hydra.events.AskIrc` request.

        The server has all lines up to ``number``, and its errors about them have been received.
        """
        answered = self._components.irc_writer.answered(number, now)
        if self.role is not Role.LEADER or not self._lifecycle.may_relay(now):
            self._context.counters["irc_without_lease"] += len(answered)
            return
        for handed in answered:
            self._relay_outcome(handed, now)
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
            if send is not None:
                self._relay_send(send, link, now)
        else:
            self._handlers[type(message)](self, message, link, now)
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

    # Messages of a term

    def _recv_received(self, message: Recv, link: PeerLink, now: float) -> None:
        if not link.relays:
            self._reject_unbound("recv", link, now)
        elif self._components.recv_relay.recv_received(message, link, now):
            name = self._components.irc_writer.line_relayed(message.line)
            if name is not None:
                self._components.send_queue.line_relayed(name, untag(message.line)[1])
                if self._components.send_queue.has_waiting:
                    self._advance(now)

    def _send_received(self, message: Send, link: PeerLink, now: float) -> None:
        if not link.relays:
            self._reject_unbound("send", link, now)
        elif link.term != self._context.durable.term:
            # The earlier leader may have said the line; the submitting node decides about a resend.
            self._context.counters["send_of_another_term"] += 1
        else:
            self._relay_send(message, link, now)

    def _relay_send(self, message: Send, link: PeerLink, now: float) -> None:
        context = self._context
        if not context.in_term:
            context.counters["send_without_leader"] += 1
            return
        if not self._seen_sends.add(message):
            return
        if context.leader == context.id:
            self._components.irc_writer.enqueue(message, now)
            self._advance(now)
        else:
            context.flood_line(message, now, link)

    def _drop_received(self, message: Drop, link: PeerLink, now: float) -> None:
        context = self._context
        node, me = message.id, context.id
        told_so = node == me and link.target is not None and link.own_knock_id == me
        if not (link.bound or told_so) or (link.guardian and node != link.node):
            self._reject_unbound("drop")
            return
        if node == me:
            context.flood(message, now, link)
            self._lifecycle.leave_network(f"dropped: {message.reason or 'no reason given'}", now)
        elif message.reason.startswith(NOT_INDUCTED):
            if context.registry.release(node):
                context.flood(message, now, link)
        elif node in context.registry or node in context.registry.reservations:
            context.flood(message, now, link)
            self._lifecycle.drop(node, message.reason, now)

    # Elections

    def _nominate_received(self, message: Nominate, link: PeerLink, now: float) -> None:
        context = self._context
        if not link.relays:
            self._reject_unbound("nominate", link, now)
            return
        if context.bootstrapping and self.role is Role.LEADER and message.id in context.registry:
            if message.term > context.durable.term:
                # It leads without a quorum, so it may do so in any term; another node led in this one.
                context.update_durable(term=message.term + 1)
                self._components.recv_relay.begin_term(was_member=True)
                self._components.leadership.ping(now)
            return
        if message.id == context.durable.promised and message.id in context.registry and message.id != context.id:
            # A nominee no longer leads.
            context.release_promise(message.id)
        self._components.election.nominate_received(message, link, now)

    def _pledge_received(self, message: Pledge, link: PeerLink, now: float) -> None:
        if link.relays:
            self._components.election.pledge_received(message, link, now)
        else:
            self._reject_unbound("pledge", link, now)

    def _call_received(self, message: Call, link: PeerLink, now: float) -> None:
        if link.relays:
            self._components.election.call_received(message, link, now)
        else:
            self._reject_unbound("call", link, now)

    def _elect_received(self, message: Elect, link: PeerLink, now: float) -> None:
        if link.relays:
            self._components.election.elect_received(message, link, now)
        else:
            self._reject_unbound("elect", link, now)

    # Induction

    def _knock_received(self, message: Knock, link: PeerLink, now: float) -> None:
        context = self._context
        if link.relays:
            if message.ind != link.node and message.ind == link.peer_knock_id and message.ind in context.registry:
                # The peer names itself: the link had been bound by the HELLO of another node.
                self._components.induction.bind(link, message.ind, now)
            if message.ind != link.node:
                self._components.induction.knock_received(message, link, now)
            elif context.id is not None:
                # The peer does not consider the link bound yet.
                context.links.write(link, Hello(message.ind, context.id), now)
        elif link.guardian and link.node is not None:
            self._reject_unbound("knock")
        else:
            self._components.induction.unbound_knock(message, link, now, may_decide=self._lifecycle.may_decide(now))
            self._lifecycle.outsider_knocked(link, now)

    def _meet_received(self, message: Meet, link: PeerLink, now: float) -> None:
        if link.relays:
            self._components.induction.meet_received(message, link, now)
        elif self.role is Role.OUTSIDER:
            self._components.joining.meet_received(message, link)
        else:
            self._reject_unbound("meet")

    def _welcome_received(self, message: Welcome, link: PeerLink, now: float) -> None:
        if link.relays:
            self._components.induction.welcome_received(message, link, now)
        elif self.role is not Role.OUTSIDER:
            self._reject_unbound("welcome")
        elif self._components.joining.welcome_received(message, link):
            self._lifecycle.join(message.ind, link, now)
        elif link.foreign and link.own_knock_id == message.ind:
            # The PING that revealed the other network came after the KNOCK.
            self._context.links.write(link, Drop(message.ind, "of another network"), now)

    def _hello_received(self, message: Hello, link: PeerLink, now: float) -> None:
        context = self._context
        if link.relays:
            self._components.induction.hello_received(message, link, now)
        elif self.role is Role.OUTSIDER:
            self._components.joining.hello_received(message, link, now)
        elif message.ind == context.id and link.own_knock_id == context.id and link.node is None:
            if message.id in context.registry:
                self._components.induction.bind(link, message.id, now)
            elif context.registry.was_dropped(message.id):
                context.links.write(link, Drop(message.id, "dropped before"), now)
            else:
                # The WELCOME of that node has not arrived yet.
                link.peer_knock_id = message.id
        else:
            self._reject_unbound("hello")

    # Other messages

    def _keepalive_received(self, message: Keepalive, link: PeerLink, now: float) -> None:
        """Handle a keepalive. The peer may consider the link bound and send everything else over another one."""
        context = self._context
        # Earlier, relayed HELLOs to this node could be mistaken for the answer.
        if link.node is None and link.is_regular and context.member_since + context.timers.max_meet <= now:
            self._components.induction.probe_link(link, now)

    def _malformed_received(self, message: Malformed, link: PeerLink, now: float) -> None:
        context = self._context
        context.counters["malformed"] += 1
        context.counters[f"malformed_{message.reason}"] += 1
        link.malformed_lines += 1
        if link.malformed_lines >= MAX_MALFORMED_LINES:
            context.warn(f"hung up on {link.peer.address[0]}: {MAX_MALFORMED_LINES} lines were malformed")
            context.links.close(link, now, "malformed")
            self._lifecycle.link_closed(link, now)

    def _reject_unbound(self, command: str, link: PeerLink | None = None, now: float = 0.0) -> None:
        """Reject a message that only nodes may send, from a peer that is no node (rule S3)."""
        self._context.counters[f"unbound_{command}"] += 1
        if link is not None:
            self._components.induction.probe_link(link, now)

    _handlers: ClassVar[dict[type, Callable[..., None]]] = {
        Ping: lambda self, *what: self._heartbeat.ping_received(*what),
        Pong: lambda self, *what: self._heartbeat.pong_received(*what),
        Drop: _drop_received,
        Nominate: _nominate_received,
        Pledge: _pledge_received,
        Call: _call_received,
        Elect: _elect_received,
        Knock: _knock_received,
        Meet: _meet_received,
        Welcome: _welcome_received,
        Hello: _hello_received,
        Keepalive: _keepalive_received,
        Malformed: _malformed_received,
    }

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
        for name, send in self._components.send_queue.take_sendable(now):
            self._seen_sends.add(send)
            if context.leader == context.id:
                why = self._components.irc_writer.enqueue(send, now)
                if why is not None:
                    self._components.send_queue.line_refused(name, why)
            else:
                context.flood_line(send, now)
        until = self._components.leadership.lease_until
        if until is not None and self._lifecycle.resign_reason is None:
            for refused in self._components.irc_writer.send_due(now, until):
                self._relay_outcome(refused, now)

    def _relay_outcome(self, handed: SentLine, now: float) -> None:
        """Relay the outcome of a line: the line itself, or the errors of the server."""
        counts, name = self._context.counters, handed.line_id
        lines = handed.errors
        if lines:
            counts["irc_refused"] += 1
        else:
            counts["said"] += 1
            prefix = self._components.irc_writer.prefix
            lines = [b":%s %s" % (prefix, handed.line) if prefix else handed.line]
        first, *others = lines
        self._components.recv_relay.originate(first if name is None else add_tag(name, first), now)
        for line in others:
            self._components.recv_relay.originate(line, now)
        if name is not None:
            self._components.send_queue.line_relayed(name, first)
