"""Watching a simulated network: what an invariant, a trace or a statistic is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host


class SimPacket(NamedTuple):
    """A datagram, or a message on a stream, on its way."""

    number: int
    """Counts everything that is sent in a run."""
    source: Host
    to: Address
    data: Any
    """Bytes; on a stream that carries objects, the message."""
    sent_at: float
    """True time, UTC seconds."""
    damaged: bool = False
    """Whether :attr:`data` arrived with other bytes than it left with."""
    truncated: bool = False
    """Whether its end was cut off, and the node is told so."""


class BegunFault(Protocol):
    """A fault of the schedule as observers see it. Its text is the line that describes it."""

    @property
    def at(self) -> float:
        """When it begins, in seconds after the start."""

    @property
    def duration(self) -> float:
        """Seconds that it lasts."""

    @property
    def ends_at(self) -> float:
        """When it is over, in seconds after the start."""

    def host_names(self) -> tuple[str, ...]:
        """Return the names of the hosts that it concerns."""


class Observer:
    """Base of whatever watches a network. Each method is called as the thing happens; the network skips those that a
    subclass does not override, so watching costs what it looks at.

    What an observer raises ends the run.
    """

    def sent(self, packet: SimPacket) -> None:
        """A host sent something; nothing has happened to it yet."""

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """Something is handed to the node of ``host``, which has not seen it yet. A duplicate arrives twice.

        ``packet.data`` is what the node gets, which for a datagram can be bytes that no node sent: see
        :attr:`SimPacket.damaged` and :attr:`SimPacket.truncated`.
        """

    def dropped(self, packet: SimPacket, reason: str) -> None:
        """Something will not arrive; of a duplicated datagram, one copy."""

    def event_emitted(self, host: Host, event: Any) -> None:
        """A node told its application something."""

    def persisted(self, host: Host, state: Any) -> None:
        """A node made something durable."""

    def operation_performed(self, host: Host, operation: str) -> None:
        """The workload made a node do something."""

    def started(self, host: Host) -> None:
        """A host runs a new node."""

    def stopped(self, host: Host, description: str) -> None:
        """A host crashed, or its node could not start; ``description`` is for reading."""

    def paused(self, host: Host) -> None:
        """A host stands still."""

    def resumed(self, host: Host) -> None:
        """A host goes on."""

    def connection_changed(self, host: Host, to: Address, change: str) -> None:
        """Something happened to a stream connection of ``host``."""

    def fault_began(self, fault: BegunFault) -> None:
        """A fault of the schedule begins."""


class Observers:
    """Who watches what: for each method of :class:`Observer`, those that override it."""

    def __init__(self) -> None:
        self.all: list[Observer] = []
        self.sent: list[Callable[[SimPacket], None]] = []
        self.arrived: list[Callable[[SimPacket, Host], None]] = []
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
        """Let ``observer`` watch from now on."""
        self.all.append(observer)
        for name, watching in vars(self).items():
            if name != "all" and getattr(type(observer), name) is not getattr(Observer, name):
                watching.append(getattr(observer, name))
