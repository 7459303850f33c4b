"""In-memory network of a few nodes and scripted peers, on a clock that jumps between deadlines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, TypeVar

from suite.stepped_network import DELAY, SteppedNetwork

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Message, Parcel, ParcelType, node_id

PORT = 7_878
Told = TypeVar("Told")


class End:
    """One end of a connection, owned by a node or by a test."""

    def __init__(self, wires: Wires, owner: Host | Actor, peer: Peer) -> None:
        self.wires = wires
        self.owner = owner
        self.peer = peer
        self.other: End
        self.open = True
        self.decoder = ParcelCodec().decoder()
        self.raw = bytearray()
        self.received: list[Message] = []
        self.hung_up = False

    def send(self, *messages: Message) -> None:
        """Send encoded messages."""
        self.send_bytes(b"".join(ParcelCodec(1).encode(message) for message in messages))

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        if data and self.open:
            self.wires.later(DELAY, lambda: self.other.arrive(data))

    def close(self) -> None:
        """Close the connection after sent data has arrived."""
        if self.open:
            self.open = False
            self.wires.later(DELAY, self.other.ended)

    def arrive(self, data: bytes) -> None:
        """Handle bytes from the other end."""
        if self.open:
            self.raw += data
            self.owner.arrived(self, data)

    def ended(self) -> None:
        """Handle the close of the other end."""
        if self.open:
            self.open = False
            self.hung_up = True
            self.owner.ended(self)

    def take(self) -> list[Message]:
        """Return messages received since the last call."""
        taken, self.received = self.received, []
        return taken


class Actor:
    """Peer that a test scripts. By default it only records messages."""

    def __init__(self, wires: Wires, answer: Callable[[End, Message], None] | None = None) -> None:
        self.wires = wires
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


class Host:
    """A node under test with its events and connections."""

    def __init__(self, wires: Wires, node: ClusterNode, address: Address) -> None:
        self.wires = wires
        self.node = node
        self.address = address
        self.told: list[Any] = []
        self.ends: dict[int, End] = {}
        self.dialled: list[tuple[float, Address]] = []
        self.promises: PersistentState | None = None
        self.up = True
        self.turns = 0
        self.codec = ParcelCodec(node_id(node.config.name))
        self.wrote: list[tuple[float, Peer, Message]] = []
        self.drained: list[Outputs] = []

    def arrived(self, end: End, data: bytes) -> None:
        """Pass bytes to the node."""
        if not self.up:
            return
        try:
            messages = end.decoder.feed(data)
        except RemoteError:
            end.close()
            self.node.disconnected(end.peer, "garbage", self.wires.now)
        else:
            for message in messages:
                self.node.receive(message, end.peer, self.wires.now)
        self.flush()

    def ended(self, end: End) -> None:
        """Tell the node that a connection closed."""
        self.ends.pop(end.peer.number, None)
        if self.up:
            self.node.disconnected(end.peer, "closed", self.wires.now)
            self.flush()

    def flush(self) -> None:
        """Carry out the outputs of the node until it has none left."""
        while self.up:
            drained = self.node.drain()
            self.drained.append(drained)
            if drained.persist is not None and self.promises is not None:
                self.promises.persist(drained.persist)
            for effect in drained.effects:
                self._carry_out(effect)
            self.told.extend(drained.events)
            if not drained.events:
                return

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, Dial):
            self.dialled.append((self.wires.now, effect.address))
            self.wires.dial(self, effect.address)
        elif isinstance(effect, Write):
            self.wrote.extend((self.wires.now, effect.peer, message) for message in effect.messages)
            end = self.ends.get(effect.peer.number)
            if end is not None:
                end.send_bytes(b"".join(map(self.codec.encode, effect.messages)))
        elif isinstance(effect, Close):
            end = self.ends.pop(effect.peer.number, None)
            if end is not None:
                end.close()

    def of(self, kind: type[Told]) -> list[Told]:
        """Return the events of one class."""
        return [one for one in self.told if isinstance(one, kind)]

    def tell(self, what: str, *arguments: Any) -> None:
        """Call a method of the node with the current time and carry out its outputs."""
        getattr(self.node, what)(*arguments, self.wires.now)
        self.flush()

    def kill(self) -> None:
        """Kill the process: reset its connections and close its listener."""
        self.up = False
        self.wires.listening.pop(self.address, None)
        for end in list(self.ends.values()):
            end.close()
        self.ends.clear()

    def read(self) -> list[tuple[int, bytes]]:
        """Return sequence number and data of each event that the node holds."""
        node = self.node
        return [(event.sequence, event.data) for event in node.read(node.oldest, node.sequence, 100_000)]


class Wires(SteppedNetwork[Host]):
    """A network that carries bytes between nodes and scripted peers."""

    def __init__(self) -> None:
        super().__init__()
        self.listening: dict[Address, Host | Actor] = {}
        self.silent: set[Address] = set()
        self._numbers = count(1)

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
        promises: PersistentState | None = None,
        address: Address | None = None,
        **options: Any,
    ) -> Host:
        """Start a node."""
        address = self.address(number) if address is None else address
        config = NodeConfig(name, advertise=address, neighbours=tuple(map(self.address, neighbours)), **options)
        node = ClusterNode(config, Random(number if seed is None else seed), self.now, persistent_state=promises)
        host = Host(self, node, address)
        host.promises = promises
        self.listening[address] = self.hosts[name] = host
        host.flush()
        return host

    def play(self, number: int | Address, answer: Callable[[End, Message], None] | None = None) -> Actor:
        """Start a scripted peer at an address or node number."""
        actor = self.listening[self.address(number)] = Actor(self, answer)
        return actor

    def document(self, number: int, reply: Parcel, sequence: int | None = None) -> Actor:
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

    def call(self, host: Host, source: str = "10.0.0.99") -> End:
        """Connect a test to a node and return the test's end."""
        actor = Actor(self)
        ours, theirs = self._pair(actor, host, host.address, source)
        host.ends[theirs.peer.number] = theirs
        host.node.connected(theirs.peer, self.now)
        host.flush()
        return ours

    def dial(self, host: Host, address: Address) -> None:
        """Connect a node to an address."""
        if address in self.silent:
            return

        def open_it() -> None:
            target = self.listening.get(address)
            if not host.up:
                return
            if target is None or (isinstance(target, Host) and not target.up):
                host.node.dial_failed(address, "refused", self.now)
                host.flush()
                return
            ours, theirs = self._pair(host, target, address, host.address[0])
            host.ends[ours.peer.number] = ours
            if isinstance(target, Host):
                target.ends[theirs.peer.number] = theirs
                target.node.connected(theirs.peer, self.now)
                target.flush()
            else:
                target.accepted.append(theirs)
            host.node.connected(ours.peer, self.now)
            host.flush()

        self.later(DELAY, open_it)

    def _pair(self, dialler: Host | Actor, target: Host | Actor, address: Address, source: str) -> tuple[End, End]:
        number = next(self._numbers)
        ours = End(self, dialler, Peer(address, 2 * number, True))
        theirs = End(self, target, Peer((source, 20_000 + number), 2 * number + 1, False))
        ours.other, theirs.other = theirs, ours
        return ours, theirs
