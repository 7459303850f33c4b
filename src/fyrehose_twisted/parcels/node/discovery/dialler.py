"""Dialling of known nodes, with retries."""

from __future__ import annotations

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.node.discovery.admission import NeighbourAdmission
from fyrehose_twisted.parcels.node.discovery.dial_target import HEARSAY_ATTEMPTS, DialResult, DialState, DialTarget
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.local_node import LocalNode
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState
from fyrehose_twisted.parcels.node.output import NodeOutput

REPLY_TIMEOUT = 3.0
"""Seconds within which a dialled peer has to reply."""
DOCUMENT_POLL_INTERVAL = 1.5
"""Seconds between DscReqs to a peer that supports only document 004."""


class Dialler:
    """Attempts of one node to reach the addresses that it knows."""

    def __init__(
        self,
        local: LocalNode,
        state: ClusterState,
        links: LinkTable,
        neighbours: Neighbours,
        admission: NeighbourAdmission,
        output: NodeOutput,
    ) -> None:
        self._local = local
        self._state = state
        self._links = links
        self._neighbours = neighbours
        self._admission = admission
        self._output = output

    def tick(self, now: float) -> None:
        """Dial the addresses that are due, and give up attempts that took too long."""
        for target in list(self._links.targets.values()):
            if target.next_at > now or target.state is DialState.READY:
                continue
            if target.state is DialState.IDLE:
                target.state = DialState.DIALLING
                target.next_at = now + 4 * REPLY_TIMEOUT
                self._output.dial(target.address)
            elif target.state is DialState.DIALLING:
                self._attempt_failed(target, "cannot be reached: no answer", now)
            else:
                if target.peer is not None:
                    self._links.close(target.peer)
                self._attempt_failed(target, "does not answer", now)

    def connected(self, peer: Peer, now: float) -> None:
        """Process an opened connection."""
        target = self._links.targets.get(peer.address)
        if target is None or target.state is not DialState.DIALLING:
            # The reference implementation crashes on a connection that closes without data.
            self._output.write(peer, self._local.discovery_request())
            self._links.close(peer)
            return
        self._links.target_connected(target, peer)
        target.next_at = now + REPLY_TIMEOUT
        local = self._local
        self._output.write(peer, local.sequence_request() if target.queries_sequence else local.discovery_request())

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Process a failed connection attempt."""
        target = self._links.targets.get(address)
        if target is None or target.state is not DialState.DIALLING:
            return
        if reason == "refused":
            target.result = DialResult.CONNECTION_REFUSED
        self._attempt_failed(target, f"cannot be reached at {format_address(address)}: {reason}", now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """Process the end of a connection."""
        target = self._links.target_disconnected(peer)
        if target is None:
            return
        if target.state is DialState.READY:
            self._links.release(target, now, immediately=True)
        elif target.state is DialState.DISCOVERING and target.queries_sequence:
            # The reference implementation closes the connection on a SeqReq, so that counts as an answer.
            target.queries_sequence = False
            self._links.release(target, now, immediately=False)
            target.next_at = now + DOCUMENT_POLL_INTERVAL
        else:
            self._attempt_failed(target, f"closed the connection: {reason}", now)

    def _attempt_failed(self, target: DialTarget, reason: str, now: float) -> None:
        target.attempts += 1
        target.queries_sequence = False
        self._links.release(target, now, immediately=False)
        known = self._neighbours.get(target.name) if target.name else None
        if known is None or known.info.host != target.address or known.member in self._links.ready_targets:
            pass
        elif known.member is not None or target.result is DialResult.CONNECTION_REFUSED:
            self._admission.remove(known, reason, now)
        if (
            not target.configured
            and target.attempts >= HEARSAY_ATTEMPTS
            and not self._state.is_member_address(target.address)
        ):
            del self._links.targets[target.address]
