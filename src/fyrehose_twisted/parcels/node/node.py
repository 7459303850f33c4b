"""The rules of a parcels node, without I/O (document 004 and its reading).

:class:`ClusterNode` finds others (:mod:`~fyrehose_twisted.parcels.node.discovery`), agrees with them on one order
(:mod:`~fyrehose_twisted.parcels.node.raft.member`), and hands events on as soon as they are final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.errors import LocalError, MessageTooLarge, NotOrdered
from fyrehose_twisted.interfaces import Drained, IEventHistory, ILinkNode
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import (
    ModeChanged,
    NeighbourAdded,
    NeighbourRemoved,
    Told,
    ViewChanged,
    Warned,
)
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.discovery import Discovery
from fyrehose_twisted.parcels.node.membership_changes import Membership
from fyrehose_twisted.parcels.node.mode_policy import Standing
from fyrehose_twisted.parcels.node.modes import Modes
from fyrehose_twisted.parcels.node.neighbours import Caller, Neighbour, Stage, Target
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.event_numbering import BadState, Replica
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.ordering.pending import run_size
from fyrehose_twisted.parcels.node.ordering.publish_tracker import NOT_LEADING, Publishing
from fyrehose_twisted.parcels.node.persistent_state import Promises, State
from fyrehose_twisted.parcels.node.raft.log import Log
from fyrehose_twisted.parcels.node.raft.member import Order
from fyrehose_twisted.parcels.node.raft.replication import APPEND_BYTES
from fyrehose_twisted.parcels.node.snapshot import picture
from fyrehose_twisted.parcels.node.state_recorder import Arrived, Arriving, Promising
from fyrehose_twisted.parcels.node.status import ClusterState
from fyrehose_twisted.parcels.wire.messages import (
    BEAT,
    MAX_PUBLISHER,
    Append,
    Appended,
    Beat,
    Entry,
    EntryKind,
    Event,
    Fetch,
    Fetched,
    Hello,
    Member,
    Message,
    Mode,
    NotPublished,
    Parcel,
    Proof,
    Publish,
    Published,
    Refusal,
    Refused,
    Run,
    StatePart,
    StateTaken,
    View,
    VoteAsked,
    VoteGiven,
    Welcome,
)

MAX_RUN = 60_000
"""Bytes of events in one run, with what goes with them."""
SEND_AGAIN = 0.2
"""Seconds after which what the leader would not take is sent again."""
LEAVING = 1.0
"""Seconds that a node waits for the others to let it go."""


@implementer(ILinkNode)
class ClusterNode:
    """One node of a cluster.

    :param rng: draws incarnations, nonces and patience.
    :param promises: what an earlier run of this node promised; changes to it come out of :meth:`drain`. ``None``: each
        start is a new life.
    :param history: where events are kept, the last of which this node handed on before; by default a window in memory.
    """

    def __init__(
        self,
        config: NodeConfig,
        rng: Random,
        now: float,
        *,
        promises: Promises | None = None,
        history: IEventHistory | None = None,
    ) -> None:
        self.config = config
        self.counters = Counters()
        self.drops: Counter[str] = Counter()
        self._rng = rng
        member = None if promises is None else promises.member
        if member is None or member.name != config.name:
            member = Member(config.name, rng.getrandbits(63) or 1)
        self.me = member
        starts = 1
        if promises is not None:
            promises.begin(member)
            starts = promises.starts
        self._order = Order(member, rng, now, Log(), self._snapshot)
        self._events: list[Told] = []
        if history is None:
            history = EventWindow(config.window_bytes)
        self._delivery = Delivery(history, self.counters, self._events, self._ask)
        self._promising = Promising(durable=promises is not None)
        self._arriving = Arriving()
        publisher = f"{config.name}#{member.incarnation:016x}"
        self._publishing = Publishing(publisher, config.pending_bytes, starts << 32)
        self._modes = Modes()
        self._modes.since = now
        self._discovery = Discovery(config, member, self, rng, now)
        self._membership = Membership(self._order, self._discovery, lambda: self.sequence)
        self._standing = Standing(config, self._order, self._discovery, self._delivery, self._modes)
        self._accept: dict[type, Callable[[Any, Caller, float], None]] = {
            Append: self._append_received,
            Publish: self._publish_received,
            VoteAsked: self._vote_asked,
            Beat: self._beat_received,
            Fetch: self._fetch_received,
            StatePart: self._state_received,
        }
        self._answers: dict[type, Callable[[Any, Target, Member, float], None]] = {
            Appended: self._appended_received,
            NotPublished: self._not_published_received,
            VoteGiven: self._vote_given,
            StateTaken: self._state_taken,
            Fetched: self._fetched_received,
        }
        self._requests: list[Run] = []
        self._leader: Member | None = None
        self._send_again_at = inf
        self._check_at = now + BEAT
        self._leaves_at = inf
        self._view: View | None = None
        self._asks: dict[Member, Peer] = {}
        self._applied = 0
        self._now = now
        self._stirred = True
        if promises is not None and promises.founding:
            self._remember(promises, now)
        elif not config.neighbours and self._standing.may_found():
            self._found(now)

    # Facts

    @property
    def mode(self) -> Mode:
        """What the node is at."""
        return self._modes.mode

    @property
    def sequence(self) -> int:
        """Number of the last event that was handed on."""
        return self._delivery.last

    @property
    def term(self) -> int:
        """The term of the order."""
        return self._order.term

    @property
    def founding(self) -> int:
        """Which cluster this node is in; 0 for none. That it heard of one is not enough."""
        return 0 if self._order.view is None else self._delivery.replica.founding

    @property
    def oldest(self) -> int:
        """The lowest number of an event that is held."""
        return int(self._delivery.history.oldest)

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """Return events ``first`` to ``last`` as far as they were handed on, at most ``limit``.

        :raises EventsNotHeld: if ``first`` is no longer held.
        """
        return self._delivery.read(first, last, limit)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if self.gone:
            return None
        return min(
            self._order.next_deadline(),
            self._discovery.next_deadline(),
            self._delivery.deadline,
            self._check_at,
            self._send_again_at,
            self._leaves_at,
        )

    def state(self, now: float) -> ClusterState:
        """Return how the cluster looks from here."""
        self.counters.repeats, self.counters.elections = self._delivery.replica.repeats, self._order.elections
        counters = asdict(self.counters)
        for why, count in (self.drops + self._discovery.counts).items():
            counters[f"dropped_{why.replace('-', '_')}"] = count
        held = (self.oldest, self.sequence)
        founding, order = self.founding, self._order
        return picture(self.config.cluster, founding, order, self._discovery, self._modes, held, counters, now)

    # Commands

    def publish(self, events: Sequence[bytes], token: Any, now: float) -> None:
        """Let events of this node be ordered, one after the other. What becomes of them is told with ``token``.

        :raises MessageTooLarge: if one is too long.
        :raises PublishQueueFull: if too many wait.
        :raises NotOrdered: if this node is in touch with too few others.
        """
        self._stirred = True
        self._now = now
        self._check(events)
        if events:
            self._publishing.publish(events, token)

    def publish_as(self, run: Run, token: Any, now: float) -> None:
        """Let events be ordered that the application numbered itself, so that repeating is safe.

        :raises MessageTooLarge: if one is too long.
        :raises NotOrdered: if this node is in touch with too few others.
        :raises PublishQueueFull: if too many wait.
        :raises LocalError: if the publisher's name is too long, or that of this node, or there are no events.
        """
        self._stirred = True
        self._now = now
        self._check(run.events)
        if not run.events or run.first < 1:
            raise LocalError("a run has one event or more, counted from 1 on")
        if not 1 <= len(run.publisher.encode()) <= MAX_PUBLISHER:
            raise LocalError(f"publisher {run.publisher[:40]!r}…: use 1 to {MAX_PUBLISHER} bytes")
        self._publishing.publish_as(run, token)
        self._requests.append(run)

    def _check(self, events: Sequence[bytes]) -> None:
        limit = self.config.max_event
        for event in events:
            if len(event) > limit:
                raise MessageTooLarge(len(event), limit)
        if self.mode is not Mode.WRK:
            self.counters.refused += len(events)
            raise NotOrdered("no-quorum", f"this node cannot order events: {self._modes.why}", unknown=False)
        self.counters.published += len(events)

    def leave(self, now: float) -> None:
        """Stop: let the others go on without this node."""
        self._stirred = True
        self._now = now
        if self._leaves_at < inf or self.mode in (Mode.SHUTDOWN, Mode.PANIC):
            return
        self._mode_changes("left", "it was told to stop", now)
        self._publishing.give_up("this node stops")
        self._discovery.leave()
        self._order.leave(now)
        self._leaves_at = now + LEAVING if self._discovery.lines else now

    @property
    def gone(self) -> bool:
        """Whether everything is said that was to be said."""
        return self.mode in (Mode.SHUTDOWN, Mode.PANIC) and self._leaves_at == inf

    def panic(self, why: str, now: float) -> None:
        """Promises cannot be kept any more: say no more."""
        self._stirred = True
        self._now = now
        self._mode_changes("broke", why, now)
        self._publishing.give_up(why)

    def reform(self, now: float) -> None:
        """Form the cluster anew with this node alone. Whoever remembers the old one is refused from then on.

        :raises LocalError: if the node is in touch with a quorum, or stops.
        """
        self._stirred = True
        self._now = now
        if self.mode in (Mode.WRK, Mode.SHUTDOWN, Mode.PANIC):
            raise LocalError(f"node {self.me.name!r} is in mode {self.mode.value}: it has a quorum, or has stopped")
        self._arriving.forget()
        self._discovery.close(now)
        self._found(now, why="the operator formed the cluster anew, as")

    # What happens

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._stirred = True
        self._now = now
        if self.gone:
            self._discovery.hang_up(peer)
        else:
            self._discovery.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._stirred = True
        self._now = now
        self._discovery.dial_failed(address, reason, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._stirred = True
        self._now = now
        self._discovery.disconnected(peer, reason, now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._stirred = True
        self._now = now
        target = self._discovery.target_of(peer)
        if target is not None and target.member is not None:
            self._order.replication.blocked(target.member, True)

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._stirred = True
        self._now = now
        target = self._discovery.target_of(peer)
        if target is not None and target.member is not None:
            self._order.replication.blocked(target.member, False)

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if self.gone:
            return
        self._now = now
        if peer.dialled:
            if type(message) is not Appended:
                self._stirred = True
            self._from_target(message, peer, now)
        else:
            self._stirred = True
            self._from_caller(message, peer, now)

    def _from_caller(self, message: Message, peer: Peer, now: float) -> None:
        discovery = self._discovery
        caller = discovery.callers.get(peer.number)
        if caller is None:
            return
        accept = self._accept.get(type(message))
        if accept is not None and caller.proven and (caller.member is not None or type(message) is Publish):
            discovery.heard(caller, now)
            accept(message, caller, now)
        elif isinstance(message, Parcel):
            discovery.parcel_from_caller(message, caller, now)
        elif isinstance(message, Hello):
            discovery.hello_received(message, caller, now)
        elif isinstance(message, Proof):
            discovery.proof_received(message, caller, now)
        else:
            self.drops["out-of-place"] += 1
            text = f"a {type(message).__name__} is not expected here: say hello first"
            discovery.write(peer, Refused(Refusal.WRONG_SECRET, text))
            discovery.hang_up(peer)

    def _from_target(self, message: Message, peer: Peer, now: float) -> None:
        discovery = self._discovery
        target = discovery.target_of(peer)
        if target is None:
            return
        answer = self._answers.get(type(message))
        if answer is not None and target.stage is Stage.READY and target.member is not None:
            discovery.answered(target.member, now)
            answer(message, target, target.member, now)
        elif isinstance(message, Parcel):
            if target.member is not None and target.stage is Stage.READY:
                discovery.answered(target.member, now)
            discovery.parcel_from_target(message, target, now)
        elif isinstance(message, Welcome):
            discovery.welcome_received(message, target, now)
        elif isinstance(message, Refused):
            discovery.refused(message, target, now)
        else:
            self.drops["out-of-place"] += 1

    # Requests

    def _append_received(self, message: Append, caller: Caller, now: float) -> None:
        if caller.member is not None and self._same_cluster(caller):
            self._asks[caller.member] = caller.peer
            self._order.append_received(message, caller.member, now)

    def _vote_asked(self, message: VoteAsked, caller: Caller, now: float) -> None:
        if caller.member is not None and self._same_cluster(caller):
            self._asks[caller.member] = caller.peer
            self._order.vote_asked(message, caller.member, now)

    def _same_cluster(self, caller: Caller) -> bool:
        """A caller may have said hello before it, or this node, was in a cluster: whom it belongs to it said then."""
        if self._order.view is None and caller.founding:
            self.adopt(caller.founding)
            return True
        if self.founding and caller.founding == self.founding:
            return True
        # It is in no cluster, or in another one: both can only be told anew on a new connection.
        self.drops["other-founding"] += 1
        self._discovery.hang_up(caller.peer)
        return False

    def _beat_received(self, message: Beat, caller: Caller, now: float) -> None:
        self._discovery.beat_received(message, caller)
        if caller.member not in self._order.members:
            self._membership.due = True
        if message.mode is Mode.SHUTDOWN and caller.member is not None:
            self._membership.leaves(caller.member)
            if caller.member == self._order.leader:
                self._order.leader_gone(now)

    def _publish_received(self, message: Publish, caller: Caller, now: float) -> None:
        run = message.run
        publishing = self._publishing
        if not run.events or not run.first >= 1:
            publishing.refuse(caller.peer, run, Refusal.OUT_OF_ORDER, "a run has one event or more, counted from 1 on")
        elif run_size(run) > MAX_RUN or any(len(event) > self.config.max_event for event in run.events):
            text = f"an event has more than {self.config.max_event:,} bytes, or all together more than {MAX_RUN:,}"
            publishing.refuse(caller.peer, run, Refusal.OVERSIZE, text)
        elif self.mode is not Mode.WRK or (caller.member is not None and not self._order.leads):
            text = NOT_LEADING if self.mode is Mode.WRK else f"this node cannot order events: {self._modes.why}"
            publishing.refuse(caller.peer, run, Refusal.NO_QUORUM, text)
        else:
            self.counters.published += len(run.events)
            # One that waits already may have been sent to a leader that lost it; to send it again does no harm.
            if publishing.asked(run, caller.peer):
                self._requests.append(run)

    def _fetch_received(self, message: Fetch, caller: Caller, now: float) -> None:
        self._discovery.write(caller.peer, self._delivery.give(message))

    def _state_received(self, message: StatePart, caller: Caller, now: float) -> None:
        leader = caller.member
        if leader is None or not self._same_cluster(caller):
            return
        if not self._order.state_offered(message.term, leader, now):
            return
        try:
            size, arrived = self._arriving.take(message, leader)
        except BadState as error:
            self.drops["bad-state"] += 1
            self.warn(str(error))
            return
        if arrived is not None and message.index > self._order.commit:
            self._install(arrived)
        self._discovery.write(caller.peer, StateTaken(self._order.term, message.index, size))

    def _install(self, arrived: Arrived) -> None:
        state = arrived.state
        self._promising.state = state
        self._delivery.install(arrived.replica)
        self._order.begin_at(state.index, state.term, arrived.view)
        self._applied = state.index
        self.counters.states_taken += 1

    # Answers

    def _appended_received(self, message: Appended, target: Target, member: Member, now: float) -> None:
        if self._order.appended_received(message, member, now):
            self._stirred = True
        if member not in self._order.members:
            self._membership.due = self._stirred = True

    def _vote_given(self, message: VoteGiven, target: Target, member: Member, now: float) -> None:
        self._order.vote_given(message, member, now)

    def _state_taken(self, message: StateTaken, target: Target, member: Member, now: float) -> None:
        self._order.state_taken(message, member, now)

    def _not_published_received(self, message: NotPublished, target: Target, member: Member, now: float) -> None:
        self._publishing.not_answered(message)
        self._send_again_at = min(self._send_again_at, now + SEND_AGAIN)

    def _fetched_received(self, message: Fetched, target: Target, member: Member, now: float) -> None:
        self._delivery.fetched(message, member)

    # What discovery tells

    def adopt(self, founding: int) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        if self._order.view is None and founding != self._delivery.replica.founding:
            self._delivery.replica.founding = founding
            self._promising.dirty = True

    def line_ready(self, member: Member, now: float) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        self._membership.came(member)
        self._order.replication.opened(member)
        if member == self._order.leader:
            self._send_all()

    def line_lost(self, member: Member) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        self._order.replication.closed(member)

    def suspected(self, member: Member, now: float) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        if member == self._order.leader:
            self._order.leader_gone(now)
        self._asks.pop(member, None)
        self._membership.suspected(member)

    def neighbour_came(self, neighbour: Neighbour) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        self._events.append(NeighbourAdded(neighbour.info.name, neighbour.info.host))

    def neighbour_went(self, neighbour: Neighbour, why: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        self._events.append(NeighbourRemoved(neighbour.info.name, neighbour.info.host, why))

    def sequence_answered(self, sequence: int, ours: bool) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        self._standing.sequence_answered(sequence, ours)

    def warn(self, text: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        self._events.append(Warned(text))

    def keeps(self, address: Address) -> bool:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.Owner`."""
        view = self._order.view
        return view is not None and any(address == one for _, one in view.members)

    # Time

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._stirred = True
        if self.gone:
            return
        self._now = now
        if now >= self._leaves_at:
            self._leaves_at = inf
            self._discovery.close(now)
            return
        self._order.tick(now)
        self._discovery.tick(now)
        if now >= self._send_again_at:
            self._send_all()
        if now >= self._check_at:
            self._check_at = now + BEAT
            self._look_around(now)

    def _look_around(self, now: float) -> None:
        """See who else is there, and how that stands."""
        if self.mode is Mode.DSC:
            if self._standing.may_found():
                self._found(now)
            else:
                self._modes.why = self._standing.waits_for()
        lost = self._standing.lost_quorum(now)
        if lost is not None:
            self._mode_changes("lost_quorum", lost, now)
            self._publishing.give_up(lost)
        view = self._order.view
        if view is not None:
            self._discovery.learn((address for member, address in view.members if member != self.me), now)
        self._membership.sweep()

    def _found(self, now: float, why: str = "it began the cluster") -> None:
        order, delivery = self._order, self._delivery
        founding = delivery.replica.founding = self._rng.getrandbits(63) or 1
        if not order.log.last:
            # Whoever joins takes state, and so learns where numbers begin.
            delivery.begin(self._standing.largest)
            order.begin_at(1, 0, View(((self.me, self.config.advertise),)))
            self._applied = 1
            self._see_view()
            self._promising.state = self._snapshot()
        order.found(self.config.advertise, now, order.term + 1)
        self._apply()
        self._mode_changes("founded", f"{why} {founding:016x}", now)

    def _remember(self, promises: Promises, now: float) -> None:
        """Go on where an earlier run of this node was."""
        order, delivery = self._order, self._delivery
        replica, state = Replica(), promises.state
        if state is not None:
            view = replica.load(state.data)
            order.begin_at(state.index, state.term, view)
            self._applied = state.index
        replica.founding = promises.founding
        delivery.replica = replica
        order.log.append(promises.entries)
        order.term, order.vote = promises.term, promises.vote
        order.resume(promises.commit)
        if order.members == {self.me}:
            order.leader_gone(now)  # There is nobody to wait for.

    def _mode_changes(self, what: str, why: str, now: float) -> None:
        if self._modes.happened(what, why, now):
            self._discovery.mode = self.mode
            self._events.append(ModeChanged(self.mode, why))
            self._discovery.beat()

    # Out

    def drain(self) -> Drained:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if not self._stirred:
            return Drained(None, [], [])
        self._stirred = False
        now, order = self._now, self._order
        if self._promising.much and self._applied > order.log.base:
            self._promising.compact(order, self._snapshot())
        self._pass_on()
        while True:
            order.flush(now)
            self._apply()
            if not (self._membership.due and self._membership.review(now)):
                break
        news = self._standing.news()
        if news is not None:
            self._mode_changes(*news, now)
            if news[0] == "fell_behind":
                self._publishing.give_up(f"this node fell behind: {news[1]}")
        persist = self._promising.change(order, self._delivery.replica.founding)
        self._route()
        events = [*self._events, *self._publishing.told]
        self._events.clear()
        self._publishing.told.clear()
        return Drained(persist, self._discovery.drain(), events)

    def _pass_on(self) -> None:
        """See that runs get to the leader: new ones, or all of them to a new leader."""
        order, publishing = self._order, self._publishing
        leader = order.leader
        if leader != self._leader:
            self._leader = leader
            self._send_all()
        requests, self._requests = self._requests, []
        if publishing.outbox.waiting:
            requests.extend(publishing.take())
        if not requests or leader is None or self._send_again_at < inf:
            return  # They wait among what is pending, behind what the leader would not take.
        if order.leads:
            self._propose(requests)
            return
        for run in requests:
            self._discovery.request(leader, Publish(run))

    def _send_all(self) -> None:
        self._send_again_at = inf
        self._requests = list(self._publishing.runs())

    def _propose(self, runs: list[Run]) -> None:
        """Put runs into the log, many in one entry."""
        order = self._order
        together: list[Run] = []
        size = 0
        for run in runs:
            adds = run_size(run)
            if together and size + adds > APPEND_BYTES:
                order.propose(Entry(order.term, EntryKind.EVENTS, tuple(together)))
                together, size = [], 0
            together.append(run)
            size += adds
        order.propose(Entry(order.term, EntryKind.EVENTS, tuple(together)))

    def _apply(self) -> None:
        """Take what has become final."""
        order, delivery, publishing = self._order, self._delivery, self._publishing
        if order.ready:
            ready, order.ready = order.ready, []
            for index, entry in ready:
                results = delivery.take(entry)
                self._applied = index
                for run, placed in results:
                    publishing.placed(run, placed, delivery.last)
            order.log.drop(self.config.window_bytes, self._applied)
        if delivery.last < delivery.replica.sequence or delivery.backfill is not None:
            delivery.fill(self._whom_to_ask(), self._now)
            if delivery.backfill is None:
                self._discovery.beat()  # Whoever leads waits for this before it lets a node vote.
        publishing.delivered(delivery.last)
        self._see_view()

    def _see_view(self) -> None:
        view = self._order.view
        if view is not None and view is not self._view:
            if view != self._view:
                self._events.append(ViewChanged(view))
                self._membership.due = True
            self._view = view

    def _ask(self, member: Member, question: Fetch) -> None:
        self._discovery.request(member, question)

    def _whom_to_ask(self) -> list[Member]:
        lines = sorted(self._discovery.lines)
        leader = self._order.leader
        if leader in lines:
            lines.remove(leader)
            lines.insert(0, leader)
        return lines

    def _route(self) -> None:
        """Put messages on the connections on which they belong."""
        order, discovery = self._order, self._discovery
        callers = discovery.callers
        for peer, message in self._publishing.out:
            caller = callers.get(peer.number)
            if caller is None:
                continue
            if caller.member is not None and type(message) is Published:
                order.replication.urge(caller.member)
            else:
                discovery.write(peer, message)
        self._publishing.out.clear()
        for member, message in order.out:
            if type(message) in _ANSWERS:
                asked = self._asks.get(member)
                if asked is not None and asked.number in callers:
                    discovery.write(asked, message)
            else:
                discovery.request(member, message)
        order.out.clear()

    def _snapshot(self) -> State:
        """Return what the log came to."""
        view = self._view if self._view is not None else View(())
        term = self._order.log.term(self._applied) or 0
        return State(self._applied, term, self._delivery.replica.dump(view))


_ANSWERS = frozenset((Appended, VoteGiven))
