"""Node of document 003: neighbours, streams, and the requests and packets routed through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Any

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address, Close, Peer
from fyrehose_twisted.errors import ConfigurationError, TooManyStreams
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import PacketsDelivered, Subscribed
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.distribution import PacketDistributor
from fyrehose_twisted.freenet.node.incoming_requests import IncomingRequests
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


@mypyc_attr(allow_interpreted_subclasses=True)
class FreenetNode:
    """State machine of one node that follows document 003.

    Its effects are ``Dial``, ``Write`` and ``Close``. Its events are those of
    :mod:`~fyrehose_twisted.freenet.events`. It has no durable state.

    :param now: time of its start.
    :ivar config: configuration of the node.
    :ivar counters: counters since the start.
    """

    def __init__(self, config: NodeConfig, rng: Random, now: float) -> None:
        self.config = config
        core = self._context = NodeContext(config, rng)
        self.counters: Counter[str] = core.counters
        membership = self._membership = TreeMembership(core)
        router = self._router = RequestRouter(core, membership)
        incoming = self._incoming_requests = IncomingRequests(core, membership, router)
        reparenting = self._reparenting = Reparenting(core, membership, router)
        distributor = PacketDistributor(core)
        forwarder = self._forwarder = PacketForwarder(core, distributor)
        peer_links = self._peer_links = PeerLinks(core, now)
        membership.on_became_root = reparenting.became_root
        membership.on_attached = forwarder.stream_attached
        membership.on_closed = forwarder.stream_closed
        router.on_parent_refreshed = reparenting.parent_refreshed
        router.on_own_request_ended = reparenting.own_request_ended
        router.on_parent_unusable = incoming.parent_unusable
        router.on_ended_without_tree = incoming.resume_queued
        incoming.on_retry = reparenting.schedule_retry
        incoming.on_better_root = reparenting.report_better_root
        peer_links.on_neighbour_up = self._neighbour_up
        peer_links.on_neighbour_rebooted = self._neighbour_rebooted
        peer_links.on_neighbour_lost = self._neighbour_lost
        peer_links.on_neighbour_forgotten = self._neighbour_forgotten
        self._waiting_for_neighbour = bool(config.targets) and config.first_neighbour_timeout > 0.0
        if self._waiting_for_neighbour:
            core.call_at(now + config.first_neighbour_timeout, self._start_deferred_searches)
        self._handlers: dict[type, Callable[[Any, Neighbour, float], None]] = {
            Located: self._neighbour_moved,
            Ping: peer_links.ping_received,
            Pong: _ignore,
            SubscribeRequest: incoming.subscribe_requested,
            ResubscribeRequest: incoming.resubscribe_requested,
            Accepted: router.accepted,
            RejectedLoop: self._rejected_loop,
            RejectedBusy: router.rejected_busy,
            RejectedOverload: router.rejected_overload,
            DataNotFound: router.data_not_found,
            RouteNotFound: router.route_not_found,
            SubscribeSucceeded: router.succeeded,
            SubscribeSucceededNewRoot: router.succeeded,
            SubscribeRestarted: reparenting.restart_announced,
            Unsubscribe: self._unsubscribed,
            Dismissed: reparenting.dismissed,
            BetterRoot: reparenting.better_root_received,
            Recall: forwarder.recall_received,
            SubscribeData: distributor.data_received,
            PublishData: forwarder.publish_received,
            PublishSucceeded: forwarder.publish_succeeded,
            PublishCollision: forwarder.publish_collided,
            PublishFailed: forwarder.publish_failed,
        }

    # Commands of the application

    @property
    def location(self) -> float:
        """Current location on the ring."""
        return self._context.location

    @property
    def busy(self) -> bool:
        """True while the node waits for answers or timers that are due soon."""
        core = self._context
        return bool(core.pending_requests or core.upstream) or any(
            not stream.connected or stream.queued_requests or stream.own_restart_uid is not None
            for stream in core.streams.values()
        )

    @property
    def streams(self) -> Mapping[bytes, Stream]:
        """Streams by key, read-only."""
        return self._context.streams

    def neighbours(self) -> list[Any]:
        """Return the links that are up."""
        return list(self._context.links)

    def handshakes(self) -> dict[Any, float]:
        """Return the links with an unfinished handshake, and the time at which each was opened."""
        return self._peer_links.handshakes()

    def subscribe(self, key: bytes, now: float, *, last_seen: int = NONE_SEEN) -> None:
        """Join the tree of ``key``; ``Subscribed`` is emitted once the node has joined. Subscribing twice is harmless.

        :param last_seen: last packet number that the application has. Retained packets after it are delivered.
        :raises ConfigurationError: if the key is malformed, or if its packets are signed and signatures cannot be
            verified here.
        :raises TooManyStreams: if the node has the maximum number of streams.
        """
        check_key(key)
        if is_signed(key) and not can_verify():
            install = "pip install 'fyrehose_twisted[keys]'"
            raise ConfigurationError(f"packets of {key.hex()} are signed, and signatures cannot be verified: {install}")
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
                packet
                for packet in stream.packets.packets_after(last_seen)
                if stream.delivered_ids.add(packet_fingerprint(*packet))
            ]
            if packets:
                core.emit(PacketsDelivered(key, packets))
        elif stream.phase is StreamPhase.SEARCHING and not stream.requests:
            stream.packets.start_after(last_seen)
            if not self._waiting_for_neighbour:
                self._router.start_request(stream, core.new_uid(), None, now)

    def unsubscribe(self, key: bytes, now: float) -> None:
        """End the application's subscription. The node stays in the tree while subscribers need it."""
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
        """Publish a packet in the tree of ``key``, which the application must be subscribed to.

        ``PacketPublished`` or ``PacketNotPublished`` reports the outcome.

        :param token: token that identifies this call in the event.
        :param number: packet number; by default the next one, or another one if that is taken.
        :param sign: returns the signed packet for a number, in place of ``data``. It may be called several times.
        :param need_subscriber: fail with ``no-subscribers`` if no node besides this one is subscribed.
        :raises MessageTooLarge: if ``data`` has more than
            :data:`~fyrehose_twisted.freenet.wire.messages.MAX_DATA` bytes.
        :raises UnencodableMessage: if ``number`` is not a packet number.
        :raises PublishQueueFull: if too many packets are queued.
        """
        self._forwarder.publish(key, data, token, now, number, sign, need_subscriber)

    def move(self, location: float, now: float) -> None:
        """Change the location of the node, for instance after a swap.

        :raises ConfigurationError: if ``location`` is outside the ring.
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
        """Leave all trees and close all links."""
        core = self._context
        for stream in tuple(core.streams.values()):
            stream.local = False
            self._membership.close(stream, tell_parent=True)
        for peer in tuple(core.links):
            core.effects.append(Close(peer))
        core.links.clear()

    def add_neighbour(self, peer: Any, node: Any, boot: int, location: float, now: float) -> None:
        """Add a neighbour without a handshake, for experiments.

        :param peer: link as it appears in effects.
        """
        self._peer_links.add_neighbour(peer, node, boot, location, now)

    def suspect(self, node: Any) -> None:
        """Ask a neighbour last from now on; for experiments in which a node is to notice a dead neighbour late."""
        self._context.neighbours[node].suspected_until = inf

    def state(self, now: float) -> NodeStatus:
        """Return the status of the node."""
        return snapshot(self._context, now)

    # Inputs

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._peer_links.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._peer_links.dial_failed(address, now)

    def disconnected(self, peer: Any, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._peer_links.disconnected(peer, reason, now)

    def receive(self, message: Message, peer: Any, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        neighbour = self._context.links.get(peer)
        if neighbour is None:
            self._peer_links.handshake_received(message, peer, now)
            return
        neighbour.heard_at = now
        handler = self._handlers.get(type(message))
        if handler is None:
            self._context.counters["out_of_turn"] += 1
        else:
            handler(message, neighbour, now)

    def blocked(self, peer: Any, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._context.counters["blocked"] += 1

    def unblocked(self, peer: Any, now: float) -> None:
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
        """Search for the streams that were subscribed to before the first neighbour was up."""
        waiting, self._waiting_for_neighbour = self._waiting_for_neighbour, False
        if waiting:
            for stream in tuple(self._context.streams.values()):
                self._router.start_request(stream, self._context.new_uid(), None, now)

    def _neighbour_up(self, neighbour: Neighbour, now: float) -> None:
        core = self._context
        self._start_deferred_searches(now)
        for stream in core.streams.values():
            if neighbour in stream.subscribers and stream.settled and stream.root is not None:
                # The neighbour may have changed its parent, and its Unsubscribe may be lost. It then sends another.
                core.send(neighbour, SubscribeSucceeded(stream.key, core.new_uid(), stream.root))
        self._reparenting.peers_changed(now)

    def _neighbour_rebooted(self, neighbour: Neighbour, now: float) -> None:
        self._neighbour_forgotten(neighbour, now)
        self._reparenting.neighbour_lost(neighbour, "parent-rebooted", now)
        self._incoming_requests.neighbour_lost(neighbour, now)
        self._router.neighbour_lost(neighbour, now)

    def _neighbour_lost(self, neighbour: Neighbour, reason: str, now: float) -> None:
        self._reparenting.neighbour_lost(neighbour, "parent-lost", now)
        self._incoming_requests.neighbour_lost(neighbour, now)
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


classImplements(FreenetNode, ILinkNode)


def _ignore(message: Any, neighbour: Neighbour, now: float) -> None:
    """Ignore a message; its arrival alone counts as a sign of life."""
