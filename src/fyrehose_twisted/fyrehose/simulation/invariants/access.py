"""What nodes owe one another beside the stream itself: no number wasted, nothing forgotten, no stranger let in."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.events import Delivered
from fyrehose_twisted.fyrehose.node.backbone.sequencer import MINIMUM_RESERVE, Mark
from fyrehose_twisted.fyrehose.node.client.journal_store import JournalStore
from fyrehose_twisted.fyrehose.node.client.memory_store import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.stream_head import LEAP
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    STRANGER,
    Cast,
    FyrehoseInvariant,
    Numbers,
    delivered,
)
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import AGAIN, CONFIRM, PacketType, Push
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import Packet


class NoneWasted(FyrehoseInvariant):
    """The numbers that a backbone gives are continuous from its start to its end, and a power failure costs no more of
    them than were reserved."""

    name: ClassVar[str] = "no number is wasted"

    RESERVE: ClassVar[int] = MINIMUM_RESERVE
    """Numbers that may be durable and not given, at the rates of these scenarios."""

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self._began = 0
        self._previous: int | None = None

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.cast.backbone.host:
            self._began = self.cast.backbone.node.numbering.last
            self._previous = None

    def persisted(self, host: Host, what: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if isinstance(what, Mark) and what.bound - what.last > self.RESERVE:
            self.violated(f"numbers up to {what.bound:,} are reserved, and the last given is {what.last:,}", host)

    def arrived(self, packet: Packet, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host is self.cast.backbone.host and not self.cast.backbone.node._clients.subscribers:
            self._previous = None  # What is given while nobody is there is sent to nobody.

    def sent(self, packet: Packet) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source is not self.cast.backbone.host or packet.data[0] != PacketType.DELIVER:
            return
        sequence = delivered(packet.data)[0]
        if self._previous is not None and sequence > self._previous + 1:
            self.violated(f"{sequence} follows {self._previous}, and subscribers were there", packet.source)
        self._previous = max(sequence, self._previous or 0)

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        host = self.cast.backbone.host
        if not host.up:
            return
        node = self.cast.backbone.node
        given = node.numbering.last - self._began
        if given != node.counters.published:
            self.violated(f"{given} numbers given since the start to {node.counters.published} messages", host)


class ToldAsSeen(FyrehoseInvariant):
    """A publisher that subscribes is told the lowest number under which its message stands, for that is the one under
    which subscribers see it. It cannot know of a number that it was told is lost, nor of one of a PUSH that it
    sent once and the network doubled."""

    name: ClassVar[str] = "the number that is told is the number that is seen"

    def __init__(self, cast: Cast, content: Numbers) -> None:
        super().__init__(cast)
        self._content = content
        self._pushes: Counter[bytes] = Counter()

    def sent(self, packet: Packet) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source in self.by_host and packet.data[0] & ~(CONFIRM | AGAIN) == PacketType.PUSH:
            push = decode(packet.data)
            if isinstance(push, Push):
                self._pushes[push.data] += 1

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        lowest: dict[bytes, int] = {}
        for sequence, data in sorted(self._content.truth.items()):
            lowest.setdefault(data, sequence)
        for one in self.cast.participants:
            if not one.config.subscribe or one.config.raw or one.config.outbox.raw:
                continue
            for application in one.applications:
                for ticket, told in application.published.items():
                    data = application.sent_as(ticket)
                    seen = lowest.get(data, told)
                    excused = application.first is None or seen < application.first or seen in application.lost
                    if seen < told and not excused and self._pushes[data] > 1:
                        what = f"message {ticket} is told to be {told}, and subscribers see it as {seen}"
                        self.violated(what, one.host)


class Kept(FyrehoseInvariant):
    """A journal holds what its application was handed, repairs like all else, for as long as it has room."""

    name: ClassVar[str] = "journals keep what they got"

    def __init__(self, cast: Cast, content: Numbers) -> None:
        super().__init__(cast)
        self._content = content

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        needed = sum(len(data) + MESSAGE_OVERHEAD for data in self._content.truth.values())
        for one in self.cast.participants:
            application = one.application
            history = application.history
            room = history.damages == 0 if isinstance(history, JournalStore) else needed <= history.limit
            if not (one.live and one.config.journal and room):
                continue
            for first, last in application.handed:
                held = history.lowest(first, last, last - first + 1)
                if len(held) <= last - first:
                    lacking = min(set(range(first, last + 1)).difference(held))
                    self.violated(f"{lacking} was handed over, is not held, and there was room for it", one.host)


class Begins(FyrehoseInvariant):
    """A subscriber that looks for its first message begins with the lowest that came and that others near it confirm:
    of all, if it wants the oldest, or of those from the backbone."""

    name: ClassVar[str] = "the beginning is the lowest number"

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self._came: dict[Host, list[int]] = {}

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._came[host] = []

    def arrived(self, packet: Packet, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        one = self.by_host.get(host)
        if one is None or not packet.data or packet.data[0] != PacketType.DELIVER or packet.source.name == STRANGER:
            return
        wanted = packet.source is self.cast.backbone.host or one.application.client.config.start is Start.OLDEST
        if wanted and one.application.client.next_sequence is None and not (packet.damaged or packet.truncated):
            self._came[host].append(delivered(packet.data)[0])

    def told(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        application = self.by_host[host].application if host in self.by_host else None
        if application is None or application.first is not None or not isinstance(event, Delivered):
            return
        if application.client.drops.counts["buffer_full"]:
            return  # There was no room for all that came.
        came, first = self._came[host], event.messages[0].sequence
        for number in came:
            near = any(0 < abs(other - number) <= LEAP for other in came)
            if number < first and (near or number <= LEAP):
                self.violated(f"the first that is handed over is {first}, and {number} had come", host)


class Admitted(FyrehoseInvariant):
    """Who does not know the secret is not served, and nothing that it pushes gets a number."""

    name: ClassVar[str] = "strangers are not served"

    def __init__(self, cast: Cast) -> None:
        super().__init__(cast)
        self._pushed: set[bytes] = set()

    def arrived(self, packet: Packet, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source.name == STRANGER and packet.data and packet.data[0] & ~(CONFIRM | AGAIN) == PacketType.PUSH:
            self._pushed.add(packet.data[-20:])

    def sent(self, packet: Packet) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.source is not self.cast.backbone.host:
            return
        receiver = self.network.hosts.get(packet.to)
        if receiver is not None and receiver.name == STRANGER:
            self.violated(f"{packet.data[:40]!r} is sent to a stranger", packet.source, receiver)
        if packet.data[0] == PacketType.DELIVER and packet.data[-20:] in self._pushed:
            self.violated(f"a stranger pushed {packet.data[-20:]!r}, and it is given a number", packet.source)
