"""In-memory network of a few nodes and scripted peers, on a clock that jumps between deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from suite.stepped_network import DELAY, SteppedEnd, SteppedHost, SteppedNetwork, SteppedOwner

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.persistent_state import PersistentState, StateChange
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Message, Parcel, ParcelType, node_id

PORT = 7_878


class End(SteppedEnd):
    """One end of a connection, owned by a node or by a scripted peer.

    :ivar raw: all bytes received.
    """

    def __init__(self, net: Net, owner: SteppedOwner, peer: Peer) -> None:
        super().__init__(net, owner, peer)
        self.decoder = ParcelCodec().decoder()
        self.raw = bytearray()

    def send(self, *messages: Message) -> None:
        """Send encoded messages."""
        self.send_bytes(b"".join(ParcelCodec(1).encode(message) for message in messages))

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        if data and self.open:
            self.net.later(DELAY, lambda: self.other.arrive(data))

    def arrive(self, data: bytes) -> None:
        """Handle bytes from the other end."""
        if self.open:
            self.raw += data
        super().arrive(data)

    def take(self) -> list[Message]:
        """Return messages received since the last call."""
        taken, self.received = self.received, []
        return taken


class ScriptedPeer:
    """Peer that a test scripts. By default it only records messages."""

    def __init__(self, net: Net, answer: Callable[[End, Message], None] | None = None) -> None:
        self.net = net
        self.answer = answer
        self.accepted: list[End] = []
        self.garbage: list[str] = []

    def arrived(self, end: End, data: bytes) -> None:
        """Record bytes and answer them."""
        try:
            messages = end.decoder.feed(data)
        except RemoteError as error:
            self.garbage.append(str(error))
            return
        for message in messages:
            end.received.append(message)
            if self.answer is not None:
                self.answer(end, message)

    def ended(self, end: End) -> None:
        """Handle the close of the other end."""

    @property
    def said(self) -> list[Message]:
        """Return all messages received on accepted connections."""
        return [message for end in self.accepted for message in end.received]


class Host(SteppedHost[End]):
    """A node under test with its events and connections."""

    def __init__(self, net: Net, node: ClusterNode, address: Address) -> None:
        super().__init__(net, node, address)
        self.persistent_state: PersistentState | None = None
        self.codec = ParcelCodec(node_id(node.config.name))
        self.wrote: list[tuple[float, Peer, Message]] = []

    def arrived(self, end: End, data: bytes) -> None:
        """Pass bytes to the node."""
        if not self.up:
            return
        try:
            messages = end.decoder.feed(data)
        except RemoteError:
            end.close()
            self.node.disconnected(end.peer, "garbage", self.net.now)
        else:
            for message in messages:
                self.node.receive(message, end.peer, self.net.now)
        self.flush()

    def persist(self, change: StateChange) -> None:
        """Add a change to the durable state of the node, if it has one."""
        if self.persistent_state is not None:
            self.persistent_state.persist(change)

    def write(self, peer: Peer, messages: Sequence[Message]) -> None:
        """Send messages of the node."""
        self.wrote.extend((self.net.now, peer, message) for message in messages)
        end = self.ends.get(peer.number)
        if end is not None:
            end.send_bytes(b"".join(map(self.codec.encode, messages)))

    def read(self) -> list[tuple[int, bytes]]:
        """Return sequence number and data of each event that the node holds."""
        node = self.node
        return [(event.sequence, event.data) for event in node.read(node.oldest, node.sequence, 100_000)]


class Net(SteppedNetwork[Host, End]):
    """A network that carries bytes between nodes and scripted peers.

    :ivar silent: addresses at which dials hang.
    """

    end_type = End

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[Address] = set()

    def address(self, number: int | Address) -> Address:
        """Return the listening address of a node number."""
        return (f"10.0.0.{number}", PORT) if isinstance(number, int) else number

    def node(
        self,
        name: str,
        number: int,
        neighbours: tuple[int | Address, ...] = (),
        *,
        seed: int | None = None,
        state: PersistentState | None = None,
        address: Address | None = None,
        application: IReplicatedState | None = None,
        **options: Any,
    ) -> Host:
        """Start a node."""
        address = self.address(number) if address is None else address
        config = NodeConfig(name, advertise=address, neighbours=tuple(map(self.address, neighbours)), **options)
        rng = Random(number if seed is None else seed)
        node = ClusterNode(config, rng, self.now, persistent_state=state, application=application)
        host = Host(self, node, address)
        host.persistent_state = state
        self.listening[address] = self.hosts[name] = host
        host.flush()
        return host

    def play(self, number: int | Address, answer: Callable[[End, Message], None] | None = None) -> ScriptedPeer:
        """Start a scripted peer at an address or node number."""
        peer = self.listening[self.address(number)] = ScriptedPeer(self, answer)
        return peer

    def document(self, number: int, reply: Parcel, sequence: int | None = None) -> ScriptedPeer:
        """Start a reference peer, which closes each connection after one parcel."""

        def answer(end: End, message: Message) -> None:
            assert isinstance(message, Parcel)
            if message.type is ParcelType.DSC_REQ:
                # The reference writes the head first, in a segment of its own.
                data = ParcelCodec().encode(reply)
                end.send_bytes(data[:1])
                end.send_bytes(data[1:])
            elif sequence is not None:
                end.send(Parcel(True, ParcelType.SEQ_RES, reply.id, sequence))
            end.close()

        return self.play(number, answer)

    def connect(self, host: Host, source: str = "10.0.0.99") -> End:
        """Connect a scripted peer to a node and return the peer's end."""
        ours, theirs = self.pair(ScriptedPeer(self), host, host.address, source)
        host.connected(theirs)
        return ours

    def dial(self, host: SteppedHost[End], address: Address) -> None:
        """Connect a node to an address."""
        if address not in self.silent:
            super().dial(host, address)
