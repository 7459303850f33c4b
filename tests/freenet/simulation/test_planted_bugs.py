"""A checker that never fails is worth nothing: for every invariant a bug that the simulator has to find."""

from __future__ import annotations

from typing import Any

import pytest
from suite.planted import Bug, Patch, check_seed, each, search

from fyrehose_twisted.freenet.events import Published
from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.packet_window import Arrival, Packets
from fyrehose_twisted.freenet.node.peer_links import Meeting
from fyrehose_twisted.freenet.node.publishing import Publishing
from fyrehose_twisted.freenet.node.recent import Recent
from fyrehose_twisted.freenet.node.reparenting import Restarts
from fyrehose_twisted.freenet.node.routing import Searching
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.node.tree import Members
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.simulation.invariants import (
    AnnouncedOnce,
    Arrives,
    Bounded,
    DeliveredOnce,
    FewRestarts,
    Heard,
    NobodyIsStuck,
    NoCycle,
    NothingVanishes,
    OneTree,
    PublishedOnce,
)
from fyrehose_twisted.freenet.simulation.scenarios import (
    Callers,
    Calm,
    Crowd,
    Deaths,
    Hints,
    Islands,
    Storm,
    Strangers,
    Swaps,
)
from fyrehose_twisted.freenet.wire.messages import Dismissed, RejectedLoop, SubscribeSucceeded
from fyrehose_twisted.sim.scenario import NOTHING_RAISES


def nothing(self: Any, *arguments: Any) -> None:
    """Do nothing."""


def unsent(patch: Patch, kind: type) -> None:
    """Let nobody send a kind of message."""
    original = Core.send

    def send(self: Core, neighbour: Any, message: Any) -> None:
        if not isinstance(message, kind):
            original(self, neighbour, message)

    patch.setattr(Core, "send", send)


# Looking for a tree


def is_a_root_wherever_it_is(patch: Patch) -> None:
    original = Searching._exhausted

    def exhausted(self: Any, search: Any, now: float) -> None:
        search.closest, search.busy = True, None
        original(self, search, now)

    patch.setattr(Searching, "_exhausted", exhausted)
    patch.setattr(Restarts, "_probe", nothing)
    patch.setattr(Restarts, "peers_changed", nothing)


def is_never_a_root(patch: Patch) -> None:
    patch.setattr(Searching, "_may_be_root", lambda self, search: False)


def gives_a_subscription_up(patch: Patch) -> None:
    patch.setattr(Restarts, "begin_later", nothing)


def holds_requests_for_one_another(patch: Patch) -> None:
    original = Searching._take

    def take(self: Any, stream: Stream, asked: Any, now: float, *, again: bool = False) -> None:
        if not stream.settled and stream.searches and not again:
            behind = stream.searches[0]
            stream.held.append(asked._replace(behind=behind))
            self._core.send(asked.origin, SubscribeSucceeded._make((stream.key, asked.uid ^ 1, 0.0)))
            return
        original(self, stream, asked, now, again=again)

    patch.setattr(Searching, "_take", take)
    patch.setattr(Searching, "_held_long", nothing)
    patch.setattr(Searching, "_not_completed", nothing)
    patch.setattr(Searching, "_not_accepted", nothing)


def waits_for_those_who_are_gone(patch: Patch) -> None:
    patch.setattr(Searching, "neighbour_lost", nothing)
    patch.setattr(Searching, "_not_completed", nothing)
    patch.setattr(Searching, "_not_accepted", nothing)


def forgets_those_who_wait(patch: Patch) -> None:
    patch.setattr(Members, "serve_held", nothing)
    patch.setattr(Searching, "_held_long", nothing)
    patch.setattr(Searching, "_not_completed", nothing)


# Restarts


def takes_resubscribers_that_are_above_it(patch: Patch) -> None:
    patch.setattr(Members, "beats", lambda self, stream, must_beat: True)
    patch.setattr(Restarts, "restarted", nothing)


def does_not_tell_its_subtree_that_it_restarts(patch: Patch) -> None:
    patch.setattr(Restarts, "_announce", nothing)
    patch.setattr(Members, "beats", lambda self, stream, must_beat: True)


def sees_no_cycle(patch: Patch) -> None:
    original = Restarts.restarted

    def restarted(self: Any, message: Any, neighbour: Any, now: float) -> None:
        stream = self._core.streams.get(message.key)
        if stream is not None:
            stream.uids.clear()
        original(self, message, neighbour, now)

    patch.setattr(Restarts, "restarted", restarted)
    patch.setattr(Restarts, "_pending_long", nothing)


