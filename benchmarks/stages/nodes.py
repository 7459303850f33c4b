"""Recordings of messages through the nodes of a stream, and of events through those of a cluster, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesPublished
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import EventsDelivered
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Hello, Mode, Proof, Publish, PublishAck, PublisherRun, node_id
from stages.network import HOP, DatagramHost, Host, Input, Network, StreamHost, Timeline

PERIOD = 1e-3
"""Seconds between two messages."""
START = 1_700_000_000.0
BACKBONE: Address = ("10.0.0.1", 2323)
SUBSCRIBER: Address = ("10.0.0.2", 4000)
PUBLISHER: Address = ("10.0.0.3", 4000)
SETTLED = 3.0
"""Seconds after which nodes know one another, and the last message has arrived although no other follows."""
ORDER = ("publisher", "backbone", "subscriber")
"""Order in which a message passes the nodes."""

Make = Callable[[Timeline, Callable[..., None]], Host]


class Recording(NamedTuple):
    """All inputs of one node.

    :ivar make: makes the node again, equal to the recorded one.
    :ivar inputs: in order; those before the first message belong to :data:`~stages.network.SETUP`, those after the
        last to the number ``messages``.
    :ivar messages: number of messages.
    :ivar events: number of messages, events or acknowledgements that reached its application.
    """

    make: Make
    inputs: list[Input]
    messages: int
    events: int


class ClientHost(DatagramHost):
    """A client that reads its messages."""

    def on_event(self, event: Any) -> None:
        if isinstance(event, MessagesDelivered):
            for message in event.messages:
                self.events += len(message.data) > 0
        elif isinstance(event, MessagesPublished):
            self.events += len(event.messages)


class BackboneHost(DatagramHost):
    """A backbone whose checkpoints go nowhere."""


class MemberHost(StreamHost):
    """A member of a cluster that reads its events."""

    def on_event(self, event: Any) -> None:
        if isinstance(event, EventsDelivered):
            for each in event.events:
                self.events += len(each.data) > 0


def make_client(number: int, clock: Timeline, send: Callable[..., None]) -> Host:
    """Make client ``number``."""
    return ClientHost(Client(BACKBONE, ClientConfig(), Random(number), clock.seconds()), clock, send)


def make_backbone(clock: Timeline, send: Callable[..., None]) -> Host:
    """Make the backbone."""
    return BackboneHost(Backbone(BackboneConfig(), RandomForward(Random(1)), now=clock.seconds()), clock, send)


def record_stream(messages: int, size: int) -> dict[str, Recording]:
    """Record a publisher, a backbone and a subscriber, one message every :data:`PERIOD`."""
    network = Network(START)
    makers: dict[str, tuple[Address, Make]] = {
        "backbone": (BACKBONE, make_backbone),
        "subscriber": (SUBSCRIBER, partial(make_client, 2)),
        "publisher": (PUBLISHER, partial(make_client, 3)),
    }
    for address, make in makers.values():
        network.hosts[address] = make(
            network.clock, lambda effect, address=address: network.send_datagrams(address, effect)
        )
        network.run(SETTLED / 3)
    for number in range(messages):
        network.message = number
        network.hosts[PUBLISHER].record(number, "publish", number.to_bytes(8, "big").ljust(size, b"."))
        network.run(PERIOD)
    network.message = messages
    network.run(SETTLED)
    hosts = network.hosts
    found = {
        name: Recording(make, hosts[address].inputs, messages, hosts[address].events)
        for name, (address, make) in sorted(makers.items(), key=lambda one: ORDER.index(one[0]))
    }
    if found["subscriber"].events != messages:
        raise RuntimeError(f"the subscriber received {found['subscriber'].events} of {messages} messages")
    return found


def make_member(index: int, places: Sequence[Address], clock: Timeline, send: Callable[..., None]) -> Host:
    """Make a member of a cluster. The first bootstraps it."""
    name = f"n{index}"
    config = NodeConfig(name, advertise=places[index], neighbours=(places[0 if index else 1],), bootstrap=not index)
    node = ClusterNode(config, Random(index), clock.seconds())
    return MemberHost(node, clock, send, ParcelCodec(node_id(name)))


class Publishing:
    """Client of a cluster with one event in flight.

    :ivar acknowledged: number of acknowledged events.
    """

    def __init__(self, network: Network, place: Address) -> None:
        self.acknowledged = 0
        self._host = network.hosts[place]
        self._network = network
        self._codec = ParcelCodec(1)
        self._decoder = self._codec.decoder()
        self._peer = network.accept(self, place)
        self._send(Hello("default", "", 0, 0, bytes(16)))
        network.run(10 * HOP)
        self._send(Proof(b""))
        network.run(10 * HOP)

    def _send(self, message: Any) -> None:
        self._host.record(self._network.message, "data", self._codec.encode(message), self._peer)

    def publish(self, number: int, data: bytes) -> None:
        """Publish event ``number``, counted from 0."""
        self._send(Publish(PublisherRun("client", 1, number + 1, (data,))))

    def record(self, message: int, method: str, *arguments: Any) -> None:
        """Handle what the node sends."""
        if method == "data":
            self.acknowledged += sum(isinstance(one, PublishAck) for one in self._decoder.feed(arguments[0]))


def record_cluster(events: int, size: int, members: int) -> dict[str, Recording]:
    """Record the leader and a follower of a cluster, one event every :data:`PERIOD` from one client."""
    network = Network(START)
    places: list[Address] = [(f"10.0.1.{index}", 7_878) for index in range(members)]
    makers: list[Make] = [partial(make_member, index, places) for index in range(members)]
    for place, make in zip(places, makers, strict=True):
        network.hosts[place] = make(network.clock, lambda effect, place=place: network.carry_out(place, effect))
    while not _works(network, places):
        network.run(PERIOD)
        if network.clock.seconds() > START + 60:
            raise RuntimeError("the cluster does not work")
    leader = next(index for index, place in enumerate(places) if _node(network, place).components.raft.is_leader)
    client = Publishing(network, places[leader])
    for number in range(events):
        network.message = number
        client.publish(number, number.to_bytes(8, "big").ljust(size, b"."))
        network.run(PERIOD)
    network.message = events
    network.run(SETTLED)
    if client.acknowledged != events:
        raise RuntimeError(f"{client.acknowledged} of {events} events were acknowledged")
    follower = (leader + 1) % members
    return {
        f"{role}, {members} nodes": Recording(
            makers[index], network.hosts[places[index]].inputs, events, network.hosts[places[index]].events
        )
        for role, index in (("leader", leader), ("follower", follower))
    }


def _node(network: Network, place: Address) -> Any:
    return network.hosts[place].node


def _works(network: Network, places: list[Address]) -> bool:
    states = [_node(network, place).state(network.clock.seconds()) for place in places]
    return all(
        node.mode is Mode.WRK and state.leader is not None and sum(one.alive for one in state.members) == len(places)
        for node, state in zip((_node(network, place) for place in places), states, strict=True)
    )
