"""Participants of a simulated network: nodes, their applications, and adversaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Dial, Peer, Write
from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import PacketNotPublished, PacketPublished, PacketsDelivered, PacketsMissed
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.simulation.silent_callers import SilentCaller
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import (
    NONE_SEEN,
    Accepted,
    BetterRoot,
    DataNotFound,
    Dismissed,
    Hello,
    Located,
    Message,
    Ping,
    Pong,
    Prove,
    PublishData,
    Recall,
    RejectedBusy,
    RejectedLoop,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeData,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)
from fyrehose_twisted.interfaces import ILinkNode, Outputs
from fyrehose_twisted.sim.crash_mode import Boot
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer

NodeFactory = Callable[..., FreenetNode]


class Participants(Observer):
    """Nodes, their applications, and adversaries.

    :ivar hosts: hosts that run nodes.
    :ivar adversaries: hosts that run adversaries or silent callers.
    :ivar locations: location of each node, by host name.
    :ivar wanted_keys: keys that the application on each host subscribes to.
    :ivar published: data of all published packets, with the publishing host.
    :ivar ever_subscribed: names of the hosts whose application has ever subscribed to a key.
    :ivar needs_subscriber: key and host of each pending packet that requires another subscriber, by token.
    :ivar received: packets delivered to each application since its last start: key, number and data.
    """

    def __init__(self, network: Network, rng: Random, node_factory: NodeFactory = FreenetNode) -> None:
        self.network = network
        self.rng = rng
        self.node_factory = node_factory
        self.hosts: list[Host] = []
        self.adversaries: list[Host] = []
        self.locations: dict[str, float] = {}
        self.wanted_keys: dict[str, list[bytes]] = {}
        self.published: dict[bytes, Host] = {}
        self.ever_subscribed: dict[bytes, set[str]] = {}
        self.needs_subscriber: dict[Any, tuple[bytes, Host]] = {}
        self.confirmed = 0
        self.failed = 0
        self.without_subscribers = 0
        self.delivered = 0
        self.missed = 0
        self.received: dict[str, dict[tuple[bytes, int, bytes], None]] = {}
        self._publish_count = 0

    def add(self, name: str, address: Address, config: NodeConfig, wanted_keys: Sequence[bytes]) -> Host:
        """Add a host whose application subscribes to some streams."""
        rng = Random(self.rng.getrandbits(64))

        def start(boot: Boot) -> FreenetNode:
            # A node keeps its location in a file. Two nodes at one location could be roots for ever.
            location = self.locations[name]
            restarted = replace(config, boot=rng.getrandbits(64), location=location)
            return self.node_factory(restarted, Random(rng.getrandbits(64)), boot.now)

        host = self.network.add(name, address, start)
        self.hosts.append(host)
        self.locations[name] = config.location
        self.wanted_keys[name] = list(wanted_keys)
        self.received[name] = {}
        return host

    def add_adversary(
        self,
        name: str,
        address: Address,
        victims: Sequence[Address],
        keys: Sequence[bytes],
        make: Callable[..., Adversary] | None = None,
    ) -> Host:
        """Add a host that runs an :class:`Adversary`, or the node that ``make`` returns."""
        rng = Random(self.rng.getrandbits(64))
        factory = Adversary if make is None else make
        host = self.network.add(name, address, lambda boot: factory(Random(rng.getrandbits(64)), victims, keys))
        self.adversaries.append(host)
        return host

    def add_silent_caller(self, name: str, address: Address, victims: Sequence[Address]) -> Host:
        """Add a host that opens connections without completing handshakes."""
        rng = Random(self.rng.getrandbits(64))
        host = self.network.add(name, address, lambda boot: SilentCaller(Random(rng.getrandbits(64)), victims))
        self.adversaries.append(host)
        return host

    # Applications

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host in self.hosts:
            self.received[host.name] = {}
            self.network.call_in(0.0, lambda: self._subscribe_wanted(host))

    def _subscribe_wanted(self, host: Host) -> None:
        for key in self.wanted_keys[host.name]:
            host.perform(lambda node, now, key=key: self._subscribe(host, node, key, now))  # type: ignore[misc]

    def _subscribe(self, host: Host, node: FreenetNode, key: bytes, now: float) -> None:
        self.ever_subscribed.setdefault(key, set()).add(host.name)
        try:
            node.subscribe(key, now)
        except FyrehoseError:
            self.failed += 1

    def publish(
        self, node: FreenetNode, now: float, host: Host, key: bytes, needs_subscriber: bool | None = None
    ) -> None:
        """Publish a packet with new data.

        :param needs_subscriber: fail if no other node is subscribed; by default set for every second packet.
        """
        self._publish_count += 1
        data = packet_data(self._publish_count)
        self.published[data] = host
        if needs_subscriber is None:
            needs_subscriber = self._publish_count % 2 == 0
        if needs_subscriber:
            self.needs_subscriber[self._publish_count] = key, host
        node.publish(key, data, self._publish_count, now, need_subscriber=needs_subscriber)

    def toggle_subscription(self, node: FreenetNode, now: float, host: Host, key: bytes) -> None:
        """Subscribe the application to a stream, or unsubscribe it."""
        keys = self.wanted_keys[host.name]
        if key in keys:
            keys.remove(key)
            # Retained packets are delivered again after the next subscription.
            received = self.received[host.name]
            self.received[host.name] = {packet: None for packet in received if packet[0] != key}
            node.unsubscribe(key, now)
        else:
            keys.append(key)
            self._subscribe(host, node, key, now)

    def swap(self, first: Host, second: Host) -> None:
        """Exchange the locations of two nodes."""
        locations = self.locations
        locations[first.name], locations[second.name] = locations[second.name], locations[first.name]
        for host in (first, second):
            host.perform(lambda node, now, host=host: node.move(locations[host.name], now))  # type: ignore[misc]

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        match event:
            case PacketsDelivered(_, packets):
                self.delivered += len(packets)
            case PacketsMissed(_, first, last):
                self.missed += min(last - first + 1, 1_000)
            case PacketPublished():
                self.confirmed += 1
            case PacketNotPublished(_, _, "no-subscribers"):
                self.without_subscribers += 1
            case PacketNotPublished():
                self.failed += 1

    # State

    def streams(self, key: bytes) -> dict[Host, Stream]:
        """Return the streams of the running nodes, by host."""
        return {host: host.node.streams[key] for host in self.hosts if host.running and key in host.node.streams}

    def parents(self, key: bytes) -> dict[Host, Host | None]:
        """Return the parent of each running node that has the stream."""
        by_id = {host.node.config.node: host for host in self.hosts if host.running}
        return {
            host: None if stream.parent is None else by_id.get(stream.parent.node)
            for host, stream in self.streams(key).items()
        }


def packet_data(token: int) -> bytes:
    """Return the data of the packet with a token."""
    return b"packet %d" % token


@implementer(ILinkNode)
class Adversary:
    """Node that completes handshakes, and then forges, replays and floods messages, or withholds answers."""

    def __init__(self, rng: Random, victims: Sequence[Address], keys: Sequence[bytes]) -> None:
        self.rng = rng
        self.keys = keys
        self.quiet = False
        self.node = rng.getrandbits(64)
        self._victims = victims
        self._dial_at: dict[Address, float] = dict.fromkeys(victims, -inf)
        self._act_at = -inf
        self._peers: list[Peer] = []
        self._received: list[Message] = []
        self._effects: list[Any] = []
        self._boot = rng.getrandbits(64)
        self._answers = rng.random() < 0.5

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        place = key_location(self.rng.choice(self.keys)) if self.rng.random() < 0.7 else self.rng.random()
        hello = Hello(self.node, self._boot, place, self.rng.randbytes(16))
        self._effects.append(Write([hello, Prove(b"")], peer))
        self._peers.append(peer)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._dial_at[address] = now + 5.0

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if peer in self._peers:
            self._peers.remove(peer)
        if peer.dialled:
            self._dial_at[peer.address] = now + 5.0

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if isinstance(message, Ping):
            self._write(peer, Pong())
            return
        self._received.append(message)
        del self._received[:-50]
        if self.quiet:
            return
        if isinstance(message, SubscribeRequest | ResubscribeRequest):
            self._answer(message, peer)

    def _answer(self, request: SubscribeRequest | ResubscribeRequest, peer: Peer) -> None:
        place = key_location(request.key)
        answers: list[list[Message]] = [
            [Accepted(request.uid)],
            [],
            [Accepted(request.uid), SubscribeSucceededNewRoot(request.key, request.uid, place)],
            [SubscribeSucceeded(request.key, request.uid, self.rng.random())],
            [Accepted(request.uid), RouteNotFound(request.uid, 255, place)],
            [Accepted(request.uid), DataNotFound(request.uid)],
            [RejectedLoop(request.uid)],
            [RejectedBusy(request.uid, place)],
        ]
        self._write(peer, *self.rng.choice(answers))

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._dial_due(now)
        if self._act_at <= now:
            self._act_at = now + self.rng.expovariate(2.0)
            if self._peers and not self.quiet:
                peer = self.rng.choice(self._peers)
                self._write(peer, *self._forge())

    def _dial_due(self, now: float) -> None:
        for address, due in self._dial_at.items():
            if due <= now:
                self._dial_at[address] = inf
                if not self.quiet:
                    self._effects.append(Dial(address))

    def next_deadline(self) -> float:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return min(self._act_at, *self._dial_at.values())

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])

    def _write(self, peer: Peer, *messages: Message) -> None:
        if messages:
            self._effects.append(Write(list(messages), peer))

    def _forge(self) -> list[Message]:
        rng = self.rng
        key, uid, place = rng.choice(self.keys), rng.getrandbits(64), rng.random()
        number = rng.choice((0, 1, rng.randrange(2**63), 2**63 - 1))
        match rng.randrange(13):
            case 0:
                return [SubscribeSucceeded(key, uid, key_location(key))]
            case 1:
                return [SubscribeRestarted(key, uid, place)]
            case 2:
                return [SubscribeData(key, number, b"forged %d" % uid)]
            case 3:
                return [PublishData(uid, key, number, place, b"forged", 10, rng.random() < 0.5)]
            case 4:
                return [Dismissed(key)]
            case 5:
                return [Unsubscribe(key)]
            case 6:
                return [BetterRoot(key, key_location(key))]
            case 7:
                return [Located(place)]
            case 8:
                return [SubscribeRequest(rng.getrandbits(64), rng.randbytes(20), 10, -1, place) for _ in range(40)]
            case 9:
                return [SubscribeRequest(uid, key, 255, -1, place)]
            case 10:
                return [Recall(key, rng.choice((NONE_SEEN, number)))]
            case 11:
                return [ResubscribeRequest(uid, key, 255, -1, place, place)]
            case _:
                return list(rng.sample(self._received, min(5, len(self._received))))
