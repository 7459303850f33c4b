"""One node whose neighbours a test plays, on a clock that stands still between two deadlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest

from fyrehose_twisted.effects import Write
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import (
    NONE_SEEN,
    Message,
    RejectedLoop,
    ResubscribeRequest,
    SubscribeData,
    SubscribeRequest,
    SubscribeSucceeded,
)

KEY = bytes(20)
Told = TypeVar("Told")


class Said(list[Any]):
    """What a node said. Two things are the same only if they are of one kind: named tuples do not look at that."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and list(map(_kind, self)) == list(map(_kind, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Said(found) if isinstance(index, slice) else found


def _kind(one: Any) -> tuple[type, Any]:
    return type(one), one


class Bench:
    """A node at some distance from :attr:`key`, and its neighbours, each with a number for its id and its link.

    Whatever the node sends has to be encodable.

    :ivar told: events since the start.
    :ivar sent: messages since the last :meth:`take`, and whom they went to.
    :ivar others: effects that are no messages.
    """

    def __init__(
        self, here: float, neighbours: Mapping[int, float], *, seed: int = 1, config: Any = None, **policy: Any
    ) -> None:
        self.key = KEY
        self.now = 1_000.0
        self.told = Said()
        self.sent: list[tuple[Any, Message]] = []
        self.others: list[Any] = []
        self.uids = count(1)
        self._codec = FreenetCodec()
        options = {"ping_every": 0.0, **(config or {})}
        self.node = FreenetNode(NodeConfig(100, 1, self.at(here), Policy(**policy), **options), Random(seed), self.now)
        for number, offset in neighbours.items():
            self.meet(number, offset)

    def at(self, offset: float, key: bytes = KEY) -> float:
        """Return the location that is ``offset`` away from the key."""
        return (key_location(key) + offset) % 1.0

    @property
    def stream(self) -> Stream:
        """The node's stream for the key."""
        return self.node.streams[self.key]

    @property
    def subscribers(self) -> list[Any]:
        """The numbers of those below the node."""
        return [one.node for one in self.stream.subscribers]

    # What happens to the node

    def register(self, number: int, offset: float, boot: int = 1) -> None:
        """Open a link."""
        self.node.add_neighbour(number, number, boot, self.at(offset), self.now)
        self.flush()

    def lose(self, number: int) -> None:
        """Close a link."""
        self.call("disconnected", number, "gone")

    def say(self, number: Any, *messages: Message) -> None:
        """Let a neighbour say something."""
        for message in messages:
            self.call("receive", message, number)

    def call(self, what: str, *arguments: Any, **options: Any) -> None:
        """Call a command of the node."""
        getattr(self.node, what)(*arguments, self.now, **options)
        self.flush()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        for _ in range(10_000):
            due = self.node.next_deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.call("tick")
        else:
            raise AssertionError("it wants to be called again and again")
        self.now = end

    def pause(self) -> float:
        """Let time pass until the node wants something done, and return how long that took."""
        start = self.now
        for _ in range(1_000):
            due = self.node.next_deadline()
            assert due is not None, "it wants nothing any more"
            self.now = max(self.now, due)
            self.call("tick")
            if self.sent or self.others:
                return self.now - start
        raise AssertionError("it wants to be called again and again")

    def flush(self) -> None:
        """Take what the node wants."""
        drained = self.node.drain()
        self.told.extend(drained.events)
        for effect in drained.effects:
            if isinstance(effect, Write):
                for message in effect.messages:
                    self._codec.encode(message)
                    self.sent.append((effect.peer, message))
            else:
                self.others.append(effect)

    # What it does

    def take(self, number: Any = None) -> Said:
        """Return what the node sent, to one neighbour or to all, and forget it."""
        taken = Said(message for peer, message in self.sent if number in (None, peer))
        self.sent = [one for one in self.sent if number not in (None, one[0])]
        return taken

    def of(self, kind: type[Told]) -> list[Told]:
        """Return what it told of one kind, and forget it."""
        found = [one for one in self.told if isinstance(one, kind)]
        self.told = Said(one for one in self.told if not isinstance(one, kind))
        return found

    def asked(self) -> tuple[Any, Any]:
        """Return whom the node sent its latest request to, and the request; everything sent is forgotten."""
        requests = [one for one in self.sent if isinstance(one[1], SubscribeRequest | ResubscribeRequest)]
        self.sent.clear()
        assert requests, "it has asked nobody"
        return requests[-1]

    def asked_of(self, number: int) -> Any:
        """Return the latest request that the node sent, which went to that neighbour; everything sent is forgotten."""
        asked, request = self.asked()
        assert asked == number
        return request

    # What is often there at first

    def request(
        self,
        number: int,
        *,
        best: float = 0.4,
        htl: int = 10,
        last_seen: int = NONE_SEEN,
        key: bytes = KEY,
        uid: int | None = None,
        must_beat: float | None = None,
    ) -> int:
        """Let a neighbour ask for a key, or ask again if ``must_beat`` is given; return the uid."""
        uid = next(self.uids) if uid is None else uid
        if must_beat is None:
            self.say(number, SubscribeRequest(uid, key, htl, last_seen, self.at(best, key)))
        else:
            places = self.at(must_beat, key), self.at(best, key)
            self.say(number, ResubscribeRequest(uid, key, htl, last_seen, *places))
        return uid

    def succeed(self, root: float = 0.0) -> None:
        """Let whoever was asked last say that it is the parent; everything sent is forgotten."""
        number, request = self.asked()
        self.say(number, SubscribeSucceeded(request.key, request.uid, self.at(root)))

    def attach(self, root: float = 0.0) -> None:
        """Subscribe, and get the nearest neighbour for a parent; everything sent and told is forgotten."""
        self.call("subscribe", self.key)
        self.succeed(root)
        self.sent.clear()
        self.told.clear()

    def adopt_cluster_id(self, *numbers: int, last_seen: int = NONE_SEEN) -> None:
        """Let neighbours join a stream that the node has; everything sent is forgotten."""
        for number in numbers:
            self.request(number, last_seen=last_seen)
            assert number in self.subscribers
        self.sent.clear()

    def serve_fetch(self, number: int, packet: int, data: bytes = b"x", key: bytes = KEY) -> None:
        """Let a neighbour give the node a packet."""
        self.say(number, SubscribeData(key, packet, data))


@pytest.fixture
def bench() -> Bench:
    """Return a node 0.2 away from the key, whose neighbours 1 to 4 are 0.1, 0.15, 0.3 and 0.4 away from it."""
    return Bench(0.2, {1: 0.1, 2: -0.15, 3: 0.3, 4: -0.4})


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Return what makes a node, given its distance from the key and those of its neighbours, by number, and options of
    its policy."""
    return Bench


@pytest.fixture
def root(bench: Bench) -> Bench:
    """Return the same node, subscribed, when nobody near the key is there: the root, with neighbours 3 and 4."""
    bench.lose(1)
    bench.lose(2)
    bench.call("move", bench.at(0.05))
    bench.call("subscribe", bench.key)
    for _ in (3, 4):
        number, request = bench.asked()
        bench.say(number, RejectedLoop(request.uid))
    assert bench.stream.is_root
    bench.sent.clear()
    bench.told.clear()
    return bench


@pytest.fixture
def member(bench: Bench) -> Bench:
    """Return the same node, subscribed, with parent 1 and a root that is on the key."""
    bench.attach()
    return bench