def stays_the_parent_of_its_parent(patch: Patch) -> None:
    original = Members.join

    def join(self: Any, stream: Stream, asker: Any, *arguments: Any, **named: Any) -> None:
        parent, stream.parent = stream.parent, None if asker is stream.parent else stream.parent
        original(self, stream, asker, *arguments, **named)
        stream.parent = parent

    patch.setattr(Members, "join", join)
    patch.setattr(Restarts, "restarted", nothing)
    unsent(patch, Dismissed)


def never_looks_for_a_better_root(patch: Patch) -> None:
    patch.setattr(Restarts, "_probe", nothing)
    patch.setattr(Restarts, "better_root", nothing)
    patch.setattr(Restarts, "peers_changed", nothing)


def does_not_hear_that_it_was_dismissed(patch: Patch) -> None:
    patch.setattr(Restarts, "dismissed", nothing)


def tells_nobody_that_it_lets_go(patch: Patch) -> None:
    unsent(patch, Dismissed)


def does_not_notice_that_its_parent_is_gone(patch: Patch) -> None:
    patch.setattr(Restarts, "neighbour_lost", nothing)


def looks_for_a_parent_only_once(patch: Patch) -> None:
    original = Restarts._restart

    def restart(self: Any, stream: Stream, pause: float, now: float) -> None:
        if not stream.attempts:
            original(self, stream, pause, now)

    patch.setattr(Restarts, "_restart", restart)


def never_hears_that_a_restart_is_over(patch: Patch) -> None:
    patch.setattr(Restarts, "refreshed", nothing)
    patch.setattr(Restarts, "_pending_long", nothing)


def never_ends_its_own_restart(patch: Patch) -> None:
    patch.setattr(Restarts, "_stay", nothing)


def follows_every_hint(patch: Patch) -> None:
    original = Restarts.better_known

    def better_known(self: Any, stream: Stream, place: float, now: float) -> None:
        stream.followed_at = float("-inf")
        original(self, stream, place, now)

    patch.setattr(Restarts, "better_known", better_known)


def looks_as_often_for_a_busy_node(patch: Patch) -> None:
    original = Restarts.own_ended

    def own_ended(self: Any, search: Any, reason: str | None, now: float) -> None:
        search.stream.busy_looks = 0
        original(self, search, reason, now)

    patch.setattr(Restarts, "own_ended", own_ended)


def announces_a_restart_again(patch: Patch) -> None:
    original = Restarts.restarted

    def restarted(self: Any, message: Any, neighbour: Any, now: float) -> None:
        stream = self._core.streams.get(message.key)
        if stream is not None and stream.parent is neighbour and stream.restart_uid == message.uid:
            stream.restart_uid = None
        original(self, message, neighbour, now)

    patch.setattr(Restarts, "restarted", restarted)


# Neighbours


def never_dials_again(patch: Patch) -> None:
    patch.setattr(Meeting, "_dial_later", nothing)
    patch.setattr(Meeting, "_gone", dial_nobody(Meeting._gone))


def dial_nobody(original: Any) -> Any:
    def gone(self: Any, neighbour: Any, reason: str, now: float) -> None:
        for target in self._targets.values():
            if target.node == neighbour.node:
                target.dialling = True
        original(self, neighbour, reason, now)

    return gone


def has_any_number_of_streams(patch: Patch) -> None:
    def make(self: Any, key: bytes, asker: Any) -> Stream:
        stream = self._core.streams[key] = Stream(key, self._core.policy.keep_packets)
        return stream

    patch.setattr(Members, "make", make)


# Packets


class EveryRecent(Recent):
    """To it everything is new."""

    def add(self, one: int) -> bool:
        super().add(one)
        return True


def delivers_what_it_has(patch: Patch) -> None:
    original, look = Stream.__init__, Packets.look

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.given = EveryRecent(10)

    def look_again(self: Any, number: int, data: bytes) -> Arrival:
        found = look(self, number, data)
        return Arrival.NEW if found is Arrival.SAME else found

    patch.setattr(Stream, "__init__", init)
    patch.setattr(Packets, "look", look_again)


def keeps_packets_for_good(patch: Patch) -> None:
    patch.setattr(Packets, "_slide", lambda self, newest, number: [])


