"""Handshake with the peers that this node dialled."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.node.discovery.admission import NeighbourAdmission
from fyrehose_twisted.parcels.node.discovery.dial_target import DIAL_BACKOFF, DialResult, DialState, DialTarget
from fyrehose_twisted.parcels.node.discovery.dialler import DOCUMENT_POLL_INTERVAL, REPLY_TIMEOUT
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.listener import MemberListener
from fyrehose_twisted.parcels.node.discovery.local_node import LocalNode
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.discovery.sequence_reports import SequenceReports
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.node.peer_faults import PeerFaults
from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.messages import (
    Hello,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
    Proof,
    Refused,
    Welcome,
    node_id,
)

ALIAS_RETRY_DELAY = 30.0
"""Seconds before redialling an address of a node that is already connected at another address."""


class OutboundHandshake:
    """Handshake of one node with the peers that it dialled."""

    def __init__(
        self,
        local: LocalNode,
        links: LinkTable,
        neighbours: Neighbours,
        admission: NeighbourAdmission,
        reports: SequenceReports,
        output: NodeOutput,
        faults: PeerFaults,
        listener: MemberListener,
        rng: Random,
    ) -> None:
        self._local = local
        self._links = links
        self._neighbours = neighbours
        self._admission = admission
        self._reports = reports
        self._output = output
        self._faults = faults
        self._listener = listener
        self._rng = rng

    # Parcels of document 004

    def parcel_received(self, parcel: Parcel, target: DialTarget, now: float) -> None:
        """Process a parcel of document 004."""
        sequence = parcel.body if parcel.type is ParcelType.SEQ_RES and isinstance(parcel.body, int) else None
        if target.state is DialState.READY and sequence is not None:
            self._reports.cluster_node_reported(sequence)
        elif target.state is DialState.DISCOVERING and target.queries_sequence:
            if sequence is not None:
                self._reports.document_peer_reported(sequence)
            self._close_document_peer(target, now)
        elif target.state is not DialState.DISCOVERING:
            self._faults.count("out-of-place")
        elif parcel.type is ParcelType.DSC_RES and parcel.neighbours is not None:
            self._discovery_answered(parcel.id, parcel.neighbours, target, now)
        else:
            text = parcel.data.decode(errors="replace")[:200]
            self._reject(target, text or f"it answers with a {parcel.type.value}", now)

    def _discovery_answered(self, sender: int, infos: Sequence[NodeInfo], target: DialTarget, now: float) -> None:
        other = next((one for one in reversed(infos) if one.id == sender), None)
        if other is None:
            # Document 004 does not require a node to list itself.
            other = NodeInfo(sender, Mode.WRK, format_address(target.address), target.address)
        if other.ours is not None and other.ours == self._local.extension:
            self._drop_own_address(target)
            return
        refusal = self._answer_refusal(other, now)
        if refusal is not None:
            self._reject(target, refusal, now)
            return
        target.attempts = 0
        target.name = other.name
        others = [one for one in infos if one is not other]
        if other.ours is None:
            self._document_peer_answered(other, others, target, now)
        else:
            self._send_hello(other, MemberId(other.name, other.ours.incarnation), others, target, now)

    def _drop_own_address(self, target: DialTarget) -> None:
        target.result = DialResult.SELF
        target.configured = False
        if target.peer is not None:
            self._links.close(target.peer)
        del self._links.targets[target.address]

    def _answer_refusal(self, other: NodeInfo, now: float) -> str | None:
        """Return why a node that answered a DscReq is refused, or ``None``."""
        if other.ours is not None and other.ours.cluster != self._local.extension.cluster:
            return f"it is of another cluster than {self._local.cluster!r}"
        unfit = self._admission.name_problem(other)
        if unfit is not None:
            return unfit
        conflict = self._neighbours.conflict(other, now)
        return None if conflict is None else conflict[1]

    def _document_peer_answered(
        self, other: NodeInfo, others: Sequence[NodeInfo], target: DialTarget, now: float
    ) -> None:
        self._admission.register(other._replace(host=target.address), now, trusted=target.configured)
        self._links.add_addresses((one.host for one in others), now)
        first = target.result is not DialResult.DOCUMENT_ONLY
        target.result = DialResult.DOCUMENT_ONLY
        self._close_document_peer(target, now)
        if first:
            target.queries_sequence, target.next_at = True, now

    def _close_document_peer(self, target: DialTarget, now: float) -> None:
        """Close the connection to a peer that supports only document 004 after its one reply."""
        target.queries_sequence = False
        self._links.close_target(target, now, immediately=False)
        target.next_at = now + DOCUMENT_POLL_INTERVAL

    # Parcels of this implementation

    def _send_hello(
        self, other: NodeInfo, member: MemberId, others: Sequence[NodeInfo], target: DialTarget, now: float
    ) -> None:
        local = self._local
        target.state = DialState.HELLO_SENT
        target.next_at = now + REPLY_TIMEOUT
        me = local.member
        hello = Hello(local.cluster, me.name, me.incarnation, local.cluster_id, self._rng.randbytes(16))
        target.hello = hello
        target.member = member
        if local.secret is None:
            self._admission.register(other._replace(host=target.address), now, trusted=target.configured)
            self._links.add_addresses((one.host for one in others), now)
        target.reported_nodes = others
        if target.peer is not None:
            self._output.write(target.peer, hello)

    def welcome_received(self, welcome: Welcome, target: DialTarget, now: float) -> None:
        """Process a Welcome."""
        hello, peer = target.hello, target.peer
        if target.state is not DialState.HELLO_SENT or hello is None or peer is None:
            self._faults.count("out-of-place")
            return
        refusal = self._welcome_refusal(welcome, hello, target)
        if refusal is not None:
            self._reject(target, refusal, now)
            return
        self._output.write(peer, Proof(dialler_proof(self._local.secret, hello, welcome)))
        member = MemberId(welcome.name, welcome.incarnation)
        if self._links.ready_targets.get(member) not in (None, target):
            self._links.close_target(target, now, immediately=False)
            target.next_at = now + ALIAS_RETRY_DELAY
            return
        self._admit(member, welcome, target, now)
        if welcome.cluster_id:
            self._local.adopt_cluster_id(welcome.cluster_id)
        self._output.write(peer, self._local.heartbeat())
        self._output.write(peer, self._local.sequence_request())
        self._listener.member_ready(member)

    def _welcome_refusal(self, welcome: Welcome, hello: Hello, target: DialTarget) -> str | None:
        """Return why a node that sent a Welcome is refused, or ``None``."""
        if not same_proof(welcome_proof(self._local.secret, hello, welcome), welcome.proof):
            return "it does not know the secret of this cluster"
        other = self._local.other_cluster(welcome.cluster_id)
        if other is not None:
            return other
        member = MemberId(welcome.name, welcome.incarnation)
        return None if member == target.member else f"it is {member}, but introduced itself as {target.member}"

    def _admit(self, member: MemberId, welcome: Welcome, target: DialTarget, now: float) -> None:
        """Make a node ready for requests, and add it and the nodes that it listed."""
        self._links.target_ready(target, member)
        target.result = DialResult.IN_CLUSTER if welcome.cluster_id else DialResult.NO_CLUSTER
        target.backoff = DIAL_BACKOFF[0]
        before, trusted = self._neighbours.get(member.name), self._local.secret is not None
        if before is None or before.member != member:
            mode = Mode.WRK if welcome.cluster_id else Mode.DSC
            extension = self._local.extension._replace(incarnation=member.incarnation)
            info = NodeInfo(node_id(member.name), mode, member.name, target.address, extension)
            self._admission.register(info, now, trusted=trusted or target.configured)
        target.trusted = target.trusted or trusted
        # The peer lists nodes of this implementation only after they proved the secret, and other nodes at once.
        for one in target.reported_nodes:
            self._links.add_addresses([one.host], now, trusted=trusted and one.ours is not None)
        self._neighbours.heard(member, now)

    def refusal_received(self, refused: Refused, target: DialTarget, now: float) -> None:
        """Process a refusal."""
        self._reject(target, refused.text, now)

    def _reject(self, target: DialTarget, text: str, now: float) -> None:
        """Record that a peer refused this node or was refused by it."""
        target.result = DialResult.REJECTED
        target.queries_sequence = False
        self._faults.count("refused-by-others")
        self._faults.warn(target.address, f"{format_address(target.address)} refuses this node: {text}")
        self._links.close_target(target, now, immediately=False)
