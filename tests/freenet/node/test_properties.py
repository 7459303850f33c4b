from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from suite.freenet_bench import Bench

from fyrehose_twisted.errors import TooManyStreams
from fyrehose_twisted.freenet.events import PacketNotPublished, PacketPublished, PacketsDelivered
from fyrehose_twisted.freenet.node.routing import MAX_PARALLEL_REQUESTS
from fyrehose_twisted.freenet.node.stream import StreamPhase
from fyrehose_twisted.freenet.wire.messages import (
    MAX_PACKET,
    Accepted,
    BetterRoot,
    DataNotFound,
    Dismissed,
    Located,
    Message,
    Ping,
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

KEYS = [bytes([number]) * 20 for number in range(4)]
ANSWERS = (
    RejectedLoop,
    RejectedOverload,
    RejectedBusy,
    RouteNotFound,
    DataNotFound,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
)
FAILURES = ANSWERS[:5]

neighbours = st.integers(1, 5)
keys = st.sampled_from(KEYS)
places = st.sampled_from([number / 16 for number in range(16)])
packets = st.one_of(st.integers(0, 40), st.sampled_from([MAX_PACKET, MAX_PACKET - 1, 5_000]))
contents = st.sampled_from([b"", b"a", b"b"])
few = st.integers(0, 8)
policies = st.fixed_dictionaries(
    {
        "accept": st.sampled_from(["root", "own"]),
        "coalesce": st.sampled_from(["queue", "queue", "reject", "parallel"]),
        "on_parent_lost": st.sampled_from(["graft", "graft", "teardown"]),
        "confirm_root": st.booleans(),
        "htl_on_closer": st.sampled_from(["reset", "keep"]),
    }
)


class AnyNeighbours(RuleBasedStateMachine):
    """Node whose neighbours send arbitrary messages in any order."""

    make_bench: Callable[..., Bench]

    @initialize(policy=policies, seed=st.integers(0, 1_000))
    def start(self, policy: dict[str, Any], seed: int) -> None:
        locations = {number: number / 6 for number in range(1, 6)}
        self.bench = self.make_bench(0.0, locations, seed=seed, max_streams=3, max_waiting=4, keep_packets=8, **policy)
        self.core = self.bench.node._context
        self.open: set[tuple[int, int]] = set()
        self.matched: set[int] = set()
        self.answered: Counter[tuple[int, int]] = Counter()
        self.failed: Counter[tuple[int, int]] = Counter()
        self.uids = 10**6
        self.tokens = 0
        self.events: Counter[int] = Counter()

    def look(self) -> None:
        """Record the outputs of the node."""
        for peer, message in self.bench.sent:
            if isinstance(message, ANSWERS):
                self.answered[peer, message.uid] += 1
                self.failed[peer, message.uid] += isinstance(message, FAILURES)
        self.bench.sent.clear()
        for event in self.bench.events:
            if isinstance(event, PacketPublished | PacketNotPublished):
                self.events[event.token] += 1
        given = [
            (told.key, packet.number, packet.data)
            for told in self.bench.events
            if isinstance(told, PacketsDelivered)
            for packet in told.packets
        ]
        assert len(set(given)) == len(given)
        self.bench.events.clear()

    def _receive(self, number: int, message: Message) -> None:
        if number in self.bench.node.neighbours():
            self.bench.receive(number, message)

    def uid(self) -> int:
        self.uids += 1
        return self.uids

    # Requests

    @rule(number=neighbours, key=keys, htl=few, best=places, last_seen=st.integers(-1, 40))
    def subscribe_requested(self, number: int, key: bytes, htl: int, best: float, last_seen: int) -> None:
        if number in self.bench.node.neighbours():
            uid = self.uid()
            self.open.add((number, uid))
            self._receive(number, SubscribeRequest(uid, key, htl, last_seen, best))

    @rule(number=neighbours, key=keys, htl=few, best=places, must_beat=places, matching=st.booleans())
    def resubscribe_requested(
        self, number: int, key: bytes, htl: int, best: float, must_beat: float, matching: bool
    ) -> None:
        stream = self.core.streams.get(key)
        uid = self.uid()
        if matching and stream is not None and stream.restart_uid is not None and stream.parent is not None:
            if stream.restart_uid in self.matched:
                return
            uid, number = stream.restart_uid, stream.parent.node
            self.matched.add(uid)
        if number in self.bench.node.neighbours():
            self.open.add((number, uid))
            self._receive(number, ResubscribeRequest(uid, key, htl, -1, must_beat, best))

    # Answers

    @rule(which=few, kind=st.integers(0, 9), place=places, htl=few)
    def answered_for(self, which: int, kind: int, place: float, htl: int) -> None:
        searches = list(self.core.pending_requests.items())
        if not searches:
            return
        uid, search = searches[which % len(searches)]
        key = search.stream.key
        answers = [
            Accepted(uid),
            RejectedLoop(uid),
            RejectedOverload(uid),
            RejectedBusy(uid, place),
            RouteNotFound(uid, htl, place),
            RouteNotFound(uid, htl),
            DataNotFound(uid),
            SubscribeSucceeded(key, uid, place),
            SubscribeSucceeded(key, uid, place),
            SubscribeSucceededNewRoot(key, uid, place),
        ]
        self._receive(search.next_hop.node, answers[kind])

    @rule(which=few, place=places)
    def a_parent_is_found(self, which: int, place: float) -> None:
        self.answered_for(which, 7, place, 0)

    @rule(number=neighbours, key=keys, place=places)
    def success_came_too_late(self, number: int, key: bytes, place: float) -> None:
        self._receive(number, SubscribeSucceeded(key, self.uid(), place))

    @rule(which=few, kind=st.integers(0, 3), packet=packets)
    def publish_answered(self, which: int, kind: int, packet: int) -> None:
        upward = list(self.core.upstream.items())
        if upward:
            uid, stream = upward[which % len(upward)]
            answer = PublishSucceeded(uid), PublishCollision(uid, packet), PublishFailed(uid, "no"), RejectedLoop(uid)
            if stream.parent is not None:
                self._receive(stream.parent.node, answer[kind])

    # Unsolicited messages

    @rule(key=keys, place=places, kind=st.integers(0, 6), which=few, packet=packets, content=contents)
    def the_parent_says(self, key: bytes, place: float, kind: int, which: int, packet: int, content: bytes) -> None:
        stream = self.core.streams.get(key)
        if stream is None or stream.parent is None:
            return
        uids = [*stream.known_restart_uids, self.uid()]
        said = [
            SubscribeRestarted(key, uids[which % len(uids)], place),
            SubscribeRestarted(key, self.uid(), place),
            SubscribeSucceeded(key, self.uid(), place),
            SubscribeData(key, packet, content),
            SubscribeData(key, packet, content),
            Recall(key, packet),
            Dismissed(key),
        ]
        self._receive(stream.parent.node, said[kind])

    @rule(number=neighbours, key=keys, place=places, kind=st.integers(0, 7), packet=packets, content=contents)
    def somebody_says(self, number: int, key: bytes, place: float, kind: int, packet: int, content: bytes) -> None:
        said = [
            Unsubscribe(key),
            Dismissed(key),
            BetterRoot(key, place),
            SubscribeRestarted(key, self.uid(), place),
            SubscribeData(key, packet, content),
            PublishData(self.uid(), key, packet, place, content, 3, packet % 2 == 0),
            Located(place),
            Ping(),
        ]
        self._receive(number, said[kind])

    # The application, links and time

    @rule(key=keys, last_seen=st.integers(-1, 40))
    def subscribe(self, key: bytes, last_seen: int) -> None:
        try:
            self.bench.call("subscribe", key, last_seen=last_seen)
        except TooManyStreams:
            assert len(self.core.streams) == 3

    @rule(key=keys)
    def unsubscribe(self, key: bytes) -> None:
        self.bench.call("unsubscribe", key)

    @rule(key=keys, content=contents, number=st.one_of(st.none(), packets))
    def publish(self, key: bytes, content: bytes, number: int | None) -> None:
        self.bench.call("publish", key, content, self.tokens, number=number)
        self.tokens += 1

    @rule(place=places)
    def move(self, place: float) -> None:
        self.bench.call("move", place)

    @rule(number=neighbours)
    def lose(self, number: int) -> None:
        self.bench.disconnect(number)
        self.open = {one for one in self.open if one[0] != number}

    @rule(number=neighbours, boot=st.integers(1, 2), offset=places)
    def register(self, number: int, boot: int, offset: float) -> None:
        if number not in self.bench.node.neighbours():
            self.bench.connect(number, offset, boot)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 10.0, 61.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.bench.wait(seconds)

    # Invariants

    @invariant()
    def a_stream_is_whole(self) -> None:
        core = self.core
        for stream in core.streams.values():
            assert stream.in_use
            assert stream.parent not in stream.subscribers
            assert stream.parent is None or stream.phase is StreamPhase.SETTLED
            assert stream.connected is (stream.root is not None) or stream.phase is not StreamPhase.SETTLED
            assert not (stream.subscribers and stream.phase is StreamPhase.SEARCHING)
            if stream.phase is StreamPhase.SETTLED:
                assert all(search.must_beat is not None for search in stream.requests)
            if stream.settled:
                assert stream.queued_requests == []
            assert all(search.next_hop is not None and not search.finished for search in stream.requests)
            assert all(held.waits_for is None or held.waits_for in stream.requests for held in stream.queued_requests)

    @invariant()
    def nothing_is_left_over(self) -> None:
        core = self.core
        searches = [search for stream in core.streams.values() for search in stream.requests]
        assert sorted(map(id, searches)) == sorted(map(id, core.pending_requests.values()))
        upward = {uid: stream for stream in core.streams.values() for uid in stream.upstream}
        assert upward == core.upstream
        assert all(core.streams[stream.key] is stream for stream in upward.values())

    @invariant()
    def limits_hold(self) -> None:
        core = self.core
        assert len(core.streams) <= 3
        for stream in core.streams.values():
            assert len(stream.queued_requests) <= 4
            assert len(stream.requests) <= MAX_PARALLEL_REQUESTS
            assert len(stream.upstream) <= 4
            assert len(stream.packets) <= 8

    @invariant()
    def nobody_gets_two_answers(self) -> None:
        self.look()
        assert all(self.failed[one] <= 1 and self.answered[one] <= 1 for one in self.open)

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.bench.wait(400.0)
        self.look()
        assert [one for one in self.open if not self.answered[one]] == []
        for key in KEYS:
            self.bench.call("unsubscribe", key)
        self.look()
        assert self.events == Counter(range(self.tokens))


@pytest.mark.hypothesis
def test_a_node_stays_consistent_and_answers_all_requests_for_arbitrary_messages(
    make_bench: Callable[..., Bench],
) -> None:
    AnyNeighbours.make_bench = staticmethod(make_bench)  # type: ignore[method-assign]
    run_state_machine_as_test(
        AnyNeighbours,
        settings=settings(
            stateful_step_count=60,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