def gives_packets_to_nobody(patch: Patch) -> None:
    original = Publishing._spread

    def spread(self: Any, stream: Stream, number: int, data: bytes, source: Any) -> None:
        subscribers, stream.subscribers = stream.subscribers, {}
        original(self, stream, number, data, source)
        stream.subscribers = subscribers

    patch.setattr(Publishing, "_spread", spread)


def gives_packets_to_the_first_only(patch: Patch) -> None:
    original = Publishing._spread

    def spread(self: Any, stream: Stream, number: int, data: bytes, source: Any) -> None:
        subscribers, stream.subscribers = stream.subscribers, dict(list(stream.subscribers.items())[:1])
        original(self, stream, number, data, source)
        stream.subscribers = subscribers

    patch.setattr(Publishing, "_spread", spread)


def says_that_it_has_published_too_soon(patch: Patch) -> None:
    def send_up(self: Any, stream: Stream, upward: Any, uid: int) -> None:
        if upward.own is not None:
            self._core.tell(Published(upward.own.token, stream.key, upward.number))

    patch.setattr(Publishing, "_send_up", send_up)


def publishes_where_nobody_hears(patch: Patch) -> None:
    patch.setattr(Publishing, "_is_wanted", lambda self, stream, upward: True)


def renumbers_a_repeated_packet(patch: Patch) -> None:
    original = Publishing._collides

    def collides(self: Any, stream: Stream, upward: Any, free: int, now: float) -> None:
        original(self, stream, upward._replace(repeated=False), free, now)

    patch.setattr(Publishing, "_collides", collides)


def refuses_a_repeated_packet(patch: Patch) -> None:
    original = Publishing._fails

    def fails(self: Any, stream: Stream, upward: Any, reason: str) -> None:
        original(self, stream, upward._replace(repeated=False), reason)

    patch.setattr(Publishing, "_fails", fails)


def refuses_a_packet_that_is_under_way(patch: Patch) -> None:
    original = Publishing.closed

    def closed(self: Any, stream: Stream) -> None:
        stream.upward = {uid: upward._replace(sent=None) for uid, upward in stream.upward.items()}
        original(self, stream)

    patch.setattr(Publishing, "closed", closed)


def lets_others_wait_without_limit(patch: Patch) -> None:
    original = Publishing.publish_received

    def publish_received(self: Any, message: Any, neighbour: Any, now: float) -> None:
        stream = self._core.streams.get(message.key)
        if stream is not None:
            stream.subscribers[neighbour] = None
            limit = self._core.policy
            self._core.policy = Policy(max_waiting=10**6)
            original(self, message, neighbour, now)
            self._core.policy = limit

    patch.setattr(Publishing, "publish_received", publish_received)


def does_not_expect_an_answer_for_what_is_over(patch: Patch) -> None:
    original = Publishing._answered

    def answered(self: Any, uid: int, neighbour: Any) -> Any:
        if uid not in self._core.upward:
            raise LookupError(uid)
        return original(self, uid, neighbour)

    patch.setattr(Publishing, "_answered", answered)


def takes_every_request_for_a_loop(patch: Patch) -> None:
    original = Searching.subscribe_requested

    def requested(self: Any, request: Any, asker: Any, now: float) -> None:
        if request.uid % 2:
            self._core.send(asker, RejectedLoop(request.uid))
        else:
            original(self, request, asker, now)

    patch.setattr(Searching, "subscribe_requested", requested)
    patch.setattr(Restarts, "_probe", nothing)
    patch.setattr(Restarts, "peers_changed", nothing)
    patch.setattr(Restarts, "better_root", nothing)


def waits_for_greetings_for_good(patch: Patch) -> None:
    patch.setattr(Meeting, "_greeted_late", nothing)


def keeps_any_number_of_links_that_have_not_greeted(patch: Patch) -> None:
    patch.setattr(Meeting, "_make_room", nothing)


