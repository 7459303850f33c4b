"""Backbone of a group, of which one member numbers messages at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zope.interface import classImplements

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ServedClient, StreamClaimRejected, TakenOver
from fyrehose_twisted.fyrehose.node.backbone.authority import NumberingAuthority
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone, BackboneState
from fyrehose_twisted.fyrehose.node.backbone.push_backlog import DUPLICATE_WINDOW
from fyrehose_twisted.fyrehose.node.backbone.sequencer import MEMBER_RESERVE, BackboneStart, Sequencer
from fyrehose_twisted.fyrehose.node.backbone.takeover import Takeover
from fyrehose_twisted.fyrehose.node.base import earliest
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.member_messages import Seam
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    Flags,
    Forward,
    Head,
    Holding,
    Holds,
    Keepalive,
    Leader,
    Packet,
    Push,
    Request,
)
from fyrehose_twisted.fyrehose.wire.term_start import MAGIC as MARKER_MAGIC
from fyrehose_twisted.fyrehose.wire.term_start import TERM_START_SIZE, TermStart, encode_term_start
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy

FORMER_LEADER_TIME = 5.0
"""Seconds after a transfer for which the former leader is asked for repairs. Clients find gaps within that time."""


class GroupBackbone(Backbone):
    """Backbone that stands by until its group lets it number messages.

    :param authority: what the group has granted to it.
    :param to_utc: converts a time of the node's clock to UTC seconds since 1970, which tokens of clients depend on.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        authority: NumberingAuthority,
        start: BackboneStart | None = None,
        *,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
        is_own: Callable[[Address], bool] = lambda address: False,
        now: float = 0.0,
        to_utc: Callable[[float], float] = lambda now: now,
    ) -> None:
        super().__init__(config, policy, start, own_address=own_address, is_own=is_own, now=now)
        self._to_utc = to_utc
        self.authority = authority
        self.state = BackboneState.STANDBY
        self._policy = policy
        self._takeover: Takeover | None = None
        self._seam: Seam | None = None
        self._marker: tuple[int, bytes] | None = None
        """Number and DELIVER of the start of this backbone's term."""
        self._may_answer_forwards = False
        self._last_handed_over = 0
        self._first_of_term = 0
        """First number of the term, if a leader handed over that holds what was numbered before; else 0."""
        self._ask_former_leader_until = now
        self._published_before = 0
        self._known_last = 0
        """Last number that is known to have been given in earlier terms, or by another member."""
        self._forget_at: float | None = None
        self.has_progress = False
        """Whether a durable journal has reported progress since the group looked at it."""

    @property
    def highest_durable(self) -> int:
        """Highest number that a durable journal has synced, if anyone watches."""
        if not self._client_table.watchers:
            return 0  # Nobody waits to be told.
        journals = self._client_table.durable_journals
        reached = max((client.holds.holding.durable for client in journals if client.holds is not None), default=0)
        return self.authority.clip(min(reached, self.sequencer.last))

    @property
    def takes_over(self) -> bool:
        """Whether this backbone leads, but has not numbered a message in its term."""
        return self._takeover is not None

    @property
    def seam_to_record(self) -> Seam | None:
        """Seam that the group has to record before this backbone numbers messages."""
        return self._seam

    # Terms

    def lead(
        self,
        first: int,
        now: float,
        *,
        exact: bool = False,
        wait_until: float | None = None,
        reserve: int = MEMBER_RESERVE,
    ) -> None:
        """Begin a term of this backbone's group: ask the clients what they hold, and number messages from ``first``.

        :param exact: whether the number before ``first`` was given, by a leader that handed over.
        :param wait_until: time before which not all clients may be left unheard.
        :param reserve: see :class:`~fyrehose_twisted.fyrehose.node.backbone.sequencer.Sequencer`.
        """
        authority = self.authority
        self._now = now
        # What is known to have been given is never given up, even if no client that answers holds it.
        self._known_last = first - 1 if exact else min(max(authority.given, self.last_given), first - 1)
        self._number_from(Sequencer(first - 1, authority.bound, reserve), self._policy, now)
        self.state = BackboneState.TAKING_OVER
        self._published_before = self.counters.published
        self._takeover = Takeover(
            first, max(self._known_last, authority.kept), now, self._settle_until or now, wait_until
        )
        self._seam = None
        self._may_answer_forwards = False
        self._first_of_term, self._ask_former_leader_until = first if exact else 0, now + FORMER_LEADER_TIME
        self._ask_heads(now)
        self._continue_takeover(now)

    def authority_changed(self, now: float, *, kept: bool = False) -> None:
        """Number the PUSHes that waited for the group.

        :param kept: whether the number up to which messages are kept has changed.
        """
        authority = self.authority
        self._now = now
        self._watchers_outdated |= kept
        if self._takeover is not None:
            if self._seam is not None and self._seam in authority.seams:
                self._begin_numbering(now)
            else:
                self._continue_takeover(now)
        elif self.state is BackboneState.SERVING and self._push_backlog.has_pushes:
            self._publish_backlog(now)

    def follow_stream(self, last: int) -> None:
        """Note the last number that the leader has given, while standing by."""
        self._known_last = max(self._known_last, last)

    def stand_by(self, *, handed_over: bool = False) -> None:
        """Number nothing more, as this backbone's term is over. Waiting PUSHes are dropped; publishers repeat them.

        :param handed_over: whether the next term begins right after the last number of this backbone.
        """
        if self.state in (BackboneState.REFUSING, BackboneState.EXHAUSTED):
            return
        # After a transfer, messages whose DELIVERs were lost may be held by no client.
        if self.state is BackboneState.SERVING:
            self._may_answer_forwards, self._last_handed_over = handed_over, self.sequencer.last
            self._known_last = self.sequencer.last
        self.state = BackboneState.STANDBY
        self._takeover = self._seam = self._marker = None
        self.drops.counts["not_leading"] += len(self._push_backlog.release())
        self._forget_backlog()

    # Input

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.receive`."""
        match packet:
            case Forward() if peer in self.authority.members:
                self.forward_received(packet, now)
            case Head():
                self.head_received(packet, peer, now)
            case _:
                super().receive(packet, peer, now)

    def push_received(self, push: Push, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.push_received`."""
        if self.state is BackboneState.STANDBY:
            self.drops.counts["not_leading"] += 1
        elif push.data.startswith(MARKER_MAGIC):
            self._drop("marker_push", peer, "PUSH of a marker that only the group itself publishes", now)
        else:
            super().push_received(push, peer, now)

    def request_received(self, request: Request, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.request_received`."""
        if self.state is BackboneState.STANDBY:
            self.drops.counts["not_leading"] += 1
        else:
            super().request_received(request, peer, now)

    def holds_received(self, holds: Holds, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.holds_received`."""
        super().holds_received(holds, peer, now)
        self.has_progress = True

    def head_received(self, head: Head, peer: Address, now: float) -> None:
        """Record what a client holds, while this backbone takes over."""
        client, authority, takeover = self._client_table.get_by_source(peer), self.authority, self._takeover
        if client is None or client.token != head.token:
            self._drop("head_of_stranger", peer, "HEAD from an address that is not a client", now)
        elif takeover is None or head.term != authority.term:
            self.drops.counts["head_too_late"] += 1
        else:
            if head.highest >= takeover.first and not self._is_new_group:
                self._drop("implausible", peer, f"HEAD {head.highest}, but only {takeover.first - 1} may exist", now)
            takeover.head_received(client.address, head.highest)
            self._continue_takeover(now)

    def forward_received(self, forward: Forward, now: float) -> None:
        """Repair what this backbone numbered before it handed over."""
        if not self._may_answer_forwards or self._client_table.get(forward.address) is None:
            self.drops.counts["forward_unwanted"] += 1
            return
        last = min(forward.last, self._last_handed_over)
        refusal = self.repair_dispatcher.answer_from_memory(forward.address, forward.first, last, now)
        if refusal is not None:
            self.drops.counts[refusal] += 1

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        super().tick(now)
        if self._takeover is not None:
            self._ask_heads(now)
            self._continue_takeover(now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        return earliest(super().next_deadline(), self._takeover_deadline)

    # What a group changes

    @property
    def last_given(self) -> int:
        """Last number that this or another member is known to have given."""
        # Before the first number of a term, the sequencer stands at the bound of the term before.
        return self.sequencer.last if self.state is BackboneState.SERVING else self._known_last

    @property
    def _last_announced(self) -> int:
        return self.sequencer.last if self.counters.published > self._published_before else 0

    def _reported(self, holding: Holding) -> tuple[Holding, ...]:
        return self.authority.reported(holding)

    @property
    def _settle_deadline(self) -> float | None:
        return None if self._push_backlog.has_pushes else self._forget_at

    def _count_publishable(self, batch: Batch, run: DatagramRun, now: float) -> int:
        if self._push_backlog.has_pushes or self._has_marker(batch, run):
            return 0
        return min(super()._count_publishable(batch, run, now), self.authority.room(self.sequencer.last, now))

    def _acknowledge(self, keepalive: Keepalive, address: Address, now: float) -> None:
        """Acknowledge on the leader only, so that clients of other implementations look for it elsewhere."""
        leads = self.state is not BackboneState.STANDBY and self._holds_lease(now)
        if keepalive.flags & Flags.EXTENSIONS:
            asks_head = leads and self._asks_head(address)
            leader = self._make_leader(keepalive.token, keepalive.flags, asks_head=asks_head)
            self._send(encode(leader), address)
        if leads:
            super()._acknowledge(keepalive, address, now)

    def _repair(self, address: Address, first: int, last: int, now: float) -> str | None:
        if self._marker is not None and first <= self._marker[0] <= last:
            # Until a client has it, it takes no other client's word for numbers of the term.
            self._send(self._marker[1], address)
        refusal = super()._repair(address, first, last, now)
        if first >= self._first_of_term or now >= self._ask_former_leader_until or not can_be_packed(address):
            return refusal
        # The member that handed over may be the only one that holds them.
        for member in self.authority.members:
            if member != self.authority.leader:
                self._send(encode(Forward(address, first, min(last, self._first_of_term - 1))), member)
        return None

    def _repair_run(self, address: Address, ranges: Sequence[tuple[int, int]], now: float) -> bool:
        # Up to the marker of the term, numbers need the attention of _repair().
        return ranges[0][0] > self._first_of_term and super()._repair_run(address, ranges, now)

    def _refusal_reason(self, keepalive: Keepalive, address: Address, peer: Address, now: float) -> str | None:
        return super()._refusal_reason(keepalive, address, peer, self._to_utc(now))

    def _client_expired(self, client: ServedClient) -> None:
        if self._takeover is not None:
            self._takeover.forget(client.address)

    def _must_wait(self, now: float) -> bool:
        """Return whether a PUSH has to wait: for clients, or for the group to extend the bound or the lease."""
        if self.state in (BackboneState.SETTLING, BackboneState.TAKING_OVER):
            return True
        authority = self.authority
        if self.state is not BackboneState.SERVING:
            return False
        return self._push_backlog.has_pushes or not authority.room(self.sequencer.last, now)

    def _publish_backlog(self, now: float) -> None:
        authority = self.authority
        waiting = self._push_backlog.release()
        for position, (push, peer) in enumerate(waiting):
            if not authority.room(self.sequencer.last, now):
                self._push_backlog.put_back(waiting[position:])
                return
            self._publish(push, peer, now)
        if waiting:
            self._forget_at = now + DUPLICATE_WINDOW

    def _forget_backlog(self) -> None:
        """Number nothing that waited, and recognise none of it."""
        self._forget_at = None
        self._push_backlog.forget()

    def _has_marker(self, batch: Batch, run: DatagramRun) -> bool:
        """Return whether a run may contain what only the group itself publishes."""
        if run.size - DATA_HEADER.size != TERM_START_SIZE:
            return False
        return batch.buffer.find(MARKER_MAGIC, run.start, run.stop) >= 0

    def _holds_lease(self, now: float) -> bool:
        return now < self.authority.lease_until

    # Takeover

    def _make_leader(self, token: bytes, flags: int, *, asks_head: bool) -> Leader:
        """Return the LEADER for a client with ``flags``, without IPv6 addresses if it knows no LEADER6."""
        authority = self.authority
        # A leader without a lease may have a successor that it does not know.
        is_valid = self.state is BackboneState.STANDBY or self._holds_lease(self._now)
        leader = authority.leader if is_valid else None
        members = authority.members
        if not flags & (Flags.IPV4 | Flags.IPV6):
            members = tuple(member for member in members if ":" not in member[0])
            leader = None if leader is None or ":" in leader[0] else leader
        return Leader(token, authority.term, ANY_ADDRESS if leader is None else leader, asks_head, members)

    def _asks_head(self, client: Address) -> bool:
        takeover = self._takeover
        if takeover is None or client in takeover.answered:
            return False
        takeover.ask(client)
        return True

    def _ask_heads(self, now: float) -> None:
        takeover = self._takeover
        assert takeover is not None, "this backbone takes over"
        served = {one.address: one for one in self._client_table if one.flags & Flags.EXTENSIONS and one.token}
        for address in takeover.due_questions(served, now):
            client = served[address]
            self._send(encode(self._make_leader(client.token, client.flags, asks_head=True)), address)

    @property
    def _takeover_deadline(self) -> float | None:
        """Time at which a takeover continues; ``None`` if it waits for the lease, or there is none."""
        takeover = self._takeover
        waits = takeover is None or self._seam is not None or takeover.is_over(self._now)
        return None if takeover is None or waits else takeover.next_deadline()

    def _continue_takeover(self, now: float) -> None:
        takeover, authority = self._takeover, self.authority
        if takeover is None or self._seam is not None or not takeover.is_over(now):
            return
        if self._is_known_stream(takeover):
            self._takeover = None
            self._refuse_stream(*next(iter(takeover.claims.items())))
            return
        if not authority.room(self.sequencer.last, now):
            return  # The lease ends. Either it is extended, or the term is over.
        if takeover.claims and self._is_new_group:
            peer, sequence = next(iter(takeover.claims.items()))
            self._output.events.append(StreamClaimRejected(peer, sequence, len(takeover.answered) - 1))
        held_up_to = authority.clip(takeover.held_up_to)
        if held_up_to + 1 < takeover.first:
            # Nobody is told before the group has recorded it, so that every later leader tells the same.
            self._seam = Seam(held_up_to, takeover.first)
        else:
            self._begin_numbering(now)

    @property
    def _is_new_group(self) -> bool:
        """Whether the group knows of no number that was given."""
        return not (self.authority.given or self.authority.seams)

    def _is_known_stream(self, takeover: Takeover) -> bool:
        """Return whether clients hold messages of the stream although the group has just been bootstrapped."""
        if not takeover.claims or not self._is_new_group:
            return False
        claims, answers = len(takeover.claims), len(takeover.answered)
        return self.config.secret is not None or claims > 1 or claims == answers

    def _begin_numbering(self, now: float) -> None:
        takeover, authority, seam = self._takeover, self.authority, self._seam
        if takeover is None or not authority.room(self.sequencer.last, now):
            return
        self._takeover, self._settle_until, self._seam = None, None, None
        self.state = BackboneState.SERVING
        held_up_to = takeover.first - 1 if seam is None else seam.held_up_to
        marker = TermStart(authority.term, held_up_to, takeover.first)
        data = encode_term_start(marker)
        self._publish(Push(data), ANY_ADDRESS, now)
        self._marker = takeover.first, encode_deliver(takeover.first, data)
        seconds = now - takeover.started_at
        self._output.events.append(
            TakenOver(authority.term, held_up_to, takeover.first, len(takeover.answered), seconds)
        )
        self._publish_backlog(now)


classImplements(GroupBackbone, IDatagramNode)
