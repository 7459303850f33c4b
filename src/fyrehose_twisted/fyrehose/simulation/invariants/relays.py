"""Invariants of relays: the bytes of the backbone, and no losses, because the backbone holds every message."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MAX_GAPS
from fyrehose_twisted.fyrehose.node.relay.passed_requests import MAX_RANGES
from fyrehose_twisted.fyrehose.node.relay.push_returns import MAX_BYTES, MAX_PUSHES
from fyrehose_twisted.fyrehose.node.relay.relay import Relay
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    DELIVER_KINDS,
    ClientInvariant,
    OneMessagePerNumber,
    Participants,
    parse_deliver,
)
from fyrehose_twisted.fyrehose.simulation.invariants.memory import Usage, backbone_usage
from fyrehose_twisted.fyrehose.simulation.invariants.repair import parse_range
from fyrehose_twisted.fyrehose.simulation.relay_hosts import RelayHost
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Forward, PacketType
from fyrehose_twisted.sim.faults.faults import CrashFault, PauseFault
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import SimPacket


class SameNumbersEverywhere(OneMessagePerNumber):
    """As with one backbone, and each DELIVER of a relay has the number and the content of one of the backbone."""

    def __init__(self, participants: Participants, relays: Sequence[RelayHost]) -> None:
        super().__init__(participants)
        self._relays = {relay.host for relay in relays}

    def deliver_sent(self, source: Host, sequence: int, data: bytes) -> None:
        """See :class:`~fyrehose_twisted.fyrehose.simulation.invariants.delivery.NumbersDurableFirst`."""
        super().deliver_sent(source, sequence, data)
        known = self.truth.get(sequence)
        if source in self._relays and known != data:
            problem = "which the backbone never sent" if known is None else f"with {data!r} instead of {known!r}"
            self.violated(f"DELIVER {sequence} was relayed {problem}", source)


class NothingLostInTree(ClientInvariant):
    """No client reports a loss, whichever relays die: the backbone lives, and holds every message.

    Losses are excused whose repairs the network has dropped again and again, and those of clients of the first dialect,
    whom nobody can tell that a relay still searches.
    """

    name: ClassVar[str] = "nothing is lost while the backbone lives"
    EXCUSING_DROPS: ClassVar[int] = 5
    WITHIN: ClassVar[float] = 15.0
    """Number of dropped packets about a number within so many seconds that excuse its loss."""

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._dropped: deque[tuple[float, int, int]] = deque()

    def dropped(self, packet: SimPacket, reason: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        kind = packet.data[0] if packet.data else 0
        if kind in DELIVER_KINDS:
            sequence = parse_deliver(packet.data)[0]
            self._dropped.append((self.network.now, sequence, sequence))
        elif kind == PacketType.REQUEST:
            self._dropped.append((self.network.now, *parse_range(packet.data)))
        while self._dropped and self._dropped[0][0] < self.network.now - self.WITHIN:
            self._dropped.popleft()

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesLost) or self.by_host[host].config.dialect is Dialect.V1:
            return
        since = self.network.now - self.WITHIN
        for sequence in range(event.first, event.last + 1):
            drops = sum(at >= since and first <= sequence <= last for at, first, last in self._dropped)
            if drops < self.EXCUSING_DROPS:
                self.violated(f"{sequence} reported as lost after {drops} drops", host)


class OneParentDelivers(ClientInvariant):
    """A client with several parents is served by one of them, but for the time in which it chooses or changes it.

    Clients of the first dialect are excepted, which cannot end a subscription. So are repairs for which a FORWARD asked
    a relay, because it may be forged.
    """

    name: ClassVar[str] = "one parent delivers"
    REPAIR_TIME: ClassVar[float] = 2.0
    """Seconds within which a FORWARD is answered."""
    SETTLING_TIME: ClassVar[float] = 12.0
    """Seconds after a disturbance until which two may deliver: the silence of the former parent, and its memory."""

    arrived_kinds = (PacketType.FORWARD, *DELIVER_KINDS)

    def __init__(self, participants: Participants, relays: Sequence[RelayHost]) -> None:
        super().__init__(participants)
        self._relays = {relay.host for relay in relays}
        self._heard: dict[Host, dict[Host, float]] = {}
        self._asked: dict[tuple[Host, Address], float] = {}
        self._quiet_since = 0.0

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        now = self.network.now
        if packet.data[0] == PacketType.FORWARD:
            forward = decode(packet.data)
            assert isinstance(forward, Forward), "its type says so"
            self._asked[host, forward.address] = now
            return
        since_asked = now - self._asked.get((packet.source, host.address), -inf)
        if packet.source in self._relays and host in self.by_host and since_asked > self.REPAIR_TIME:
            self._heard.setdefault(host, {})[packet.source] = now

    def fault_began(self, fault: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._quiet_since = max(self._quiet_since, self.network.now + fault.duration)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        since = self._quiet_since + self.SETTLING_TIME
        for host, heard in self._heard.items():
            latest = sorted(at for at in heard.values() if at > since)
            if len(latest) > 1 and self.by_host[host].config.dialect is not Dialect.V1:
                self.violated(f"{len(latest)} parents deliver", host)


class SilentParentReplaced(ClientInvariant):
    """Who has several parents is not left with one that does not reach the backbone while another one does."""

    name: ClassVar[str] = "a silent parent is replaced"
    PATIENCE: ClassVar[float] = 16.0
    """Seconds for a relay and its clients to notice, one after the other at three levels, and to take another one."""

    def __init__(self, participants: Participants, relays: Sequence[RelayHost]) -> None:
        super().__init__(participants)
        self._backbone = participants.backbone.host
        self._relays = {relay.address: relay for relay in relays}
        self._quiet_since = 0.0
        self._reaches_since: dict[Host, float] = {}
        self._astray_since: dict[Host, float] = {}

    def fault_began(self, fault: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`. Where links are bad, nobody can tell who is silent."""
        if not isinstance(fault, CrashFault | PauseFault):
            self._quiet_since = max(self._quiet_since, self.network.now + fault.duration)

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        now = self.network.now
        for relay in self._relays.values():
            if self._reaches_backbone(relay.host):
                self._reaches_since.setdefault(relay.host, now)
            else:
                self._reaches_since.pop(relay.host, None)
        for relay in self._relays.values():
            self._check(relay.host, relay.node.upstream if relay.host.running else None, relay.parents)
        for one in self.participants.clients:
            self._check(one.host, one.application.client if one.is_live else None, one.backbones)

    def _check(self, host: Host, client: Client | None, parents: Sequence[Address]) -> None:
        if client is None or self._is_well(client):
            self._astray_since.pop(host, None)
            return
        now = self.network.now
        since = max(self._astray_since.setdefault(host, now), self._quiet_since)
        others = [self._relays[parent].host for parent in parents if parent in self._relays]
        if any(now - max(self._reaches_since.get(other, now), since) > self.PATIENCE for other in others):
            self.violated("no parent that reaches the backbone is followed, although there is one", host)

    def _is_well(self, client: Client) -> bool:
        if not client.keepalive.connected:
            return False
        relay = self._relays.get(client.backbone)
        return relay is None or relay.host in self._reaches_since

    def _reaches_backbone(self, host: Host) -> bool:
        """Return whether a relay runs, and so do all that it follows, up to the backbone."""
        if not host.running:
            return False
        client = self._relays[host.address].node.upstream
        relay = self._relays.get(client.backbone)
        above = self._backbone.running if relay is None else self._reaches_backbone(relay.host)
        return client.keepalive.connected and above


class RelayMemoryBounded(ClientInvariant):
    """What clients and parents can make grow in a relay stays within its limit."""

    name: ClassVar[str] = "memory of relays is bounded"

    def __init__(self, participants: Participants, relays: Sequence[RelayHost]) -> None:
        super().__init__(participants)
        self._relays = relays

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for relay in self._relays:
            if relay.host.up:
                for resource, used, limit in relay_usage(relay.node):
                    if used > limit:
                        self.violated(f"{resource}: {used:,} in use, the limit is {limit:,}", relay.host)


def relay_usage(relay: Relay) -> Iterator[Usage]:
    """Yield the resource usage of a relay."""
    downstream = relay.downstream
    yield from backbone_usage(downstream)
    returns = downstream._relay_delivery.returns
    yield "bytes behind gaps", downstream.history.ahead_size, downstream.config.retransmit
    yield "numbers without a message", len(downstream.history._absent), MAX_GAPS
    yield "ranges that clients wait for", len(downstream._repairs.requests), 2 * MAX_RANGES
    yield "publishers that wait", len(returns), MAX_PUSHES
    yield "bytes of PUSHes", returns._size, MAX_BYTES
