"""One node whose neighbours a test plays, on a clock that stands still between two deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any, TypeVar

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

    :ivar events: events since the start.
    :ivar sent: messages since the last :meth:`take`, and whom they went to.
    :ivar effects: effects that are no messages.
    :ivar uid: uid of a request that a fixture has sent.
    :ivar own: uid of a packet of the node itself.
    :ivar theirs: uid of a packet of a subscriber.
    """

    uid: int
    own: int
    theirs: int

    def __init__(
        self, here: float, neighbours: Mapping[int, float], *, seed: int = 1, config: Any = None, **policy: Any
    ) -> None:
        self.key = KEY
        self.now = 1_000.0
        self.events = Said()
        self.sent: list[tuple[Any, Message]] = []
        self.effects: list[Any] = []
        self.uids = count(1)
        self._codec = FreenetCodec()
        options = {"ping_every": 0.0, **(config or {})}
        self.node = FreenetNode(NodeConfig(100, 1, self.at(here), Policy(**policy), **options), Random(seed), self.now)
        for number, offset in neighbours.items():
            self.connect(number, offset)

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

    def connect(self, number: int, offset: float, boot: int = 1) -> None:
        """Open a link."""
        self.node.add_neighbour(number, number, boot, self.at(offset), self.now)
        self.flush()

    def disconnect(self, number: int) -> None:
        """Close a link."""
        self.call("disconnected", number, "gone")

    def receive(self, number: Any, *messages: Message) -> None:
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

    def wait_for_output(self) -> float:
        """Let time pass until the node wants something done, and return how long that took."""
        start = self.now
        for _ in range(1_000):
            due = self.node.next_deadline()
            assert due is not None, "it wants nothing any more"
            self.now = max(self.now, due)
            self.call("tick")
            if self.sent or self.effects:
                return self.now - start
        raise AssertionError("it wants to be called again and again")

    def flush(self) -> None:
        """Take what the node wants."""
        drained = self.node.drain()
        self.events.extend(drained.events)
        for effect in drained.effects:
            if isinstance(effect, Write):
                for message in effect.messages:
                    self._codec.encode(message)
                    self.sent.append((effect.peer, message))
            else:
                self.effects.append(effect)

    # What it does

    def take(self, number: Any = None) -> Said:
        """Return what the node sent, to one neighbour or to all, and forget it."""
        taken = Said(message for peer, message in self.sent if number in (None, peer))
        self.sent = [one for one in self.sent if number not in (None, one[0])]
        return taken

    def take_events(self, kind: type[Told]) -> list[Told]:
        """Return what it told of one kind, and forget it."""
        found = [one for one in self.events if isinstance(one, kind)]
        self.events = Said(one for one in self.events if not isinstance(one, kind))
        return found

    def take_request(self) -> tuple[Any, Any]:
        """Return whom the node sent its latest request to, and the request; everything sent is forgotten."""
        requests = [one for one in self.sent if isinstance(one[1], SubscribeRequest | ResubscribeRequest)]
        self.sent.clear()
        assert requests, "it has asked nobody"
        return requests[-1]

    def take_request_to(self, number: Any) -> Any:
        """Return the latest request that the node sent, which went to that neighbour; everything sent is forgotten."""
        asked, request = self.take_request()
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
            self.receive(number, SubscribeRequest(uid, key, htl, last_seen, self.at(best, key)))
        else:
            places = self.at(must_beat, key), self.at(best, key)
            self.receive(number, ResubscribeRequest(uid, key, htl, last_seen, *places))
        return uid

    def succeed(self, root: float = 0.0) -> None:
        """Let whoever was asked last say that it is the parent; everything sent is forgotten."""
        number, request = self.take_request()
        self.receive(number, SubscribeSucceeded(request.key, request.uid, self.at(root)))

    def attach(self, root: float = 0.0) -> None:
        """Subscribe, and get the nearest neighbour for a parent; everything sent and told is forgotten."""
        self.call("subscribe", self.key)
        self.succeed(root)
        self.sent.clear()
        self.events.clear()

    def add_subscribers(self, *numbers: int, last_seen: int = NONE_SEEN) -> None:
        """Let neighbours join a stream that the node has; everything sent is forgotten."""
        for number in numbers:
            self.request(number, last_seen=last_seen)
            assert number in self.subscribers
        self.sent.clear()

    def receive_packet(self, number: int, packet: int, data: bytes = b"x", key: bytes = KEY) -> None:
        """Let a neighbour give the node a packet."""
        self.receive(number, SubscribeData(key, packet, data))
