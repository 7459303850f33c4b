"""Observers of a simulated network, such as invariants, traces and statistics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic, NamedTuple, ParamSpec, Protocol

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host


class SimPacket(NamedTuple):
    """Datagram or stream message in transit."""

    number: int
    """Number of the packet in the run."""
    source: Host
    to: Address
    data: Any
    """Bytes, or the message object on a stream without a codec."""
    sent_at: float
    """True time, UTC seconds."""
    damaged: bool = False
    """Whether :attr:`data` was corrupted in transit."""
    truncated: bool = False
    """Whether the datagram was truncated and is reported to the node as such."""
    group: Address | None = None
    """Multicast group that a datagram was sent to; ``to`` is then the member that this copy goes to."""


class BegunFault(Protocol):
    """Fault of the schedule as seen by observers. Its ``str()`` is its line in the schedule."""

    @property
    def at(self) -> float:
        """Start of the fault, in seconds after the start of the run."""

    @property
    def duration(self) -> float:
        """Duration in seconds."""

    @property
    def ends_at(self) -> float:
        """End of the fault, in seconds after the start of the run."""

    def host_names(self) -> tuple[str, ...]:
        """Return the names of the affected hosts."""


class Observer:
    """Base class of observers.

    Each method is called at the moment of its event. The network skips methods that a subclass does not override, so
    unused methods cost nothing. An exception of an observer ends the run.

    :cvar sent_kinds: first bytes of the datagrams for which :meth:`sent` is called; ``None`` for every packet.
    :cvar arrived_kinds: first bytes of the datagrams, as received, for which :meth:`arrived` is called; ``None`` for
        every packet.
    """

    sent_kinds: ClassVar[Collection[int] | None] = None
    arrived_kinds: ClassVar[Collection[int] | None] = None

    def sent(self, packet: SimPacket) -> None:
        """Handle a packet that a host sent, before the network processes it."""

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """Handle a packet just before its delivery to the node of ``host``. A duplicate arrives twice.

        ``packet.data`` is what the node receives. For a datagram it may differ from what was sent: see
        :attr:`SimPacket.damaged` and :attr:`SimPacket.truncated`.
        """

    def dropped(self, packet: SimPacket, reason: str) -> None:
        """Handle the loss of a packet, or of one copy of a duplicated datagram."""

    def event_emitted(self, host: Host, event: Any) -> None:
        """Handle an event that a node emitted to its application."""

    def persisted(self, host: Host, state: Any) -> None:
        """Handle state that a node made durable."""

    def operation_performed(self, host: Host, operation: str) -> None:
        """Handle an operation of the workload on a node."""

    def started(self, host: Host) -> None:
        """Handle the start of a new node on a host."""

    def stopped(self, host: Host, description: str) -> None:
        """Handle a crash of a host, or a failed start of its node. ``description`` is for people."""

    def paused(self, host: Host) -> None:
        """Handle the pause of a host."""

    def resumed(self, host: Host) -> None:
        """Handle the end of a pause."""

    def connection_changed(self, host: Host, to: Address, change: str) -> None:
        """Handle a change of a stream connection of ``host``."""

    def fault_began(self, fault: BegunFault) -> None:
        """Handle the start of a scheduled fault."""


Packet = ParamSpec("Packet")


class PacketObservers(Generic[Packet]):
    """Observers of packets, each of every packet or of datagrams with certain first bytes."""

    __slots__ = ("_by_kind", "_observers")

    def __init__(self) -> None:
        self._observers: list[tuple[Callable[Packet, None], Collection[int] | None]] = []
        self._by_kind: dict[int | None, list[Callable[Packet, None]]] = {}

    def __len__(self) -> int:
        return len(self._observers)

    def append(self, observe: Callable[Packet, None], kinds: Collection[int] | None = None) -> None:
        """Add an observer of datagrams whose first byte is in ``kinds``, or of every packet."""
        self._observers.append((observe, kinds))
        self._by_kind.clear()

    def of(self, data: Any) -> list[Callable[Packet, None]]:
        """Return the observers of a packet with ``data``, in the order in which they were added."""
        kind = data[0] if data and type(data) is bytes else None
        found = self._by_kind.get(kind)
        if found is None:
            found = [observe for observe, kinds in self._observers if kinds is None or kind in kinds]
            self._by_kind[kind] = found
        return found


class Observers:
    """For each method of :class:`Observer`, the bound methods of the observers that override it."""

    def __init__(self) -> None:
        self.all: list[Observer] = []
        self.sent = PacketObservers[[SimPacket]]()
        self.arrived = PacketObservers[[SimPacket, Host]]()
        self.dropped: list[Callable[[SimPacket, str], None]] = []
        self.event_emitted: list[Callable[[Host, Any], None]] = []
        self.persisted: list[Callable[[Host, Any], None]] = []
        self.operation_performed: list[Callable[[Host, str], None]] = []
        self.started: list[Callable[[Host], None]] = []
        self.stopped: list[Callable[[Host, str], None]] = []
        self.paused: list[Callable[[Host], None]] = []
        self.resumed: list[Callable[[Host], None]] = []
        self.connection_changed: list[Callable[[Host, Address, str], None]] = []
        self.fault_began: list[Callable[[BegunFault], None]] = []

    def add(self, observer: Observer) -> None:
        """Add an observer."""
        self.all.append(observer)
        for name, watching in vars(self).items():
            if name == "all" or getattr(type(observer), name) is getattr(Observer, name):
                continue
            if isinstance(watching, PacketObservers):
                watching.append(getattr(observer, name), getattr(observer, f"{name}_kinds"))
            else:
                watching.append(getattr(observer, name))
