"""Small hand-built networks of nodes and scripted peers, on a clock that jumps between deadlines and arrivals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.interfaces import ConcurrentPersist, Outputs

DELAY = 0.0005
"""Latency of the network in seconds."""

MAX_TURNS = 50
"""Ticks of a node at one time; one more counts as a busy loop."""


EventT = TypeVar("EventT")


class SteppedOwner(Protocol):
    """A node's host or a scripted peer, as a connection needs it."""

    def arrived(self, end: Any, data: Any) -> None:
        """Handle data from the other end."""

    def ended(self, end: Any) -> None:
        """Handle the close of the other end."""


class SteppedEnd:
    """One end of a connection, owned by a node or by a scripted peer.

    :ivar received: messages that a scripted peer has received.
    :ivar closed_by_peer: whether the other end closed first.
    """

    def __init__(self, net: SteppedNetwork[Any, Any], owner: SteppedOwner, peer: Peer) -> None:
        self.net = net
        self.owner = owner
        self.peer = peer
        self.other: SteppedEnd
        self.open = True
        self.received: list[Any] = []
        self.closed_by_peer = False

    def close(self) -> None:
        """Close this end after sent data has arrived."""
        if self.open:
            self.open = False
            self.net.later(DELAY, self.other.ended)

    def arrive(self, data: Any) -> None:
        """Handle data from the other end."""
        if self.open and not self.net.is_cut(self.owner, self.other.owner):
            self.owner.arrived(self, data)

    def ended(self) -> None:
        """Handle the close of the other end."""
        if self.open:
            self.open = False
            self.closed_by_peer = True
            self.owner.ended(self)


EndT = TypeVar("EndT", bound=SteppedEnd)


class SteppedHost(ABC, Generic[EndT]):
    """A node under test with its events and connections.

    :ivar dialled: time and address of each dial.
    :ivar up: whether the process runs.
    :ivar turns: ticks of the node at the present time.
    """

    def __init__(self, net: SteppedNetwork[Any, EndT], node: Any, address: Address) -> None:
        self.net = net
        self.node = node
        self.address = address
        self.events: list[Any] = []
        self.ends: dict[int, EndT] = {}
        self.dialled: list[tuple[float, Address]] = []
        self.outputs: list[Outputs] = []
        self.up = True
        self.turns = 0

    @abstractmethod
    def write(self, peer: Peer, messages: Sequence[Any]) -> None:
        """Send messages of the node."""

    @abstractmethod
    def persist(self, change: Any) -> None:
        """Store a durable change of the node."""

    def react(self, event: Any) -> None:
        """Play the application's part in an event."""

    def connected(self, end: EndT) -> None:
        """Tell the node that a connection opened."""
        self.ends[end.peer.number] = end
        self.node.connected(end.peer, self.net.now)
        self.flush()

    def ended(self, end: EndT) -> None:
        """Tell the node that a connection closed."""
        self.ends.pop(end.peer.number, None)
        if self.up:
            self.node.disconnected(end.peer, "closed", self.net.now)
            self.flush()

    def flush(self) -> None:
        """Carry out the outputs of the node until it has none left."""
        while self.up:
            outputs = self.node.drain()
            self.outputs.append(outputs)
            persist = outputs.persist
            if type(persist) is ConcurrentPersist:
                for effect in persist.effects:
                    self._carry_out(effect)
                persist = persist.state
            if persist is not None:
                self.persist(persist)
            for effect in outputs.effects:
                self._carry_out(effect)
            self.events.extend(outputs.events)
            for event in outputs.events:
                self.react(event)
            if not outputs.events:
                return

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, Dial):
            self.dialled.append((self.net.now, effect.address))
            self.net.dial(self, effect.address)
        elif isinstance(effect, Write):
            self.write(effect.peer, effect.messages)
        elif isinstance(effect, Close):
            end = self.ends.pop(effect.peer.number, None)
            if end is not None:
                end.close()

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Return the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]

    def call(self, method: str, *arguments: Any, **options: Any) -> None:
        """Call a method of the node with the current time and carry out its outputs."""
        getattr(self.node, method)(*arguments, self.net.now, **options)
        self.flush()

    def kill(self) -> None:
        """Kill the process: close its connections and its listener."""
        self.up = False
        self.net.listening.pop(self.address, None)
        for end in list(self.ends.values()):
            end.close()
        self.ends.clear()


HostT = TypeVar("HostT", bound=SteppedHost[Any])


class SteppedNetwork(Generic[HostT, EndT]):
    """Hosts by name, their listeners and connections, and calls scheduled on one clock.

    :cvar end_type: class of the ends of connections.
    :ivar listening: hosts and scripted peers by address.
    """

    end_type: type[EndT]

    def __init__(self) -> None:
        self.now = 1_000.0
        self.hosts: dict[str, HostT] = {}
        self.listening: dict[Address, Any] = {}
        self._numbers = count(1)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def is_cut(self, host: SteppedOwner, other: SteppedOwner) -> bool:
        """Return whether a partition separates two hosts."""
        return False

    def dial(self, host: SteppedHost[EndT], address: Address) -> None:
        """Connect a node to an address."""

        def open_it() -> None:
            target = self.listening.get(address)
            if not host.up:
                return
            is_host = isinstance(target, SteppedHost)
            if target is None or self.is_cut(host, target) or (is_host and not target.up):
                host.node.dial_failed(address, "refused", self.now)
                host.flush()
                return
            ours, theirs = self.pair(host, target, address, host.address[0])
            host.ends[ours.peer.number] = ours
            if is_host:
                target.connected(theirs)
            else:
                target.accepted.append(theirs)
            host.connected(ours)

        self.later(DELAY, open_it)

    def pair(self, dialler: SteppedOwner, target: SteppedOwner, address: Address, source: str) -> tuple[EndT, EndT]:
        """Return the ends of a new connection: the dialler's and the target's."""
        number = next(self._numbers)
        ours = self.end_type(self, dialler, Peer(address, 2 * number, True))
        theirs = self.end_type(self, target, Peer((source, 20_000 + number), 2 * number + 1, False))
        ours.other, theirs.other = theirs, ours
        return ours, theirs

    def later(self, delay: float, call: Callable[[], None]) -> None:
        """Schedule a call ``delay`` seconds from now."""
        heappush(self._queue, (self.now + delay, next(self._order), call))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Advance the clock.

        :param until: condition that ends the run early.
        :returns: whether the condition holds.
        """
        end = self.now + seconds
        while until is None or not until():
            at = min((_deadline(host.node) for host in self.hosts.values() if host.up), default=inf)
            if self._queue and self._queue[0][0] <= max(at, self.now):
                at = self._queue[0][0]
                if at > end:
                    break
                self.now = max(self.now, at)
                heappop(self._queue)[2]()
                continue
            if at > end:
                break
            self._tick(at)
        else:
            return True
        self.now = end
        return until is not None and until()

    def _tick(self, at: float) -> None:
        if at > self.now:
            self.now = at
            for host in self.hosts.values():
                host.turns = 0
        for name, host in self.hosts.items():
            if host.up and _deadline(host.node) <= self.now:
                host.turns += 1
                assert host.turns < MAX_TURNS, f"{name} asks for a tick without end"
                host.node.tick(self.now)
                host.flush()


def _deadline(node: Any) -> float:
    at = node.next_deadline()
    return inf if at is None else float(at)
