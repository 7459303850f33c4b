"""A node of a hydra network (document 002): all of the protocol's rules, and no I/O.

Links are reliable and keep order. A message that goes to everybody goes over each link once.
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
from fyrehose_twisted.hydra.node.components import Parts
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.durable_state import Vow
from fyrehose_twisted.hydra.node.heartbeat import Following
from fyrehose_twisted.hydra.node.lifecycle import Course
from fyrehose_twisted.hydra.node.link_table import MAX_BAD, Tie
from fyrehose_twisted.hydra.node.relay.pending_replies import Handed
from fyrehose_twisted.hydra.node.snapshot import picture
from fyrehose_twisted.hydra.node.status import NodeState
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.lines import command_of, is_numeric, may_be_relayed, untag, with_tag
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
from fyrehose_twisted.interfaces import Drained, ILinkNode
from fyrehose_twisted.lru_set import Seen


@implementer(ILinkNode)
class HydraNode:
    """One node.

    :param config: what it is told.
    :param rng: where ids and waits come from.
    :param now: seconds, by a clock that goes on while the machine sleeps and that nobody sets.
    :param vow: what it promised before.
    :param remembers: whether that is all. If not, it keeps quiet until nothing that it may have promised binds it.
    """

    def __init__(
        self, config: NodeConfig, rng: Random, now: float, *, vow: Vow | None = None, remembers: bool = False
    ) -> None:
        standing = self._standing = Standing(config, rng, now, Vow() if vow is None else vow, remembers=remembers)
        parts = self._parts = Parts(standing)
        self.config = config
        self._course = Course(parts, now)
        self._following = Following(parts, self._course)
        self._sends = Seen(8_192)
        self._due = -inf

    # How it looks

    @property
    def id(self) -> int | None:
        """Its id; ``None`` while it belongs to no network."""
        return self._standing.id

    @property
    def role(self) -> Role:
        """What it is in the network."""
        return self._standing.role

    @property
    def term(self) -> int:
        """The term of the leader that it followed last."""
        return self._standing.vow.term

    @property
    def leader(self) -> int | None:
        """Whom it follows; its own id if it leads."""
        return self._standing.leader

    @property
    def lease_until(self) -> float | None:
        """Until when it may write to IRC; ``None`` if it must not."""
        return self._parts.leading.until

    @property
    def counts(self) -> Counter[str]:
        """What was counted since the start."""
        return self._standing.counts

    def state(self, now: float) -> NodeState:
        """Return how it looks."""
        return picture(
            self._standing,
            now,
            lease=self._parts.leading.until,
            irc=self._parts.speaking.state,
            waiting=len(self._parts.saying) + len(self._parts.speaking),
            expected=self._parts.hearing.expected or 0,
        )

    # What applications want

    def say(self, line: bytes, token: Hashable, now: float, *, retry: bool = False) -> None:
        """Have a line said on IRC; an event :class:`~fyrehose_twisted.hydra.events.Said` tells what became of it.

        :param retry: say it again where it is not known whether it was said; it may then be said twice.
        :raises UnencodableMessage: if it is not one line of IRC that may be said.
        :raises PublishQueueFull: if too many wait.
        """
        self._parts.saying.say(line, token, now, retry=retry)
        self._settle(now)

    def leave(self, now: float) -> None:
        """Say goodbye; the event :class:`~fyrehose_twisted.hydra.events.Left` follows once IRC is closed."""
        self._course.leave(now)
        self._settle(now)

    # What the connection to IRC brings

    def irc_opened(self, now: float, prefix: bytes = b"", limits: IrcLimits | None = None) -> None:
        """It is registered, and in the channels.

        :param prefix: who the leader is there, ``nick!user@host``.
        :param limits: what the server takes.
        """
        self._parts.speaking.opened(prefix, IrcLimits() if limits is None else limits, now)
        self._settle(now)

    def irc_renamed(self, prefix: bytes, now: float) -> None:
        """The leader is called otherwise on IRC.

        :param prefix: who it is there now, ``nick!user@host``.
        """
        self._parts.speaking.prefix = prefix

    def irc_closed(self, reason: str, now: float) -> None:
        """Its transport is closed, or could not be opened."""
        self._parts.speaking.closed(reason, now)
        self._settle(now)

    def irc_received(self, lines: Sequence[bytes], now: float) -> None:
        """Lines came from IRC, without CR LF."""
        counts = self._standing.counts
        if self.role is not Role.LEADER or not self._course.may_relay(now):
            counts["irc_without_lease"] += len(lines)
            return
        for line in lines:
            command = command_of(line)
            if command not in E_RECV:
                # What IRC refuses is relayed when it has answered for all that went before.
                if not (is_numeric(command) and self._parts.speaking.answers.refused(line)):
                    counts["irc_not_relayed"] += 1
            elif not may_be_relayed(line):
                counts["irc_too_long"] += 1
            else:
                self._parts.hearing.originate(line, now)
        self._settle(now)

    def irc_handed(self, event: ToIrc, handed: bool, now: float) -> None:
        """A line was handed to IRC, or was not."""
        if not handed:
            self._standing.counts["too_late"] += 1
            self._parts.speaking.answers.remove(event.number)
            if event.name is not None:
                self._parts.saying.refused(event.name, "too-late")

    def irc_answered(self, number: int, now: float) -> None:
        """IRC answered a question: it has had all lines up to a number, and what it has against them was told."""
        answered = self._parts.speaking.answered(number, now)
        if self.role is not Role.LEADER or not self._course.may_relay(now):
            self._standing.counts["irc_without_lease"] += len(answered)
            return
        for handed in answered:
            self._said(handed, now)
        self._settle(now)

    # ILinkNode

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        standing = self._standing
        tie = standing.ties.connected(peer, now)
        if tie.target is None and standing.ties.accepted > self.config.max_links:
            standing.counts["links_refused"] += 1
            standing.ties.hang_up(tie, now, "too many links")
            return
        if standing.id is not None and not tie.legacy:
            self._parts.induction.announce(tie, now)
        self._settle(now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._standing.ties.dial_failed(address, reason, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        tie = self._standing.ties.ended(peer, now, reason)
        if tie is not None:
            self._course.ended(tie, now)
        self._settle(now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        tie = self._standing.ties.get(peer)
        if tie is not None:
            tie.blocked = True

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        tie = self._standing.ties.get(peer)
        if tie is not None:
            tie.blocked = False

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if now >= self._due:
            # A process that stood still has to see what it missed first.
            self.tick(now)
        standing = self._standing
        if standing.role is Role.GONE:
            # Links stay open until IRC and the doors are closed.
            standing.counts["came_after_leaving"] += 1
            return
        tie = standing.ties.get(peer)
        if tie is None:
            return
        if standing.leader is None and tie.carries and self._is_back(tie, now):
            self._parts.election.hasten(now)
        tie.heard = now
        if not tie.legacy:
            if type(message) is Recv:
                self._recv_received(message, tie, now)
                return
            if type(message) is Send:
                self._send_received(message, tie, now)
                return
        if type(message) is Knock and message.tag == LEGACY_TAG:
            tie.legacy = True
        if tie.legacy and not isinstance(message, Malformed):
            send = self._parts.guests.received(message, tie, now)
            if send is not None:
                self._pass_on(send, tie, now)
        else:
            self._take[type(message)](self, message, tie, now)
        self._settle(now)

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        standing = self._standing
        if self._parts.leading.tick(now):
            self._parts.election.nominate(now)
        self._course.settle(now)
        for tie in standing.ties.tick(now):
            standing.counts["links_silent"] += 1
            standing.ties.hang_up(tie, now, "silent")
            self._course.ended(tie, now)
        if self._parts.outsider.tick(now):
            self._course.found(now)
        self._parts.election.tick(now)
        wrong = self._parts.agreement.tick(now)
        if wrong is not None:
            standing.counts["disagreements"] += 1
            self._course.part(wrong, now)
        if self._course.quorumless_at() <= now:
            self._course.part("there was no leader for too long", now)
        standing.answer_withheld(now)
        self._parts.saying.tick(now)
        self._parts.speaking.tick(now)
        self._settle(now)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if self.role is Role.GONE:
            self._due = inf
            return None
        due = min(
            self._standing.ties.next_deadline(),
            self._parts.outsider.next_deadline(),
            self._parts.induction.next_deadline(),
            self._parts.election.next_deadline(),
            self._parts.leading.next_deadline(),
            self._parts.agreement.next_deadline(),
            self._parts.speaking.next_deadline(),
            self._parts.saying.next_deadline(),
            self._course.quorumless_at(),
        )
        if self._standing.withheld is not None:
            due = min(due, self._standing.vow.until)
        self._due = due
        return None if due == inf else due

    def drain(self) -> Drained:
        """See :class:`~fyrehose_twisted.interfaces.INode`. What is to be durable is a
        :class:`~fyrehose_twisted.hydra.node.durable_state.Vow`."""
        return self._standing.out.drain()

    # Messages of a term

    def _recv_received(self, message: Recv, tie: Tie, now: float) -> None:
        if not tie.carries:
            self._unbound("recv", tie, now)
        elif self._parts.hearing.recv_received(message, tie, now):
            name = self._parts.speaking.heard(message.line)
            if name is not None:
                self._parts.saying.heard(name, untag(message.line)[1])
                if self._parts.saying.waits:
                    self._settle(now)

    def _send_received(self, message: Send, tie: Tie, now: float) -> None:
        if not tie.carries:
            self._unbound("send", tie, now)
        elif tie.term != self._standing.vow.term:
            # Who led then may have said it; whoever wanted it said knows that, and says it again or does not.
            self._standing.counts["send_of_another_term"] += 1
        else:
            self._pass_on(message, tie, now)

    def _pass_on(self, message: Send, tie: Tie, now: float) -> None:
        standing = self._standing
        if not standing.in_term:
            standing.counts["send_without_leader"] += 1
            return
        if not self._sends.add(message):
            return
        if standing.leader == standing.id:
            self._parts.speaking.put(message, now)
            self._settle(now)
        else:
            standing.flood_line(message, now, tie)

    def _drop_received(self, message: Drop, tie: Tie, now: float) -> None:
        standing = self._standing
        node, me = message.id, standing.id
        told_so = node == me and tie.target is not None and tie.knock == me
        if not (tie.bound or told_so) or (tie.guardian and node != tie.node):
            self._unbound("drop")
            return
        if node == me:
            standing.flood(message, now, tie)
            self._course.part(f"dropped: {message.reason or 'no reason given'}", now)
        elif message.reason.startswith(NOT_INDUCTED):
            if standing.registry.give_up(node):
                standing.flood(message, now, tie)
        elif node in standing.registry or node in standing.registry.pending:
            standing.flood(message, now, tie)
            self._course.drop(node, message.reason, now)

    # Elections

    def _nominate_received(self, message: Nominate, tie: Tie, now: float) -> None:
        standing = self._standing
        if not tie.carries:
            self._unbound("nominate", tie, now)
            return
        if standing.founding and self.role is Role.LEADER and message.id in standing.registry:
            if message.term > standing.vow.term:
                # It leads without a quorum, so it may do so in any term; in this one somebody else led.
                standing.change(term=message.term + 1)
                self._parts.hearing.begin_term(whole=True)
                self._parts.leading.ping(now)
            return
        if message.id == standing.vow.promised and message.id in standing.registry and message.id != standing.id:
            # Whoever wants to be elected leads no more.
            standing.release(message.id)
        self._parts.election.nominate_received(message, tie, now)

    def _pledge_received(self, message: Pledge, tie: Tie, now: float) -> None:
        if tie.carries:
            self._parts.election.pledge_received(message, tie, now)
        else:
            self._unbound("pledge", tie, now)

    def _call_received(self, message: Call, tie: Tie, now: float) -> None:
        if tie.carries:
            self._parts.election.call_received(message, tie, now)
        else:
            self._unbound("call", tie, now)

    def _elect_received(self, message: Elect, tie: Tie, now: float) -> None:
        if tie.carries:
            self._parts.election.elect_received(message, tie, now)
        else:
            self._unbound("elect", tie, now)

    # Induction

    def _knock_received(self, message: Knock, tie: Tie, now: float) -> None:
        standing = self._standing
        if tie.carries:
            if message.ind != tie.node and message.ind == tie.knocked and message.ind in standing.registry:
                # The other end says who it is: the HELLO that the link was bound by was that of somebody else.
                self._parts.induction.bind(tie, message.ind, now)
            if message.ind != tie.node:
                self._parts.induction.knock_received(message, tie, now)
            elif standing.id is not None:
                # The other end does not know yet that the link is bound.
                standing.ties.write(tie, Hello(message.ind, standing.id), now)
        elif tie.guardian and tie.node is not None:
            self._unbound("knock")
        else:
            self._parts.induction.knocked(message, tie, now, may_decide=self._course.may_decide(now))
            self._course.knocked(tie, now)

    def _meet_received(self, message: Meet, tie: Tie, now: float) -> None:
        if tie.carries:
            self._parts.induction.meet_received(message, tie, now)
        elif self.role is Role.OUTSIDER:
            self._parts.outsider.meet_received(message, tie)
        else:
            self._unbound("meet")

    def _welcome_received(self, message: Welcome, tie: Tie, now: float) -> None:
        if tie.carries:
            self._parts.induction.welcome_received(message, tie, now)
        elif self.role is not Role.OUTSIDER:
            self._unbound("welcome")
        elif self._parts.outsider.welcome_received(message, tie):
            self._course.join(message.ind, tie, now)
        elif tie.foreign and tie.knock == message.ind:
            # The PING that showed this came after the KNOCK.
            self._standing.ties.write(tie, Drop(message.ind, "of another network"), now)

    def _hello_received(self, message: Hello, tie: Tie, now: float) -> None:
        standing = self._standing
        if tie.carries:
            self._parts.induction.hello_received(message, tie, now)
        elif self.role is Role.OUTSIDER:
            self._parts.outsider.hello_received(message, tie, now)
        elif message.ind == standing.id and tie.knock == standing.id and tie.node is None:
            if message.id in standing.registry:
                self._parts.induction.bind(tie, message.id, now)
            elif standing.registry.was_dropped(message.id):
                standing.ties.write(tie, Drop(message.id, "dropped before"), now)
            else:
                # The news that it is a node is still under way.
                tie.knocked = message.id
        else:
            self._unbound("hello")

    # The rest

    def _keepalive_received(self, message: Keepalive, tie: Tie, now: float) -> None:
        """The link is alive; that was noted. The other end may take it for bound, and send all else over another."""
        standing = self._standing
        # Before, HELLOs of others to this node may come over it, and look like the answer.
        if tie.node is None and tie.ordinary and standing.member_since + standing.timers.max_meet <= now:
            self._parts.induction.ask(tie, now)

    def _malformed_received(self, message: Malformed, tie: Tie, now: float) -> None:
        standing = self._standing
        standing.counts["malformed"] += 1
        standing.counts[f"malformed_{message.reason}"] += 1
        tie.bad += 1
        if tie.bad >= MAX_BAD:
            standing.complain(f"hung up on {tie.peer.address[0]}: {MAX_BAD} lines made no sense")
            standing.ties.hang_up(tie, now, "malformed")
            self._course.ended(tie, now)

    def _unbound(self, what: str, tie: Tie | None = None, now: float = 0.0) -> None:
        """Somebody who is no node said what only nodes may (rule S3)."""
        self._standing.counts[f"unbound_{what}"] += 1
        if tie is not None:
            self._parts.induction.ask(tie, now)

    _take: ClassVar[dict[type, Callable[..., None]]] = {
        Ping: lambda self, *what: self._following.ping_received(*what),
        Pong: lambda self, *what: self._following.pong_received(*what),
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

    # What follows

    def _is_back(self, tie: Tie, now: float) -> bool:
        """Return whether what came shows that an election can succeed now: nothing had come over this link for as long
        as a lease lasts, or this node led before and those that it reaches are still bound to it."""
        standing = self._standing
        return tie.heard + standing.timers.lease < now or standing.promised(now) == standing.id

    def _settle(self, now: float) -> None:
        """Do what has become possible."""
        standing = self._standing
        if self.role is Role.GONE:
            return
        if standing.id is not None:
            self._parts.induction.tick(now, may_decide=self._course.may_decide(now))
        self._course.settle(now)
        for tie in standing.ties.switched:
            self._parts.induction.show_term(tie, now)
            self._parts.election.hasten(now)
        standing.ties.switched.clear()
        for name, send in self._parts.saying.take(now):
            self._sends.add(send)
            if standing.leader == standing.id:
                why = self._parts.speaking.put(send, now)
                if why is not None:
                    self._parts.saying.refused(name, why)
            else:
                standing.flood_line(send, now)
        until = self._parts.leading.until
        if until is not None and self._course.resigning is None:
            for refused in self._parts.speaking.take(now, until):
                self._said(refused, now)

    def _said(self, handed: Handed, now: float) -> None:
        """Relay what became of a line: what everybody on IRC reads, or what the server has against it."""
        counts, name = self._standing.counts, handed.name
        lines = handed.refusals
        if lines:
            counts["irc_refused"] += 1
        else:
            counts["said"] += 1
            prefix = self._parts.speaking.prefix
            lines = [b":%s %s" % (prefix, handed.line) if prefix else handed.line]
        first, *others = lines
        self._parts.hearing.originate(first if name is None else with_tag(name, first), now)
        for line in others:
            self._parts.hearing.originate(line, now)
        if name is not None:
            self._parts.saying.heard(name, first)
