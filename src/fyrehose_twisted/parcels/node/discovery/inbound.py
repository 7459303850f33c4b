"""Handshake with the peers that dialled this node."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Peer
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.node.discovery.admission import NeighbourAdmission
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer, LinkTable
from fyrehose_twisted.parcels.node.discovery.local_node import LocalNode
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.node.peer_faults import PeerFaults
from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.messages import (
    Hello,
    NodeInfo,
    Parcel,
    ParcelType,
    Proof,
    RefusalReason,
    Refused,
    Welcome,
)

IDLE_TIMEOUT = 30.0
"""Seconds of silence after which an inbound connection is closed."""
MAX_BODY_NEIGHBOURS = 4
"""Neighbours with short names and IPv4 addresses that fit into the body of a DscRes."""


class InboundHandshake:
    """Handshake of one node with its inbound peers."""

    def __init__(
        self,
        local: LocalNode,
        links: LinkTable,
        neighbours: Neighbours,
        admission: NeighbourAdmission,
        output: NodeOutput,
        faults: PeerFaults,
        rng: Random,
    ) -> None:
        self._local = local
        self._links = links
        self._neighbours = neighbours
        self._admission = admission
        self._output = output
        self._faults = faults
        self._rng = rng

    def connected(self, peer: Peer, now: float) -> None:
        """Process an accepted connection."""
        if not self._links.has_room:
            self._faults.count("too-many-links")
            self._send_error(peer, "this node has too many connections; try again later")
            self._links.close(peer)
        else:
            self._links.inbound[peer.number] = InboundPeer(peer, now)

    def close_idle(self, now: float) -> None:
        """Close the connections of silent peers."""
        for caller in list(self._links.inbound.values()):
            if now - caller.heard_at > IDLE_TIMEOUT:
                self._faults.count("idle")
                self._links.close(caller.peer)

    # Parcels of document 004

    def parcel_received(self, parcel: Parcel, caller: InboundPeer, now: float) -> None:
        """Process a parcel of document 004.

        Every parcel is answered, because the reference implementation crashes if the connection closes instead.
        """
        caller.heard_at = now
        identity = parcel.identity
        if parcel.type is ParcelType.DSC_REQ and identity is not None:
            self._discovery_requested(identity, caller, now)
        elif parcel.type in (ParcelType.SEQ_REQ, ParcelType.SEQ_RES) and parcel.body is None:
            self._output.write(caller.peer, self._local.sequence_response())
        else:
            self._faults.count("out-of-place")
            self._send_error(caller.peer, f"a {parcel.type.value} with this body is not expected here")

    def _send_error(self, peer: Peer, text: str) -> None:
        self._output.write(peer, self._local.protocol_error(text))

    def _discovery_requested(self, info: NodeInfo, caller: InboundPeer, now: float) -> None:
        unfit = self._admission.name_problem(info)
        if unfit is not None:
            self._faults.warn(info.host, f"a node at {format_address(info.host)} was refused: {unfit}")
            self._send_error(caller.peer, unfit)
            return
        ours = info.ours
        refused: tuple[RefusalReason, str] | None = None
        if ours is not None and ours.cluster != self._local.extension.cluster:
            refused = RefusalReason.WRONG_CLUSTER, f"this is cluster {self._local.cluster!r}, not yours"
        else:
            refused = self._neighbours.conflict(info, now)
        if refused is not None:
            self._count_refusal(refused[0])
            self._faults.warn(info.host, f"{info.name!r} at {format_address(info.host)} was refused: {refused[1]}")
            self._send_error(caller.peer, refused[1])
            return
        caller.info = info
        response = self._local.discovery_response(self._listed_nodes(info))
        if ours != self._local.extension:  # Otherwise this node has dialled itself.
            # With a secret, a node of this implementation is added once it has proved the secret.
            known = ours is None or self._local.secret is None
            self._admission.introduce(info, caller.peer.address[0], now, known=known, trusted=False)
        self._output.write(caller.peer, response)

    def _listed_nodes(self, info: NodeInfo) -> tuple[NodeInfo, ...]:
        """Return the nodes to list in the answer to a DscReq."""
        listed = [one for one in self._neighbours.node_infos() if one.name != info.name]
        own = self._local.info
        if info.ours is None:
            listed = [one._replace(ours=None) for one in listed]
            own = own._replace(ours=None)
        # This node comes last, as in the reference implementation. If not all fit into the body, it comes first,
        # because some peers read only the body.
        return (*listed, own) if len(listed) < MAX_BODY_NEIGHBOURS else (own, *listed)

    def _count_refusal(self, reason: RefusalReason) -> None:
        self._faults.count(reason.name.lower().replace("_", "-"))

    # Parcels of this implementation

    def hello_received(self, hello: Hello, caller: InboundPeer, now: float) -> None:
        """Process a Hello."""
        caller.heard_at = now
        refused = self._hello_refusal(hello, caller)
        if refused is not None:
            self._count_refusal(refused.why)
            self._faults.warn((caller.peer.address[0], 0), f"{hello.name or 'a publisher'} was refused: {refused.text}")
            self._refuse(caller.peer, refused)
            return
        me, secret = self._local.member, self._local.secret
        welcome = Welcome(me.name, me.incarnation, self._local.cluster_id, self._rng.randbytes(16), b"")
        welcome = welcome._replace(proof=welcome_proof(secret, hello, welcome))
        caller.expected_proof = dialler_proof(secret, hello, welcome)
        caller.member = MemberId(hello.name, hello.incarnation) if hello.name else None
        caller.cluster_id = hello.cluster_id
        caller.authenticated = False
        self._output.write(caller.peer, welcome)

    def _hello_refusal(self, hello: Hello, caller: InboundPeer) -> Refused | None:
        if hello.cluster != self._local.cluster:
            return Refused(
                RefusalReason.WRONG_CLUSTER, f"this is cluster {self._local.cluster!r}, not {hello.cluster!r}"
            )
        if not hello.name:
            return None
        other = self._local.other_cluster(hello.cluster_id)
        if other is not None:
            return Refused(RefusalReason.OTHER_FOUNDING, other)
        if caller.info is None or caller.info.name != hello.name:
            return Refused(RefusalReason.NAME_TAKEN, f"{hello.name!r} sent no DscReq before its Hello")
        return None

    def _refuse(self, peer: Peer, refused: Refused) -> None:
        self._output.write(peer, refused)
        self._links.close(peer)

    def proof_received(self, proof: Proof, caller: InboundPeer, now: float) -> None:
        """Process a Proof."""
        caller.heard_at = now
        if caller.expected_proof is None or not same_proof(caller.expected_proof, proof.proof):
            self._faults.count("wrong-secret")
            self._faults.warn(
                (caller.peer.address[0], 0),
                f"{format_address(caller.peer.address)} does not know the secret of this cluster",
            )
            self._refuse(caller.peer, Refused(RefusalReason.WRONG_SECRET, "wrong secret for this cluster"))
            return
        caller.authenticated = True
        if caller.info is not None and caller.member is not None:
            # Check again, because another node may have taken the name meanwhile.
            refused = self._neighbours.conflict(caller.info, now)
            if refused is not None:
                self._refuse(caller.peer, Refused(*refused))
                return
            self._introduce_authenticated(caller.info, caller, now)
            if caller.cluster_id:
                self._local.adopt_cluster_id(caller.cluster_id)

    def _introduce_authenticated(self, info: NodeInfo, caller: InboundPeer, now: float) -> None:
        trusted = self._local.secret is not None
        self._admission.introduce(info, caller.peer.address[0], now, known=True, trusted=trusted)

    # Requests

    def request_received(self, caller: InboundPeer, now: float) -> None:
        """Record activity of an authenticated peer."""
        caller.heard_at = now
        member = caller.member
        if member is None:
            return
        if not self._neighbours.heard(member, now) and caller.info is not None and member.name not in self._neighbours:
            self._introduce_authenticated(caller.info, caller, now)

    def refuse_request(self, caller: InboundPeer, name: str) -> None:
        """Refuse a request before the handshake.

        :param name: name of the message.
        """
        self._faults.count("out-of-place")
        self._refuse(caller.peer, Refused(RefusalReason.WRONG_SECRET, f"a {name} is not expected before Hello"))
