"""Invariants of multicast."""

from __future__ import annotations

from typing import ClassVar

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.multicast.gathering import GROUP_PAUSE
from fyrehose_twisted.fyrehose.node.multicast.listening import SILENCE
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import (
    DELIVER_KINDS,
    ClientInvariant,
    FyrehoseInvariant,
    Participants,
)
from fyrehose_twisted.fyrehose.simulation.member_hosts import Group
from fyrehose_twisted.fyrehose.simulation.participants import Participant
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import SimPacket

AGREEMENT_TIME = 2 * SILENCE
"""Seconds in which both sides notice that the group has come or gone."""


class ListenersAgreed(FyrehoseInvariant):
    """The clients that hear the multicast group are those whom its datagrams reach, and the backbone serves them by the
    group, and all others one by one.

    :param always: whether that holds during the run, but for :data:`AGREEMENT_TIME` after a change, or only in the end.
    """

    name: ClassVar[str] = "listeners are agreed on"

    def __init__(self, participants: Participants, *, always: bool) -> None:
        super().__init__(participants)
        self._always = always
        self._wrong_since: dict[Host, float] = {}

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        now = self.network.now
        for one in self.participants.clients if self._always else ():
            problem = self._problem(one)
            if problem is None:
                self._wrong_since.pop(one.host, None)
            elif now > self._wrong_since.setdefault(one.host, now) + AGREEMENT_TIME:
                self.violated(f"{problem}, for {AGREEMENT_TIME:g} s", one.host)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        for one in self.participants.clients:
            problem = self._problem(one)
            if problem is not None:
                self.violated(problem, one.host)

    def _problem(self, one: Participant) -> str | None:
        if not one.is_live:
            return None
        hears, is_deaf = one.application.client.listening.hears, one.host.address in self.network.multicast.deaf
        if hears != (one.config.multicast and not is_deaf):
            return f"{one.name} {'believes to hear' if hears else 'does not hear'} the group"
        if self.participants.backbone.node._client_table.audience.hears(one.host.address) != hears:
            return f"the backbone has it wrong whether {one.name} hears the group"
        return None


class LeaderHeard(ClientInvariant):
    """In the end, the clients hear the multicast group of the backbone that leads, and it serves them by the group."""

    name: ClassVar[str] = "the group of the leader is heard"

    participants: Group

    def __init__(self, group: Group) -> None:
        super().__init__(group)

    def check(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        leader = self.participants.leader
        if leader is None:
            return  # Another invariant requires one.
        audience = leader.node.backbone._client_table.audience
        for one in self.participants.clients:
            if not (one.is_live and one.config.multicast):
                continue
            listening = one.application.client.listening
            if not listening.hears or listening.group != leader.config.multicast:
                self.violated(f"{one.name} does not hear the group of {leader.name}", one.host, leader.host)
            if not audience.hears(one.host.address):
                self.violated(f"{leader.name} does not know that {one.name} hears its group", one.host, leader.host)


class GroupRepairsBounded(FyrehoseInvariant):
    """A backbone sends a message to its multicast group once, and then repairs it there at most once within a time,
    however many clients ask for it."""

    name: ClassVar[str] = "repairs of a group are bounded"

    sent_kinds = DELIVER_KINDS

    def __init__(self, participants: Participants) -> None:
        super().__init__(participants)
        self._sent_at: dict[tuple[Address, bytes], list[float]] = {}

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if self.participants.is_backbone(host):
            self._sent_at.clear()  # It may have been about to send a message again.

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if packet.group is None:
            return
        times = self._sent_at.setdefault((packet.to, packet.data[: DATA_HEADER.size]), [])
        times.append(packet.sent_at)
        if len(times) > 2 and times[-1] - times[-2] < GROUP_PAUSE / 2:
            number = int.from_bytes(packet.data[3 : DATA_HEADER.size])
            self.violated(f"message {number} was sent to the group {len(times)} times", packet.source)
