"""Bench of one freenet node with simulated neighbours and a manual clock."""

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
EventType = TypeVar("EventType")


class TypedList(list[Any]):
    """List whose comparison also compares the types of its items, which that of named tuples ignores."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and list(map(_with_type, self)) == list(map(_with_type, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return TypedList(found) if isinstance(index, slice) else found


def _with_type(item: Any) -> tuple[type, Any]:
    return type(item), item


class Bench:
    """Node at some distance from :attr:`key` with its neighbours, whose numbers are both their ids and their links.

    Every message of the node must be encodable.

    :param here: distance of the node from the key.
    :param neighbours: distances of the neighbours from the key, by number.
    :param policy: settings of the node's policy.
    :ivar events: events since the start.
    :ivar sent: recipients and messages since the last :meth:`take`.
    :ivar effects: effects other than messages.
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
        self.events = TypedList()
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
        """Stream of the node for the key."""
        return self.node.streams[self.key]

    @property
    def subscribers(self) -> list[Any]:
        """Numbers of the subscribers."""
        return [subscriber.node for subscriber in self.stream.subscribers]

    # Inputs

    def connect(self, number: int, offset: float, boot: int = 1) -> None:
        """Add a neighbour."""
        self.node.add_neighbour(number, number, boot, self.at(offset), self.now)
        self.flush()

    def disconnect(self, number: int) -> None:
        """Close the link to a neighbour."""
        self.call("disconnected", number, "gone")

    def receive(self, number: Any, *messages: Message) -> None:
        """Deliver messages of a neighbour to the node."""
        for message in messages:
            self.call("receive", message, number)

    def call(self, method: str, *arguments: Any, **options: Any) -> None:
        """Call a method of the node with the current time."""
        getattr(self.node, method)(*arguments, self.now, **options)
        self.flush()

    def wait(self, seconds: float) -> None:
        """Advance the clock and run the timers that are due."""
        end = self.now + seconds
        for _ in range(10_000):
            due = self.node.next_deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.call("tick")
        else:
            raise AssertionError("the timers of the node never end")
        self.now = end

    def wait_for_output(self) -> float:
        """Advance the clock until the node has an effect; return the seconds that passed."""
        start = self.now
        for _ in range(1_000):
            due = self.node.next_deadline()
            assert due is not None, "the node has no more timers"
            self.now = max(self.now, due)
            self.call("tick")
            if self.sent or self.effects:
                return self.now - start
        raise AssertionError("the timers of the node have no effect")

    def flush(self) -> None:
        """Drain the outputs of the node."""
        drained = self.node.drain()
        self.events.extend(drained.events)
        for effect in drained.effects:
            if isinstance(effect, Write):
                for message in effect.messages:
                    self._codec.encode(message)
                    self.sent.append((effect.peer, message))
            else:
                self.effects.append(effect)

    # Outputs

    def take(self, number: Any = None) -> TypedList:
        """Remove and return the messages sent to one neighbour or to all."""
        taken = TypedList(message for peer, message in self.sent if number in (None, peer))
        self.sent = [(peer, message) for peer, message in self.sent if number not in (None, peer)]
        return taken

    def take_events(self, kind: type[EventType]) -> list[EventType]:
        """Remove and return the events of one type."""
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = TypedList(event for event in self.events if not isinstance(event, kind))
        return found

    def take_request(self) -> tuple[Any, Any]:
        """Return the latest request with its recipient, and drop all sent messages."""
        requests = [sent for sent in self.sent if isinstance(sent[1], SubscribeRequest | ResubscribeRequest)]
        self.sent.clear()
        assert requests, "the node sent no request"
        return requests[-1]

    def take_request_to(self, number: Any) -> Any:
        """Return the latest request, which must be to a neighbour, and drop all sent messages."""
        recipient, request = self.take_request()
        assert recipient == number
        return request

    # Common steps

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
        """Deliver a request of a neighbour, a resubscription if ``must_beat`` is given; return its uid."""
        uid = next(self.uids) if uid is None else uid
        if must_beat is None:
            self.receive(number, SubscribeRequest(uid, key, htl, last_seen, self.at(best, key)))
        else:
            locations = self.at(must_beat, key), self.at(best, key)
            self.receive(number, ResubscribeRequest(uid, key, htl, last_seen, *locations))
        return uid

    def succeed(self, root: float = 0.0) -> None:
        """Let the recipient of the latest request become the parent; drop all sent messages."""
        number, request = self.take_request()
        self.receive(number, SubscribeSucceeded(request.key, request.uid, self.at(root)))

    def attach(self, root: float = 0.0) -> None:
        """Subscribe with the nearest neighbour as parent; drop all sent messages and events."""
        self.call("subscribe", self.key)
        self.succeed(root)
        self.sent.clear()
        self.events.clear()

    def add_subscribers(self, *numbers: int, last_seen: int = NONE_SEEN) -> None:
        """Let neighbours subscribe to the stream; drop all sent messages."""
        for number in numbers:
            self.request(number, last_seen=last_seen)
            assert number in self.subscribers
        self.sent.clear()

    def receive_packet(self, number: int, packet: int, data: bytes = b"x", key: bytes = KEY) -> None:
        """Deliver a packet of a neighbour."""
        self.receive(number, SubscribeData(key, packet, data))
