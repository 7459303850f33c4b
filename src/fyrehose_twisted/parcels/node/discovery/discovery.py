"""Discovery of nodes, handshakes and heartbeats (document 004, "Discovery phase" and "Work phase").

A node dials every known node and sends its requests on the connections that it dialled. Replies return on the same
connection. Each starts with the DscReq of document 004. A peer of this implementation then gets a Hello, and the
connection stays open. Other peers are polled, with one parcel per connection.
"""

from __future__ import annotations

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.parcels.node.discovery.admission import NeighbourAdmission
from fyrehose_twisted.parcels.node.discovery.dial_target import DialState
from fyrehose_twisted.parcels.node.discovery.dialler import Dialler
from fyrehose_twisted.parcels.node.discovery.heartbeats import Heartbeats
from fyrehose_twisted.parcels.node.discovery.inbound import InboundHandshake
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.outbound import OutboundHandshake
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.peer_faults import PeerFaults


class Discovery:
    """Connections of one node from dialling to the end of the handshake, and their liveness.

    :ivar inbound: handshake with the peers that dialled this node.
    :ivar outbound: handshake with the peers that this node dialled.
    :ivar heartbeats: heartbeats to the connected nodes.
    """

    def __init__(
        self,
        modes: ModeMachine,
        links: LinkTable,
        inbound: InboundHandshake,
        outbound: OutboundHandshake,
        dialler: Dialler,
        admission: NeighbourAdmission,
        heartbeats: Heartbeats,
        faults: PeerFaults,
    ) -> None:
        self.inbound = inbound
        self.outbound = outbound
        self.heartbeats = heartbeats
        self._modes = modes
        self._links = links
        self._dialler = dialler
        self._admission = admission
        self._faults = faults

    def next_deadline(self) -> float:
        """Return the time at which :meth:`tick` is due."""
        deadline = self.heartbeats.due_at
        if self._modes.is_final:
            return deadline
        for target in self._links.targets.values():
            if target.state is not DialState.READY and target.next_at < deadline:
                deadline = target.next_at
        return deadline

    def connected(self, peer: Peer, now: float) -> None:
        """Process an opened connection."""
        if peer.dialled:
            self._dialler.connected(peer, now)
        else:
            self.inbound.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Process a failed connection attempt."""
        self._dialler.dial_failed(address, reason, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """Process the end of a connection."""
        if peer.dialled:
            self._dialler.disconnected(peer, reason, now)
        else:
            self._links.inbound.pop(peer.number, None)

    def tick(self, now: float) -> None:
        """Carry out what is due at ``now``."""
        if self.heartbeats.tick(now):
            self._faults.tick(now)
            self._admission.remove_timed_out(now)
            self.inbound.close_idle(now)
        if not self._modes.is_final:
            self._dialler.tick(now)
