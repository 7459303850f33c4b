"""Planted bugs that the simulator must find, at least one per invariant."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.freenet.events import PacketPublished
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.distribution import PacketDistributor
from fyrehose_twisted.freenet.node.incoming_requests import IncomingRequests
from fyrehose_twisted.freenet.node.packet_window import PacketClass, PacketWindow
from fyrehose_twisted.freenet.node.peer_links import PeerLinks
from fyrehose_twisted.freenet.node.publishing import PacketForwarder
from fyrehose_twisted.freenet.node.reparenting import Reparenting
from fyrehose_twisted.freenet.node.routing import RequestRouter
from fyrehose_twisted.freenet.node.stream import PendingRequest, QueuedRequest, Stream
from fyrehose_twisted.freenet.node.tree import TreeMembership
from fyrehose_twisted.freenet.node.upstream import UpstreamPacket
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.simulation.invariants import (
    DeliveredOnce,
    EventualDelivery,
    MemoryBounded,
    NoAcknowledgedLoss,
    NoCycle,
    OneNumberPerPacket,
    RestartAnnouncedOnce,
    RestartRateBounded,
    SearchesTerminate,
    SingleTree,
    SubscriberRequired,
)
from fyrehose_twisted.freenet.simulation.scenarios import (
    Adversaries,
    Calm,
    Crowd,
    HintFlood,
    LocationSwaps,
    NodeChurn,
    Partitions,
    RoutingPolicies,
    SilentCallers,
    Storm,
)
from fyrehose_twisted.freenet.wire.messages import Dismissed, RejectedLoop, SubscribeSucceeded
from fyrehose_twisted.lru_set import LruSet
from fyrehose_twisted.sim.scenario import NO_EXCEPTIONS

pytestmark = pytest.mark.interpreted


def do_nothing(self: Any, *arguments: Any) -> None:
    """Do nothing."""


def drop_messages(patch: Patch, kind: type) -> None:
    """Drop all messages of one type."""
    original = NodeContext.send

    def send(self: NodeContext, neighbour: Any, message: Any) -> None:
        if not isinstance(message, kind):
            original(self, neighbour, message)

    patch.setattr(NodeContext, "send", send)


# Searches


def becomes_root_anywhere(patch: Patch) -> None:
    original = RequestRouter._exhausted

    def exhausted(self: Any, search: PendingRequest, now: float) -> None:
        search.is_closest, search.busy_location = True, None
        original(self, search, now)

    patch.setattr(RequestRouter, "_exhausted", exhausted)
    patch.setattr(Reparenting, "_probe", do_nothing)
    patch.setattr(Reparenting, "peers_changed", do_nothing)


def never_becomes_root(patch: Patch) -> None:
    patch.setattr(RequestRouter, "_may_be_root", lambda self, search: False)


def does_not_retry_subscriptions(patch: Patch) -> None:
    patch.setattr(Reparenting, "schedule_retry", do_nothing)


def queues_requests_in_a_deadlock(patch: Patch) -> None:
    original = IncomingRequests._handle_request

    def take(self: Any, stream: Stream, asked: QueuedRequest, now: float, *, again: bool = False) -> None:
        if not stream.settled and stream.requests and not again:
            behind = stream.requests[0]
            stream.queued_requests.append(asked._replace(waits_for=behind))
            self._context.send(asked.origin, SubscribeSucceeded._make((stream.key, asked.uid ^ 1, 0.0)))
            return
        original(self, stream, asked, now, again=again)

    patch.setattr(IncomingRequests, "_handle_request", take)
    patch.setattr(IncomingRequests, "_queue_timed_out", do_nothing)
    patch.setattr(RequestRouter, "_completion_timed_out", do_nothing)
    patch.setattr(RequestRouter, "_acceptance_timed_out", do_nothing)


def waits_for_lost_neighbours(patch: Patch) -> None:
    patch.setattr(IncomingRequests, "neighbour_lost", do_nothing)
    patch.setattr(RequestRouter, "neighbour_lost", do_nothing)
    patch.setattr(RequestRouter, "_completion_timed_out", do_nothing)
    patch.setattr(RequestRouter, "_acceptance_timed_out", do_nothing)


def forgets_queued_requests(patch: Patch) -> None:
    patch.setattr(TreeMembership, "serve_queued", do_nothing)
    patch.setattr(IncomingRequests, "_queue_timed_out", do_nothing)
    patch.setattr(RequestRouter, "_completion_timed_out", do_nothing)


# Restarts


def accepts_resubscribers_above_itself(patch: Patch) -> None:
    patch.setattr(TreeMembership, "is_better_root", lambda self, stream, must_beat: True)
    patch.setattr(Reparenting, "restart_announced", do_nothing)


def does_not_announce_restarts(patch: Patch) -> None:
    patch.setattr(Reparenting, "_announce_restart", do_nothing)
    patch.setattr(TreeMembership, "is_better_root", lambda self, stream, must_beat: True)


def does_not_detect_cycles(patch: Patch) -> None:
    original = Reparenting.restart_announced

    def restarted(self: Any, message: Any, neighbour: Any, now: float) -> None:
        stream = self._context.streams.get(message.key)
        if stream is not None:
            stream.known_restart_uids.clear()
        original(self, message, neighbour, now)

    patch.setattr(Reparenting, "restart_announced", restarted)
    patch.setattr(Reparenting, "_restart_timed_out", do_nothing)


def keeps_its_parent_as_subscriber(patch: Patch) -> None:
    original = TreeMembership.add_subscriber

    def join(self: Any, stream: Stream, asker: Any, *arguments: Any, **named: Any) -> None:
        parent, stream.parent = stream.parent, None if asker is stream.parent else stream.parent
        original(self, stream, asker, *arguments, **named)
        stream.parent = parent

    patch.setattr(TreeMembership, "add_subscriber", join)
    patch.setattr(Reparenting, "restart_announced", do_nothing)
    drop_messages(patch, Dismissed)


def never_probes_for_a_better_root(patch: Patch) -> None:
    patch.setattr(Reparenting, "_probe", do_nothing)
    patch.setattr(Reparenting, "better_root_received", do_nothing)
    patch.setattr(Reparenting, "peers_changed", do_nothing)


def ignores_dismissals(patch: Patch) -> None:
    patch.setattr(Reparenting, "dismissed", do_nothing)


def sends_no_dismissals(patch: Patch) -> None:
    drop_messages(patch, Dismissed)


def returns_requests_to_their_origin(patch: Patch) -> None:
    def cheapest(self: Any, search: PendingRequest, routing: Any, now: float) -> Any:
        # Only the origin is asked, which rejects the request as a loop.
        origin = search.origin
        return None if origin is None or origin in search.tried or origin.link is None else origin

    patch.setattr(RequestRouter, "_cheapest_untried", cheapest)


def ignores_lost_parents(patch: Patch) -> None:
    patch.setattr(Reparenting, "neighbour_lost", do_nothing)


def restarts_only_once(patch: Patch) -> None:
    original = Reparenting._schedule_restart

    def restart(self: Any, stream: Stream, pause: float, now: float) -> None:
        if not stream.attempts:
            original(self, stream, pause, now)

    patch.setattr(Reparenting, "_schedule_restart", restart)


def ignores_the_end_of_restarts(patch: Patch) -> None:
    patch.setattr(Reparenting, "parent_refreshed", do_nothing)
    patch.setattr(Reparenting, "_restart_timed_out", do_nothing)


def never_ends_its_own_restart(patch: Patch) -> None:
    patch.setattr(Reparenting, "_keep_parent", do_nothing)


def probes_for_every_hint(patch: Patch) -> None:
    original = Reparenting.report_better_root

    def better_known(self: Any, stream: Stream, place: float, now: float) -> None:
        stream.last_hint_probe_at = float("-inf")
        original(self, stream, place, now)

    patch.setattr(Reparenting, "report_better_root", better_known)


def does_not_back_off_from_busy_nodes(patch: Patch) -> None:
    original = Reparenting.own_request_ended

    def own_ended(self: Any, search: PendingRequest, reason: str | None, now: float) -> None:
        search.stream.busy_probes = 0
        original(self, search, reason, now)

    patch.setattr(Reparenting, "own_request_ended", own_ended)


def announces_restarts_repeatedly(patch: Patch) -> None:
    original = Reparenting.restart_announced

    def restarted(self: Any, message: Any, neighbour: Any, now: float) -> None:
        stream = self._context.streams.get(message.key)
        if stream is not None and stream.parent is neighbour and stream.restart_uid == message.uid:
            stream.restart_uid = None
        original(self, message, neighbour, now)

    patch.setattr(Reparenting, "restart_announced", restarted)


# Neighbours


def never_redials(patch: Patch) -> None:
    patch.setattr(PeerLinks, "_dial_later", do_nothing)
    patch.setattr(PeerLinks, "_link_lost", without_redialling(PeerLinks._link_lost))


def without_redialling(original: Any) -> Any:
    def gone(self: Any, neighbour: Any, reason: str, now: float) -> None:
        for target in self._targets.values():
            if target.node == neighbour.node:
                target.dialling = True
        original(self, neighbour, reason, now)

    return gone


def has_unlimited_streams(patch: Patch) -> None:
    def make(self: Any, key: bytes, asker: Any) -> Stream:
        stream = self._context.streams[key] = Stream(key, self._context.policy.keep_packets)
        return stream

    patch.setattr(TreeMembership, "create_stream", make)


# Packets


class EveryKeyIsNew(LruSet):
    """Set that reports every key as new."""

    def add(self, key: Hashable) -> bool:
        super().add(key)
        return True


def delivers_known_packets(patch: Patch) -> None:
    original, look = Stream.__init__, PacketWindow.classify

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.delivered_ids = EveryKeyIsNew(10)

    def look_again(self: Any, number: int, data: bytes) -> PacketClass:
        found = look(self, number, data)
        return PacketClass.NEW if found is PacketClass.SAME else found

    patch.setattr(Stream, "__init__", init)
    patch.setattr(PacketWindow, "classify", look_again)


def never_drops_packets(patch: Patch) -> None:
    patch.setattr(PacketWindow, "_slide", lambda self, newest, number: [])


def distributes_no_packets(patch: Patch) -> None:
    original = PacketDistributor.distribute

    def spread(self: Any, stream: Stream, number: int, data: bytes, source: Any) -> None:
        subscribers, stream.subscribers = stream.subscribers, {}
        original(self, stream, number, data, source)
        stream.subscribers = subscribers

    patch.setattr(PacketDistributor, "distribute", spread)


def distributes_packets_to_one_subscriber_only(patch: Patch) -> None:
    original = PacketDistributor.distribute

    def spread(self: Any, stream: Stream, number: int, data: bytes, source: Any) -> None:
        subscribers, stream.subscribers = stream.subscribers, dict(list(stream.subscribers.items())[:1])
        original(self, stream, number, data, source)
        stream.subscribers = subscribers

    patch.setattr(PacketDistributor, "distribute", spread)


def confirms_packets_too_early(patch: Patch) -> None:
    def send_up(self: Any, stream: Stream, upward: UpstreamPacket, uid: int) -> None:
        if upward.queued_packet is not None:
            self._context.emit(PacketPublished(upward.queued_packet.token, stream.key, upward.number))

    patch.setattr(PacketForwarder, "_send_upstream", send_up)


def publishes_without_subscribers(patch: Patch) -> None:
    patch.setattr(PacketForwarder, "_is_wanted", lambda self, stream, upward: True)


def renumbers_resent_packets(patch: Patch) -> None:
    original = PacketForwarder._handle_collision

    def collides(self: Any, stream: Stream, upward: UpstreamPacket, free: int, now: float) -> None:
        original(self, stream, upward._replace(resent=False), free, now)

    patch.setattr(PacketForwarder, "_handle_collision", collides)


def refuses_resent_packets(patch: Patch) -> None:
    original = PacketForwarder._fail

    def fails(self: Any, stream: Stream, upward: UpstreamPacket, reason: str) -> None:
        original(self, stream, upward._replace(resent=False), reason)

    patch.setattr(PacketForwarder, "_fail", fails)


def refuses_packets_in_flight(patch: Patch) -> None:
    original = PacketForwarder.stream_closed

    def closed(self: Any, stream: Stream) -> None:
        stream.upstream = {uid: upward._replace(sent_to=None) for uid, upward in stream.upstream.items()}
        original(self, stream)

    patch.setattr(PacketForwarder, "stream_closed", closed)


def queues_packets_without_limit(patch: Patch) -> None:
    original = PacketForwarder.publish_received

    def publish_received(self: Any, message: Any, neighbour: Any, now: float) -> None:
        stream = self._context.streams.get(message.key)
        if stream is not None:
            stream.subscribers[neighbour] = None
            limit = self._context.policy
            self._context.policy = Policy(max_waiting=10**6)
            original(self, message, neighbour, now)
            self._context.policy = limit

    patch.setattr(PacketForwarder, "publish_received", publish_received)


def raises_on_late_answers(patch: Patch) -> None:
    original = PacketForwarder._take_answered

    def answered(self: Any, uid: int, neighbour: Any) -> Any:
        if uid not in self._context.upstream:
            raise LookupError(uid)
        return original(self, uid, neighbour)

    patch.setattr(PacketForwarder, "_take_answered", answered)


def rejects_requests_as_loops(patch: Patch) -> None:
    original = IncomingRequests.subscribe_requested

    def requested(self: Any, request: Any, asker: Any, now: float) -> None:
        if request.uid % 2:
            self._context.send(asker, RejectedLoop(request.uid))
        else:
            original(self, request, asker, now)

    patch.setattr(IncomingRequests, "subscribe_requested", requested)
    patch.setattr(Reparenting, "_probe", do_nothing)
    patch.setattr(Reparenting, "peers_changed", do_nothing)
    patch.setattr(Reparenting, "better_root_received", do_nothing)


def never_times_out_handshakes(patch: Patch) -> None:
    patch.setattr(PeerLinks, "_handshake_timed_out", do_nothing)


def keeps_unlimited_unfinished_handshakes(patch: Patch) -> None:
    patch.setattr(PeerLinks, "_close_oldest_handshake", do_nothing)


TREE = NoCycle.name, SearchesTerminate.name, SingleTree.name, EventualDelivery.name
BUGS = [
    Bug(becomes_root_anywhere, (SingleTree.name, EventualDelivery.name), Crowd, seed=0),
    Bug(never_becomes_root, (SearchesTerminate.name, SingleTree.name), Storm, seed=6),
    Bug(does_not_retry_subscriptions, (SearchesTerminate.name, SingleTree.name), Storm, seed=1),
    Bug(queues_requests_in_a_deadlock, (SearchesTerminate.name, SingleTree.name), Crowd, seed=43),
    # A root whose probe never ends remains beside another root.
    Bug(waits_for_lost_neighbours, (SearchesTerminate.name, SingleTree.name), NodeChurn, seed=1),
    Bug(forgets_queued_requests, (SearchesTerminate.name, SingleTree.name), Crowd, seed=55),
    Bug(rejects_requests_as_loops, (SingleTree.name, EventualDelivery.name), Crowd, seed=0),
    Bug(accepts_resubscribers_above_itself, TREE, NodeChurn, seed=9),
    Bug(does_not_announce_restarts, TREE, NodeChurn, seed=9),
    Bug(does_not_detect_cycles, TREE, LocationSwaps, seed=5),
    Bug(keeps_its_parent_as_subscriber, TREE, LocationSwaps, seed=0),
    Bug(never_probes_for_a_better_root, (SingleTree.name, EventualDelivery.name), Partitions, seed=0),
    Bug(ignores_dismissals, TREE, Storm, seed=1),
    Bug(sends_no_dismissals, TREE, Storm, seed=6),
    Bug(ignores_lost_parents, (SingleTree.name, EventualDelivery.name), NodeChurn, seed=0),
    Bug(returns_requests_to_their_origin, (SingleTree.name, EventualDelivery.name), RoutingPolicies, seed=0),
    Bug(restarts_only_once, (SearchesTerminate.name, SingleTree.name), NodeChurn, seed=0),
    Bug(ignores_the_end_of_restarts, (SearchesTerminate.name, SingleTree.name), NodeChurn, seed=2),
    Bug(never_ends_its_own_restart, TREE, Partitions, seed=0),
    Bug(announces_restarts_repeatedly, (RestartAnnouncedOnce.name,), NodeChurn, seed=0),
    Bug(probes_for_every_hint, (RestartRateBounded.name,), HintFlood, seed=0),
    Bug(does_not_back_off_from_busy_nodes, (RestartRateBounded.name,), HintFlood, seed=0),
    Bug(never_redials, (SingleTree.name, EventualDelivery.name), Storm, seed=0),
    Bug(has_unlimited_streams, (MemoryBounded.name,), Adversaries, seed=0),
    Bug(delivers_known_packets, (DeliveredOnce.name,), Storm, seed=1),
    Bug(never_drops_packets, (MemoryBounded.name,), Calm, seed=0),
    Bug(distributes_no_packets, (EventualDelivery.name,), Calm, seed=0),
    Bug(distributes_packets_to_one_subscriber_only, (EventualDelivery.name,), Calm, seed=2),
    Bug(confirms_packets_too_early, (NoAcknowledgedLoss.name, EventualDelivery.name), Calm, seed=0),
    Bug(publishes_without_subscribers, (SubscriberRequired.name,), Calm, seed=1),
    Bug(renumbers_resent_packets, (OneNumberPerPacket.name,), Storm, seed=3, message=" and packet "),
    Bug(refuses_resent_packets, (OneNumberPerPacket.name,), Partitions, seed=1, message="was refused"),
    Bug(refuses_packets_in_flight, (OneNumberPerPacket.name,), Storm, seed=4, message="was refused (no-stream)"),
    Bug(never_times_out_handshakes, (MemoryBounded.name,), SilentCallers, seed=1, message="in the handshake for"),
    Bug(
        keeps_unlimited_unfinished_handshakes,
        (MemoryBounded.name,),
        SilentCallers,
        seed=0,
        message="in the handshake, above",
    ),
    Bug(queues_packets_without_limit, (MemoryBounded.name,), Adversaries, seed=0),
    Bug(raises_on_late_answers, (NO_EXCEPTIONS,), Storm, seed=1),
]


@each(BUGS)
def test_recorded_seed_reveals_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# This tests the simulator, not the library.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_seed_search_reveals_the_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)


def test_every_invariant_has_a_planted_bug() -> None:
    found = {name for bug in BUGS for name in bug.invariants}
    invariants = {
        NoCycle,
        SearchesTerminate,
        SingleTree,
        DeliveredOnce,
        OneNumberPerPacket,
        NoAcknowledgedLoss,
        SubscriberRequired,
        EventualDelivery,
        MemoryBounded,
    }
    assert {invariant.name for invariant in invariants | {RestartRateBounded, RestartAnnouncedOnce}} <= found
