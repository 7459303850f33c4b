"""One node of document 003: its neighbours, its streams, and whatever goes through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Address, HangUp, Peer
from fyrehose_twisted.errors import ConfigurationError, TooManyStreams
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import Delivered, Subscribed
from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import identity
from fyrehose_twisted.freenet.node.peer_links import Meeting
from fyrehose_twisted.freenet.node.publishing import Publishing
from fyrehose_twisted.freenet.node.reparenting import Restarts
from fyrehose_twisted.freenet.node.routing import Searching
from fyrehose_twisted.freenet.node.snapshot import picture
from fyrehose_twisted.freenet.node.status import NodeState
from fyrehose_twisted.freenet.node.stream import Phase, Stream
from fyrehose_twisted.freenet.node.tree import Members
from fyrehose_twisted.freenet.wire.location import check_key, is_location
from fyrehose_twisted.freenet.wire.messages import (
    NONE_SEEN,
    Accepted,
    BetterRoot,
    DataNotFound,
    Dismissed,
    Located,
    Message,
    Ping,
    Pong,
    PublishCollision,
    PublishData,
    PublishFailed,
    PublishSucceeded,
    Recall,
    RejectedBusy,
    RejectedLoop,
    RejectedOverload,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeData,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)
from fyrehose_twisted.freenet.wire.signing import can_verify, is_signed
from fyrehose_twisted.interfaces import Drained, ILinkNode


@implementer(ILinkNode)
class FreenetNode:
    """The rules of document 003 as a state machine.

    What it wants done is ``Dial``, ``Write`` and ``HangUp``; what it tells is in
    :mod:`~fyrehose_twisted.freenet.events`. Nothing has to be durable.

    :param now: when it is born.
    :ivar config: what it was told.
    :ivar counts: what was counted since the start.
    """

    def __init__(self, config: NodeConfig, rng: Random, now: float) -> None:
        self.config = config
        core = self._core = Core(config, rng)
        self.counts: Counter[str] = core.counts
        members = self._members = Members(core)
        searching = self._searching = Searching(core, members)
        restarts = self._restarts = Restarts(core, members, searching)
        publishing = self._publishing = Publishing(core)
        meeting = self._meeting = Meeting(core, now)
        members.rooted = restarts.rooted
        members.attached = publishing.attached
        members.closed = publishing.closed
        searching.refreshed = restarts.refreshed
        searching.own_ended = restarts.own_ended
        searching.begin_later = restarts.begin_later
        searching.better_known = restarts.better_known
        meeting.arrived = self._arrived
        meeting.rebooted = self._rebooted
        meeting.lost = self._lost
        meeting.forgotten = self._forgotten
        self._waiting_for_neighbour = bool(config.targets) and config.first_neighbour_timeout > 0.0
        if self._waiting_for_neighbour:
            core.at(now + config.first_neighbour_timeout, self._begin_waiting)
        self._receivers: dict[type, Callable[[Any, Neighbour, float], None]] = {
            Located: self._located,
            Ping: meeting.pinged,
            Pong: _nothing,
            SubscribeRequest: searching.subscribe_requested,
            ResubscribeRequest: searching.resubscribe_requested,
            Accepted: searching.accepted,
            RejectedLoop: self._rejected_loop,
            RejectedBusy: searching.rejected_busy,
            RejectedOverload: searching.rejected_overload,
            DataNotFound: searching.data_not_found,
            RouteNotFound: searching.route_not_found,
            SubscribeSucceeded: searching.succeeded,
            SubscribeSucceededNewRoot: searching.succeeded,
            SubscribeRestarted: restarts.restarted,
            Unsubscribe: self._unsubscribed,
            Dismissed: restarts.dismissed,
            BetterRoot: restarts.better_root,
            Recall: publishing.recalled,
            SubscribeData: publishing.data_received,
            PublishData: publishing.publish_received,
            PublishSucceeded: publishing.succeeded,
            PublishCollision: publishing.collided,
            PublishFailed: publishing.failed,
        }

    # What the application wants

    @property
    def location(self) -> float:
        """Where on the ring the node is."""
        return self._core.location

    @property
    def busy(self) -> bool:
        """Whether it waits for something that others, or its timers, will bring soon."""
        core = self._core
        return bool(core.searches or core.upward) or any(
            not stream.connected or stream.held or stream.own_uid is not None for stream in core.streams.values()
        )

    @property
    def streams(self) -> Mapping[bytes, Stream]:
        """Its streams, by key; for those who look, not for those who change."""
        return self._core.streams

    def neighbours(self) -> list[Any]:
        """Return the links that are open."""
        return list(self._core.links)

    def greetings(self) -> dict[Any, float]:
        """Return the links whose other end has not greeted yet, and when each was opened."""
        return self._meeting.greetings()

    def subscribe(self, key: bytes, now: float, *, last_seen: int = NONE_SEEN) -> None:
        """Belong to the tree of ``key``; ``Subscribed`` tells when. Subscribing twice is harmless.

        :param last_seen: the last packet number that the application has; whatever is kept of what comes after it is
            delivered.
        :raises ConfigurationError: if the key is none, or its packets are signed and nothing here can check that.
        :raises TooManyStreams: if the node has as many streams as it may.
        """
        check_key(key)
        if is_signed(key) and not can_verify():
            install = "pip install 'fyrehose_twisted[keys]'"
            raise ConfigurationError(f"packets of {key.hex()} are signed, and nothing here can check that: {install}")
        core = self._core
        stream = core.streams.get(key) or self._members.make(key, None)
        if stream is None:
            raise TooManyStreams(core.policy.max_streams)
        if stream.local:
            return
        stream.local = True
        if stream.connected and stream.root is not None:
            core.tell(Subscribed(key, stream.root, stream.is_root))
            packets = [one for one in stream.packets.after(last_seen) if stream.given.add(identity(*one))]
            if packets:
                core.tell(Delivered(key, packets))
        elif stream.phase is Phase.SEARCHING and not stream.searches:
            stream.packets.resume(last_seen)
            if not self._waiting_for_neighbour:
                self._searching.begin(stream, core.new_uid(), None, now)

    def unsubscribe(self, key: bytes, now: float) -> None:
        """Be of no use to the application any more; the node stays in the tree so long as others need it."""
        stream = self._core.streams.get(key)
        if stream is None or not stream.local:
            return
        stream.local = False
        self._members.drop_if_unwanted(stream)

    def publish(
        self,
        key: bytes,
        data: bytes,
        token: Any,
        now: float,
        *,
        number: int | None = None,
        sign: Callable[[int], bytes] | None = None,
        need_subscriber: bool = False,
    ) -> None:
        """Bring a packet to everybody in the tree of ``key``, to which the application must be subscribed;
        ``Published`` or ``NotPublished`` tells what became of it.

        :param token: whatever tells this call from others.
        :param number: the packet's; by default the next one, and another one if that is taken.
        :param sign: returns the packet for a number, instead of ``data``; may be called several times.
        :param need_subscriber: whether it is ``NotPublished``, as ``no-subscribers``, if no node besides this one is
            subscribed.
        :raises MessageTooLarge: if ``data`` has more than
            :data:`~fyrehose_twisted.freenet.wire.messages.MAX_DATA` bytes.
        :raises UnencodableMessage: if ``number`` is none.
        :raises PublishQueueFull: if too many wait.
        """
        self._publishing.publish(key, data, token, now, number, sign, need_subscriber)

    def move(self, location: float, now: float) -> None:
        """Be elsewhere on the ring, after a swap for instance.

        :raises ConfigurationError: if that is no location.
        """
        if not is_location(location):
            raise ConfigurationError(f"location={location!r}: a location goes from 0 up to, but not including, 1")
        core = self._core
        core.location = location
        for neighbour in core.links.values():
            core.send(neighbour, Located(location))
        for stream in core.streams.values():
            if stream.is_root:
                stream.root = location
        self._restarts.peers_changed(now)

    def leave(self, now: float) -> None:
        """Say goodbye to everybody, and hang up."""
        core = self._core
        for stream in tuple(core.streams.values()):
            stream.local = False
            self._members.close(stream, tell_parent=True)
        for peer in tuple(core.links):
            core.effects.append(HangUp(peer))
        core.links.clear()

    def introduce(self, peer: Any, node: Any, boot: int, location: float, now: float) -> None:
        """Have a neighbour without a greeting: for experiments, whose links are what they are said to be.

        :param peer: what stands for the link in effects.
        """
        self._meeting.introduce(peer, node, boot, location, now)

    def suspect(self, node: Any) -> None:
        """Ask a neighbour last from now on: for experiments, in which a node is to notice later that one is gone."""
        self._core.neighbours[node].suspected_until = inf

    def state(self, now: float) -> NodeState:
        """Return how the node looks."""
        return picture(self._core, now)

    # What happens

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._meeting.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._meeting.dial_failed(address, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._meeting.disconnected(peer, reason, now)

    def receive(self, message: Message, peer: Any, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        neighbour = self._core.links.get(peer)
        if neighbour is None:
            self._meeting.first_words(message, peer, now)
            return
        neighbour.heard_at = now
        receiver = self._receivers.get(type(message))
        if receiver is None:
            self._core.counts["out_of_turn"] += 1
        else:
            receiver(message, neighbour, now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._core.counts["blocked"] += 1

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._core.tick(now)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return self._core.next_deadline()

    def drain(self) -> Drained:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        core = self._core
        effects, core.effects = core.effects, []
        events, core.events = core.events, []
        return Drained(None, effects, events)

    # Neighbours

    def _begin_waiting(self, now: float) -> None:
        """Search for the streams that were subscribed to before there was a neighbour."""
        waiting, self._waiting_for_neighbour = self._waiting_for_neighbour, False
        if waiting:
            for stream in tuple(self._core.streams.values()):
                self._searching.begin(stream, self._core.new_uid(), None, now)

    def _arrived(self, neighbour: Neighbour, now: float) -> None:
        core = self._core
        self._begin_waiting(now)
        for stream in core.streams.values():
            if neighbour in stream.subscribers and stream.settled and stream.root is not None:
                # It may have another parent by now, and what it said of that may be lost: it corrects us.
                core.send(neighbour, SubscribeSucceeded(stream.key, core.new_uid(), stream.root))
        self._restarts.peers_changed(now)

    def _rebooted(self, neighbour: Neighbour, now: float) -> None:
        self._forgotten(neighbour, now)
        self._restarts.neighbour_lost(neighbour, "parent-rebooted", now)
        self._searching.neighbour_lost(neighbour, now)

    def _lost(self, neighbour: Neighbour, reason: str, now: float) -> None:
        self._restarts.neighbour_lost(neighbour, "parent-lost", now)
        self._searching.neighbour_lost(neighbour, now)

    def _forgotten(self, neighbour: Neighbour, now: float) -> None:
        for stream in tuple(self._core.streams.values()):
            self._members.left(stream, neighbour)

    def _located(self, message: Located, neighbour: Neighbour, now: float) -> None:
        self._meeting.located(message, neighbour)
        self._restarts.peers_changed(now)

    def _unsubscribed(self, message: Unsubscribe, neighbour: Neighbour, now: float) -> None:
        stream: Stream | None = self._core.streams.get(message.key)
        if stream is not None:
            self._members.left(stream, neighbour)

    def _rejected_loop(self, message: RejectedLoop, neighbour: Neighbour, now: float) -> None:
        if message.uid in self._core.upward:
            self._publishing.rejected_loop(message.uid, neighbour, now)
        else:
            self._searching.rejected_loop(message, neighbour, now)


def _nothing(message: Any, neighbour: Neighbour, now: float) -> None:
    """That it came is all there is to it."""
