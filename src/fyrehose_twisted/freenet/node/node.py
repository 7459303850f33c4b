"""One node of document 003: its neighbours, its streams, and whatever goes through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Close, Peer
from fyrehose_twisted.errors import ConfigurationError, TooManyStreams
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import PacketsDelivered, Subscribed
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import packet_fingerprint
from fyrehose_twisted.freenet.node.peer_links import PeerLinks
from fyrehose_twisted.freenet.node.publishing import PacketForwarder
from fyrehose_twisted.freenet.node.reparenting import Reparenting
from fyrehose_twisted.freenet.node.routing import RequestRouter
from fyrehose_twisted.freenet.node.snapshot import snapshot
from fyrehose_twisted.freenet.node.status import NodeStatus
from fyrehose_twisted.freenet.node.stream import Stream, StreamPhase
from fyrehose_twisted.freenet.node.tree import TreeMembership
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
from fyrehose_twisted.interfaces import ILinkNode, Outputs


@implementer(ILinkNode)
class FreenetNode:
    """The rules of document 003 as a state machine.

    What it wants done is ``Dial``, ``Write`` and ``Close``; what it tells is in
    :mod:`~fyrehose_twisted.freenet.events`. Nothing has to be durable.

    :param now: when it is born.
    :ivar config: what it was told.
    :ivar counters: what was counted since the start.
    """

    def __init__(self, config: NodeConfig, rng: Random, now: float) -> None:
        self.config = config
        core = self._context = NodeContext(config, rng)
        self.counters: Counter[str] = core.counters
        members = self._membership = TreeMembership(core)
        searching = self._router = RequestRouter(core, members)
        restarts = self._reparenting = Reparenting(core, members, searching)
        publishing = self._forwarder = PacketForwarder(core)
        meeting = self._peer_links = PeerLinks(core, now)
        members.on_became_root = restarts.became_root
        members.on_attached = publishing.stream_attached
        members.on_closed = publishing.stream_closed
        searching.on_parent_refreshed = restarts.parent_refreshed
        searching.on_own_request_ended = restarts.own_request_ended
        searching.on_retry = restarts.schedule_retry
        searching.on_better_root = restarts.report_better_root
        meeting.on_neighbour_up = self._neighbour_up
        meeting.on_neighbour_rebooted = self._neighbour_rebooted
        meeting.on_neighbour_lost = self._neighbour_lost
        meeting.on_neighbour_forgotten = self._neighbour_forgotten
        self._waiting_for_neighbour = bool(config.targets) and config.first_neighbour_timeout > 0.0
        if self._waiting_for_neighbour:
            core.call_at(now + config.first_neighbour_timeout, self._start_deferred_searches)
        self._handlers: dict[type, Callable[[Any, Neighbour, float], None]] = {
            Located: self._neighbour_moved,
            Ping: meeting.ping_received,
            Pong: _ignore,
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
            SubscribeRestarted: restarts.restart_announced,
            Unsubscribe: self._unsubscribed,
            Dismissed: restarts.dismissed,
            BetterRoot: restarts.better_root_received,
            Recall: publishing.recall_received,
            SubscribeData: publishing.data_received,
            PublishData: publishing.publish_received,
            PublishSucceeded: publishing.publish_succeeded,
            PublishCollision: publishing.publish_collided,
            PublishFailed: publishing.publish_failed,
        }

    # What the application wants

    @property
    def location(self) -> float:
        """Where on the ring the node is."""
        return self._context.location

    @property
    def busy(self) -> bool:
        """Whether it waits for something that others, or its timers, will bring soon."""
        core = self._context
        return bool(core.pending_requests or core.upstream) or any(
            not stream.connected or stream.queued_requests or stream.own_restart_uid is not None
            for stream in core.streams.values()
        )

    @property
    def streams(self) -> Mapping[bytes, Stream]:
        """Its streams, by key; for those who look, not for those who change."""
        return self._context.streams

    def neighbours(self) -> list[Any]:
        """Return the links that are open."""
        return list(self._context.links)

    def handshakes(self) -> dict[Any, float]:
        """Return the links whose other end has not greeted yet, and when each was opened."""
        return self._peer_links.handshakes()

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
        core = self._context
        stream = core.streams.get(key) or self._membership.create_stream(key, None)
        if stream is None:
            raise TooManyStreams(core.policy.max_streams)
        if stream.local:
            return
        stream.local = True
        if stream.connected and stream.root is not None:
            core.emit(Subscribed(key, stream.root, stream.is_root))
            packets = [
                one
                for one in stream.packets.packets_after(last_seen)
                if stream.delivered_ids.add(packet_fingerprint(*one))
            ]
            if packets:
                core.emit(PacketsDelivered(key, packets))
        elif stream.phase is StreamPhase.SEARCHING and not stream.requests:
            stream.packets.start_after(last_seen)
            if not self._waiting_for_neighbour:
                self._router.start_request(stream, core.new_uid(), None, now)

    def unsubscribe(self, key: bytes, now: float) -> None:
        """Be of no use to the application any more; the node stays in the tree so long as others need it."""
        stream = self._context.streams.get(key)
        if stream is None or not stream.local:
            return
        stream.local = False
        self._membership.prune(stream)

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
        self._forwarder.publish(key, data, token, now, number, sign, need_subscriber)

    def move(self, location: float, now: float) -> None:
        """Be elsewhere on the ring, after a swap for instance.

        :raises ConfigurationError: if that is no location.
        """
        if not is_location(location):
            raise ConfigurationError(f"location={location!r}: a location goes from 0 up to, but not including, 1")
        core = self._context
        core.location = location
        for neighbour in core.links.values():
            core.send(neighbour, Located(location))
        for stream in core.streams.values():
            if stream.is_root:
                stream.root = location
        self._reparenting.peers_changed(now)

    def leave(self, now: float) -> None:
        """Say goodbye to everybody, and hang up."""
        core = self._context
        for stream in tuple(core.streams.values()):
            stream.local = False
            self._membership.close(stream, tell_parent=True)
        for peer in tuple(core.links):
            core.effects.append(Close(peer))
        core.links.clear()

    def add_neighbour(self, peer: Any, node: Any, boot: int, location: float, now: float) -> None:
        """Have a neighbour without a greeting: for experiments, whose links are what they are said to be.

        :param peer: what stands for the link in effects.
        """
        self._peer_links.add_neighbour(peer, node, boot, location, now)

    def suspect(self, node: Any) -> None:
        """Ask a neighbour last from now on: for experiments, in which a node is to notice later that one is gone."""
        self._context.neighbours[node].suspected_until = inf

    def state(self, now: float) -> NodeStatus:
        """Return how the node looks."""
        return snapshot(self._context, now)

    # What happens

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._peer_links.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._peer_links.dial_failed(address, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._peer_links.disconnected(peer, reason, now)

    def receive(self, message: Message, peer: Any, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        neighbour = self._context.links.get(peer)
        if neighbour is None:
            self._peer_links.handshake_received(message, peer, now)
            return
        neighbour.heard_at = now
        receiver = self._handlers.get(type(message))
        if receiver is None:
            self._context.counters["out_of_turn"] += 1
        else:
            receiver(message, neighbour, now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._context.counters["blocked"] += 1

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._context.tick(now)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return self._context.next_deadline()

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        core = self._context
        effects, core.effects = core.effects, []
        events, core.events = core.events, []
        return Outputs(None, effects, events)

    # Neighbours

    def _start_deferred_searches(self, now: float) -> None:
        """Search for the streams that were subscribed to before there was a neighbour."""
        waiting, self._waiting_for_neighbour = self._waiting_for_neighbour, False
        if waiting:
            for stream in tuple(self._context.streams.values()):
                self._router.start_request(stream, self._context.new_uid(), None, now)

    def _neighbour_up(self, neighbour: Neighbour, now: float) -> None:
        core = self._context
        self._start_deferred_searches(now)
        for stream in core.streams.values():
            if neighbour in stream.subscribers and stream.settled and stream.root is not None:
                # It may have another parent by now, and what it said of that may be lost: it corrects us.
                core.send(neighbour, SubscribeSucceeded(stream.key, core.new_uid(), stream.root))
        self._reparenting.peers_changed(now)

    def _neighbour_rebooted(self, neighbour: Neighbour, now: float) -> None:
        self._neighbour_forgotten(neighbour, now)
        self._reparenting.neighbour_lost(neighbour, "parent-rebooted", now)
        self._router.neighbour_lost(neighbour, now)

    def _neighbour_lost(self, neighbour: Neighbour, reason: str, now: float) -> None:
        self._reparenting.neighbour_lost(neighbour, "parent-lost", now)
        self._router.neighbour_lost(neighbour, now)

    def _neighbour_forgotten(self, neighbour: Neighbour, now: float) -> None:
        for stream in tuple(self._context.streams.values()):
            self._membership.remove_subscriber(stream, neighbour)

    def _neighbour_moved(self, message: Located, neighbour: Neighbour, now: float) -> None:
        self._peer_links.neighbour_moved(message, neighbour)
        self._reparenting.peers_changed(now)

    def _unsubscribed(self, message: Unsubscribe, neighbour: Neighbour, now: float) -> None:
        stream: Stream | None = self._context.streams.get(message.key)
        if stream is not None:
            self._membership.remove_subscriber(stream, neighbour)

    def _rejected_loop(self, message: RejectedLoop, neighbour: Neighbour, now: float) -> None:
        if message.uid in self._context.upstream:
            self._forwarder.rejected_loop(message.uid, neighbour, now)
        else:
            self._router.rejected_loop(message, neighbour, now)


def _ignore(message: Any, neighbour: Neighbour, now: float) -> None:
    """That it came is all there is to it."""