TREE = NoCycle.name, NobodyIsStuck.name, OneTree.name, Arrives.name
BUGS = [
    Bug(is_a_root_wherever_it_is, (OneTree.name, Arrives.name), Crowd, seed=0),
    Bug(is_never_a_root, (NobodyIsStuck.name, OneTree.name), Storm, seed=6),
    Bug(gives_a_subscription_up, (NobodyIsStuck.name, OneTree.name), Storm, seed=1),
    Bug(holds_requests_for_one_another, (NobodyIsStuck.name, OneTree.name), Crowd, seed=43),
    # A root whose look for a better one never ends stays beside another.
    Bug(waits_for_those_who_are_gone, (NobodyIsStuck.name, OneTree.name), Deaths, seed=1),
    Bug(forgets_those_who_wait, (NobodyIsStuck.name, OneTree.name), Crowd, seed=55),
    Bug(takes_every_request_for_a_loop, (OneTree.name, Arrives.name), Crowd, seed=0),
    Bug(takes_resubscribers_that_are_above_it, TREE, Deaths, seed=9),
    Bug(does_not_tell_its_subtree_that_it_restarts, TREE, Deaths, seed=9),
    Bug(sees_no_cycle, TREE, Swaps, seed=5),
    Bug(stays_the_parent_of_its_parent, TREE, Swaps, seed=0),
    Bug(never_looks_for_a_better_root, (OneTree.name, Arrives.name), Islands, seed=0),
    Bug(does_not_hear_that_it_was_dismissed, TREE, Storm, seed=1),
    Bug(tells_nobody_that_it_lets_go, TREE, Storm, seed=6),
    Bug(does_not_notice_that_its_parent_is_gone, (OneTree.name, Arrives.name), Deaths, seed=0),
    Bug(looks_for_a_parent_only_once, (NobodyIsStuck.name, OneTree.name), Deaths, seed=0),
    Bug(never_hears_that_a_restart_is_over, (NobodyIsStuck.name, OneTree.name), Deaths, seed=2),
    Bug(never_ends_its_own_restart, TREE, Islands, seed=0),
    Bug(announces_a_restart_again, (AnnouncedOnce.name,), Deaths, seed=0),
    Bug(follows_every_hint, (FewRestarts.name,), Hints, seed=0),
    Bug(looks_as_often_for_a_busy_node, (FewRestarts.name,), Hints, seed=0),
    Bug(never_dials_again, (OneTree.name, Arrives.name), Storm, seed=0),
    Bug(has_any_number_of_streams, (Bounded.name,), Strangers, seed=0),
    Bug(delivers_what_it_has, (DeliveredOnce.name,), Storm, seed=1),
    Bug(keeps_packets_for_good, (Bounded.name,), Calm, seed=0),
    Bug(gives_packets_to_nobody, (Arrives.name,), Calm, seed=0),
    Bug(gives_packets_to_the_first_only, (Arrives.name,), Calm, seed=2),
    Bug(says_that_it_has_published_too_soon, (NothingVanishes.name, Arrives.name), Calm, seed=0),
    Bug(publishes_where_nobody_hears, (Heard.name,), Calm, seed=1),
    Bug(renumbers_a_repeated_packet, (PublishedOnce.name,), Storm, seed=3, message=" and packet "),
    Bug(refuses_a_repeated_packet, (PublishedOnce.name,), Islands, seed=1, message="was refused"),
    Bug(refuses_a_packet_that_is_under_way, (PublishedOnce.name,), Storm, seed=4, message="was refused (no-stream)"),
    Bug(waits_for_greetings_for_good, (Bounded.name,), Callers, seed=1, message="has not greeted for"),
    Bug(keeps_any_number_of_links_that_have_not_greeted, (Bounded.name,), Callers, seed=0, message="have not greeted"),
    Bug(lets_others_wait_without_limit, (Bounded.name,), Strangers, seed=0),
    Bug(does_not_expect_an_answer_for_what_is_over, (NOTHING_RAISES,), Storm, seed=1),
]


@each(BUGS)
def test_the_recorded_seed_shows_the_bug(bug: Bug, monkeypatch: Patch) -> None:
    check_seed(bug, monkeypatch)


# What is looked for here is in the simulator, not in what users run.
@pytest.mark.soak(seconds=300)
@each(BUGS)
def test_a_search_finds_a_seed_that_shows_the_bug(bug: Bug, monkeypatch: Patch) -> None:
    search(bug, monkeypatch)


def test_every_invariant_has_a_bug() -> None:
    found = {name for bug in BUGS for name in bug.invariants}
    every = {NoCycle, NobodyIsStuck, OneTree, DeliveredOnce, PublishedOnce, NothingVanishes, Heard, Arrives, Bounded}
    assert {invariant.name for invariant in every | {FewRestarts, AnnouncedOnce}} <= found
