"""Invariants of networks with IPv4 and IPv6."""

from __future__ import annotations

from typing import ClassVar

from fyrehose_twisted.fyrehose.simulation.invariants.delivery import FyrehoseInvariant
from fyrehose_twisted.fyrehose.wire.packets import PacketType
from fyrehose_twisted.sim.observer import SimPacket


class IpVersionsRespected(FyrehoseInvariant):
    """No host is asked to send to a host that it cannot reach, and a client that has not told to which it can send
    receives only packets of the documents."""

    name: ClassVar[str] = "IP versions are respected"

    sent_kinds = (PacketType.FETCHED, PacketType.FORWARD6, PacketType.REQUEST6, PacketType.KEEPALIVE6)

    def sent(self, packet: SimPacket) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        receiver = self.network.host_at(packet.to)
        client = None if receiver is None else self.by_host.get(receiver)
        if client is not None and not client.config.ip_versions:
            kind = PacketType(packet.data[0]).name
            self.violated(f"{kind} was sent to {client.name}, which only knows those of the documents", client.host)

    def dropped(self, packet: SimPacket, reason: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if reason == "no route":
            self.violated(f"{packet.source.name} sent to {packet.to[0]}, which it cannot reach", packet.source)
